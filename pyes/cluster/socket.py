"""The socket cluster: this process is the head, nodes come and go over TCP.

Owns the listening socket, the connections, and a thread with an event loop that talks to them all. The training loop's
thread only hands over batches and waits. Invariants: what a node says is checked before it counts; a member's result is
taken once, from whichever node brings it first; the state of the run is read by the thread of the event loop only while
the training loop waits for a batch.
"""

import asyncio
import contextlib
import json
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from pyes import addresses, keys, packing, protocol, selftest, wire
from pyes.cluster import job
from pyes.cluster.agent import Agent
from pyes.cluster.base import Abandoned, Cluster
from pyes.cluster.open_batch import OpenBatch
from pyes.cluster.peer import Peer
from pyes.cluster.refusals import Refusals
from pyes.cluster.session import BEAT_SECONDS, SILENT_SECONDS, keep_alive
from pyes.config import ClusterConfig
from pyes.errors import ClusterError, ConfigError, ProtocolError, PyesError
from pyes.journal import Generation
from pyes.messages import Batch, Plan, Results
from pyes.metrics import NodeRow
from pyes.noise import NoiseTable, usable_cores
from pyes.protocol import HeadSide
from pyes.run_state import RunState
from pyes.schedule import Pace, Schedule
from pyes.versions import version

logger = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 10.0
_PREPARING_SECONDS = 300.0  # that a node may be silent while it makes its table and its environments
_LOOK_SECONDS = 0.5  # between looks whether the user wants to wait any longer
_TICK_SECONDS = 0.05  # between looks at who is late
_CORRECTIONS = 3  # snapshots in a row, after which a node is taken to compute something else
_FAREWELL_SECONDS = 2.0  # that a node has to read why it is sent away
_OVERHEAD_BYTES = 2**16  # of a message, beside its arrays


class SocketCluster(Cluster):
    """The head of many nodes.

    Parameters
    ----------
    tell : callable    tells the user, in a line, what the head waits for

    Attributes
    ----------
    address : Address    where it listens

    Raises
    ------
    ConfigError    it cannot listen where it is told to, or the key cannot be used
    """

    def __init__(self, config: ClusterConfig, tell: Callable[[str], None]) -> None:
        self._config, self._tell = config, tell
        self.address = addresses.parse(config.listen)
        self._context = None if config.key is None else keys.server_context(config.key)
        self._peers: dict[int, Peer] = {}
        self._connections = 0
        self._job: wire.Job | None = None
        self._state: RunState | None = None
        self._open: OpenBatch | None = None
        self._batches = 0
        self._gone = np.zeros(2, np.int64)  # bytes of connections that are over
        self._lost = self._rerun = self._duplicates = 0  # members, in all batches
        self._refusals = Refusals()
        self._tasks: set[asyncio.Task[None]] = set()
        self._own: Agent | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        _allow_many_connections()
        self._socket = _listen(self.address)
        self.address = addresses.Address(self.address.host, self._socket.getsockname()[1])
        try:
            workers = usable_cores() if self._config.workers == "auto" else self._config.workers
            if workers:  # forked before the thread is there
                self._own = Agent(self.address.local, self._config.key, workers)
                self._own.start()
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run_loop, name="head", daemon=True)
            self._thread.start()
            self._server = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()
        except BaseException:
            self.close()
            raise
        return self

    @property
    def workers(self) -> int:  # type: ignore[override]
        """Worker processes of all nodes that are ready."""
        return sum(peer.pace.workers for peer in list(self._peers.values()) if peer.ready)

    @property
    def traffic(self) -> tuple[int, int]:  # type: ignore[override]
        """Bytes sent and received, as they were before TLS."""
        sides = [peer.side for peer in list(self._peers.values())]
        sent, received = self._gone.tolist()
        return sent + sum(each.bytes_sent for each in sides), received + sum(each.bytes_received for each in sides)

    # --- the training loop's side

    def start(self, plan: Plan, table: NoiseTable, state: RunState | None = None) -> None:
        """Tell all nodes, and those to come, what the job is."""
        assert state is not None, "nodes are kept in step with a run"
        config = state.setup.config
        settings, sync = job.settings_of(config), job.sync_of(config)
        self._state, self._plan, self._table = state, plan, table.fingerprint
        self._learns = sync == "replay"
        self._digest = job.digest_of(state.setup)
        described = wire.Job(job.name_of(settings, table.fingerprint, sync), settings, sync)
        self._loop.call_soon_threadsafe(self._begin_job, described)

    def evaluate(self, batch: Batch) -> Results:
        """Have a batch evaluated by whoever is there, and wait for it."""
        assert self._state is not None, "start comes before evaluate"
        self._batches += 1
        open_batch = OpenBatch(self._batches, batch, self._state.theta_hash, self._plan)
        self._loop.call_soon_threadsafe(self._begin, open_batch)
        while True:
            try:
                return open_batch.future.result(_LOOK_SECONDS)
            except TimeoutError:
                if self.interrupt and not self.workers:
                    raise Abandoned from None

    def advance(self, record: Generation) -> None:
        """Send what a generation came to: to each node what it does not know yet."""
        if self._learns:
            self._loop.call_soon_threadsafe(self._teach, record)

    def close(self) -> None:
        """Send all nodes away, and end the thread."""
        if self._thread is not None and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        self._thread = None
        self._socket.close()
        if self._own is not None:
            self._own.close()
            self._own = None

    def nodes(self, generation: int, seconds: float) -> list[NodeRow]:
        """Return what each node has done since the last call."""

        async def rows() -> list[NodeRow]:
            return [peer.row(generation, seconds) for peer in self._peers.values() if peer.ready]

        return asyncio.run_coroutine_threadsafe(rows(), self._loop).result()

    def remarks(self) -> list[str]:
        """Return how many members were lost with their nodes, and how many were evaluated twice."""
        lost = f"{self._lost} members were lost with their nodes, and evaluated by others" if self._lost else ""
        rerun = f"{self._rerun} members of slow nodes were evaluated by others, too" if self._rerun else ""
        return [each for each in (lost, rerun) if each]

    # --- the loop's side

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._fail)
        self._loop.run_forever()

    def _fail(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the open batch over an error that nobody has foreseen: the training loop must not wait for ever."""
        error = context.get("exception")
        if isinstance(error, OSError):  # of one connection, or no descriptors are left for another one
            self._refusals.log("a connection", error.strerror or str(error))
            return
        logger.error("the head failed: %s", context.get("message"), exc_info=error)
        if self._open is not None and not self._open.future.done():
            self._open.future.set_exception(ClusterError(f"the head failed ({error!r}); see train.log, resume the run"))

    async def _serve(self) -> asyncio.Server:
        self._spawn(self._tick())
        return await asyncio.start_server(self._accept, sock=self._socket, backlog=4096)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(self._loop, {"message": "a task ended", "exception": error})

    async def _end(self) -> None:
        for peer in self._peers.values():
            if self._job is not None:
                peer.send(wire.End(self._job.job))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                for peer in list(self._peers.values()):
                    with contextlib.suppress(OSError):
                        await peer.writer.drain()
                        peer.writer.close()
                        await peer.writer.wait_closed()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # own workers have it, too, and may end a moment later
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk with whoever has connected, until they leave."""
        host = str((writer.get_extra_info("peername") or ["?"])[0])
        peer: Peer | None = None
        side = HeadSide(self._limit())
        try:
            keep_alive(writer)
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                if self._context is not None:
                    assert self._config.key is not None
                    await writer.start_tls(self._context)
                    if not keys.same_certificate(writer.get_extra_info("ssl_object"), self._config.key):
                        raise ProtocolError("it has another key")
                peer = await self._let_in(reader, writer, side)
            while peer is not None and (data := await reader.read(2**18)):
                peer.heard = time.monotonic()
                for message in side.receive(data):
                    self._take(peer, message)
        except ssl.SSLError as error:
            self._refusals.log(host, f"it has not the key of this cluster ({error.reason})")
        except TimeoutError:
            if peer is None:
                self._refusals.log(host, f"no handshake within {_HANDSHAKE_SECONDS:g} s")
            else:  # the kernel's, about a node that has vanished
                logger.info("connection with %s timed out", host)
        except PyesError as error:  # the key's file, too, may be unreadable by now
            self._refusals.log(host, str(error))
        except OSError as error:
            logger.info("connection with %s: %s", host, error.strerror or error)
        except asyncio.CancelledError:  # the run is over; asyncio would complain of it
            pass
        finally:
            if peer is not None:
                self._lose(peer)
            self._gone += (side.bytes_sent, side.bytes_received)
            writer.transport.abort()

    def _limit(self) -> int:
        """Bytes of the largest message of a node: the results of all members."""
        if self._state is None:
            return 2**26
        plan = self._plan
        row = 8 + 8 + 1 + 4 * plan.behaviour_size + 16 * plan.halves + 16
        return _OVERHEAD_BYTES + plan.capacity * row + plan.statistics_rows * 16 * plan.observation_size

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, side: HeadSide) -> Peer | None:
        """Wait for a greeting; return the node that it comes from, or None of one that is refused."""
        messages: list[wire.Message] = []
        while not messages:
            data = await reader.read(2**12)
            if not data:
                return None
            messages = side.receive(data)
        hello = messages[0]
        assert isinstance(hello, wire.Hello | wire.Watch)
        reason = protocol.check_hello(hello, version("pyes-rl"), selftest.digest())
        if reason is not None:
            writer.write(side.send(wire.Refused(reason)))
            await writer.drain()
            raise ProtocolError(reason)
        writer.write(side.send(wire.Welcome(socket.gethostname()[:100])))
        if isinstance(hello, wire.Watch):
            writer.write(side.send(self._report()))
            writer.close()
            await writer.wait_closed()  # else what the kernel has not taken yet would be lost with the connection
            return None
        self._connections += 1
        peer = Peer(self._connections, hello, side, writer, Pace(max(1, hello.workers)))
        self._peers[peer.number] = peer
        logger.info("node %s is here with %d workers", peer.name, hello.workers)
        if self._job is not None:
            peer.send(self._job)
        return peer

    def _lose(self, peer: Peer) -> None:
        """Go on without a node whose connection is over."""
        if self._peers.pop(peer.number, None) is None:
            return
        logger.info("node %s has left", peer.name)
        self._take_out(peer)
        self._hand_out()
        if self._open is not None:
            self._tell_if_alone()

    def _take_out(self, peer: Peer) -> None:
        """Have others evaluate what a node holds."""
        if self._open is not None and peer.in_step:
            lost = self._open.schedule.leave(peer.number)
            if lost:
                logger.warning("node %s left with %d members: others evaluate them", peer.name, lost)
        peer.ready = peer.in_step = False

    def _send_away(self, peer: Peer, reason: str) -> None:
        """Refuse a node that has been let in."""
        self._refusals.log(peer.name, reason)
        peer.send(wire.Refused(reason))
        # It closes the connection when it has read this; if we did, with results of its under way, it never would.
        self._loop.call_later(_FAREWELL_SECONDS, peer.leave)
        self._take_out(peer)

    async def _tick(self) -> None:
        """Look after those who are silent or late."""
        beat = 0.0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            if now - beat >= BEAT_SECONDS:
                beat = now
                if self._own is not None:
                    self._own.check()
                for peer in list(self._peers.values()):
                    peer.send(wire.Beat(now))
                    if now - peer.heard > (SILENT_SECONDS if peer.ready else _PREPARING_SECONDS):
                        logger.warning("node %s has been silent for %.0f s", peer.name, now - peer.heard)
                        peer.leave()
            self._hand_out()

    # Messages

    def _take(self, peer: Peer, message: wire.Message) -> None:
        match message:
            case wire.Done():
                self._take_results(peer, message)
            case wire.Ready():
                self._take_ready(peer, message)
            case wire.Echo():
                # Within bounds, whatever it says: queues are as long as this.
                peer.pace.round_trip = min(max(0.0, time.monotonic() - message.time), SILENT_SECONDS)
            case wire.Beat():
                peer.send(wire.Echo(message.time))
            case wire.Log():
                logger.log(message.level, "%s: %s", peer.name, message.text)
            case wire.Unable():
                peer.unable = message.reason
                text = f"node {peer.name} cannot take part: {message.reason}"
                logger.warning("%s", text)
                self._tell(text)

    def _begin_job(self, described: wire.Job) -> None:
        self._job = described
        for peer in self._peers.values():
            peer.send(described)

    def _take_ready(self, peer: Peer, ready: wire.Ready) -> None:
        """Let a node take part that has made itself ready, or that says it is out of step."""
        if self._job is None or ready.job != self._job.job:
            return
        for what, got, expected in (
            ("settings", ready.digest, self._digest),
            ("noise table", ready.table, self._table),
        ):
            if got != expected:
                self._send_away(peer, f"its {what} differ from the head's ({got}, here {expected})")
                return
        if not peer.ready:
            self._tell(f"node {peer.name} joins with {peer.pace.workers} workers")
            peer.since = time.monotonic()
        standing = (ready.generation, ready.theta_hash)
        if peer.in_step and standing == peer.corrected:
            peer.corrections = 0  # what it has been sent since then, it takes up next
            return
        if peer.in_step and ready.generation < peer.corrected[0]:
            return  # it has not come to the snapshot yet
        if peer.in_step:
            logger.warning("node %s is out of step (theta %s in generation %d)", peer.name, *reversed(standing))
            self._take_out(peer)
        peer.ready, peer.in_step, peer.standing = True, False, standing
        if self._open is not None:
            self._enter(peer, self._open)
            self._hand_out()

    def _begin(self, batch: OpenBatch) -> None:
        self._open = batch
        for peer in list(self._peers.values()):
            if peer.ready:
                self._enter(peer, batch)
        self._hand_out()
        self._tell_if_alone()

    def _tell_if_alone(self) -> None:
        if not any(peer.ready for peer in self._peers.values()):
            key = "" if self._config.key is None else f" --key {self._config.key}"
            self._tell(f"no node is here; start one with: pyes worker {self.address.named}{key}")

    def _enter(self, peer: Peer, batch: OpenBatch) -> None:
        """Let a node take part in the open batch, once it is in step."""
        if self._learns and not peer.in_step:
            assert self._state is not None
            if peer.standing == (self._state.generation, self._state.theta_hash):
                peer.corrections = 0
            elif not self._correct(peer, batch):
                return
        peer.in_step = True
        if not batch.batch.evaluation:
            peer.known = np.zeros(len(batch.batch.population), np.bool_)
        peer.send(_opening(batch) if self._learns else _vectors(batch))
        batch.schedule.join(peer.number, peer.pace)

    def _correct(self, peer: Peer, batch: OpenBatch) -> bool:
        """Send a node the state that it should be in; return whether that may help.

        It is in step from then on: it takes its messages in order, and the run does not wait for its answer.
        """
        assert self._state is not None
        peer.corrections += 1
        if peer.corrections > _CORRECTIONS:
            self._send_away(peer, "its theta differs from the head's, with the same state to begin from")
            return False
        if batch.snapshot is None:
            packed = packing.pack(self._state.state_dict())
            batch.snapshot = wire.Snapshot(self._state.generation, self._state.theta_hash, packed)
        peer.corrected = (batch.snapshot.generation, batch.snapshot.theta_hash)
        peer.send(batch.snapshot)
        return True

    def _hand_out(self) -> None:
        """Send members to whoever should have some."""
        batch = self._open
        if batch is None:
            return
        now = time.monotonic()
        population = batch.batch.population
        for number, members in batch.schedule.grants(now):
            ranges = wire.ranges_of(members)
            peer = self._peers[number]
            if not self._learns and batch.apart:
                peer.send(wire.Bases(batch.number, ranges, population.bases[members]))
            peer.send(wire.Grant(batch.number, ranges))
        for number, members in batch.schedule.withdrawn(now):
            self._peers[number].send(wire.Withdraw(batch.number, wire.ranges_of(members)))

    def _take_results(self, peer: Peer, done: wire.Done) -> None:
        batch = self._open
        if batch is None or done.batch != batch.number or not peer.in_step:
            return  # of a batch that others have finished
        try:
            fresh = batch.take(peer.number, done, time.monotonic())
        except ValueError as error:
            self._send_away(peer, str(error))
            return
        if not batch.batch.evaluation:
            peer.known[fresh] = True  # of the others it is sent what counts: a member killed here may have lived there
        peer.members += len(done.returns)
        peer.timesteps += int(done.lengths.sum(dtype=np.int64))
        peer.busy_seconds += done.busy
        if batch.schedule.complete:
            self._open = None
            self._count(batch.schedule)
            for each in self._peers.values():
                each.send(wire.Close(batch.number))
            batch.future.set_result(batch.results())
        else:
            self._hand_out()

    def _count(self, schedule: Schedule) -> None:
        self._lost += schedule.lost
        self._rerun += schedule.rerun
        self._duplicates += schedule.duplicates

    def _report(self) -> wire.Report:
        """Return how the head and its nodes are doing."""
        now, batch = time.monotonic(), self._open
        report = {
            "head": socket.gethostname(),
            "listen": str(self.address),
            "job": None if self._job is None else self._job.job,
            "task": None if self._state is None else self._state.setup.config.task.title,
            "generation": None if batch is None else batch.batch.generation,
            "members_left": None if batch is None else batch.schedule.remaining,
            "workers": self.workers,
            "lost": self._lost,
            "rerun": self._rerun,
            "duplicates": self._duplicates,
            "nodes": [peer.report(now) for peer in self._peers.values()],
        }
        return wire.Report(json.dumps(report))

    def _teach(self, record: Generation) -> None:
        """Send a record to all nodes that are in step, each without what it has reported itself."""
        for peer in self._peers.values():
            if not peer.in_step:
                continue
            rest = np.flatnonzero(~peer.known)
            status = record.status[rest]
            message = wire.Learn(
                generation=record.generation,
                theta_hash=record.theta_hash,
                ranges=wire.ranges_of(rest),
                returns=record.returns[rest],
                lengths=record.lengths[rest],
                status=status if status.any() else None,
                observations=record.observations,
                sums=record.sums,
                behaviours=None
                if record.behaviours is None
                else record.behaviours.reshape(len(record.returns), -1)[rest],
                agreement=math.nan if record.agreement is None else record.agreement,
            )
            peer.send(message)


def _allow_many_connections() -> None:
    """Raise the limit on open files as far as this process may."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(address: addresses.Address) -> socket.socket:
    """Return a socket that listens at an address.

    Raises
    ------
    ConfigError    somebody else does, or the address is not of this machine
    """
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return socket.create_server((address.host, address.port), family=family, backlog=4096)
    except OSError as error:
        raise ConfigError(
            f"cluster.listen: cannot listen at {address} ({error.strerror}); is another head running there?"
        ) from error


def _opening(batch: OpenBatch) -> wire.Open:
    members = batch.batch
    episodes = len(members.population) if members.evaluation else 0
    return wire.Open(batch.number, members.generation, episodes, batch.theta_hash)


def _vectors(batch: OpenBatch) -> wire.Vectors:
    members, population = batch.batch, batch.batch.population
    bases = population.bases[:0] if batch.apart else population.bases
    return wire.Vectors(
        batch=batch.number,
        generation=members.generation,
        theta_hash=batch.theta_hash,
        bases=bases,
        rows=population.rows,
        offsets=population.offsets,
        scales=population.scales,
        deviation=population.deviation,
        seeds=members.seeds,
        limit=members.limit,
        mean=members.mean,
        inverse_std=members.inverse_std,
        statistics_stride=members.statistics_stride,
        action_noise=members.action_noise,
    )
