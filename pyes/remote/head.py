"""The head's part in a conversation with many nodes: what they say and are told, by one thread with an event loop.

Owns the connections, what is known of each node, and the batch that is open. Knows nothing of the thread that trains:
it is handed jobs, batches and what generations came to, and sets a batch's future. Invariants: what a node says is
checked before it counts; a member's result is taken once, from whichever node brings it first; the state of the run is
read only while a batch is open.
"""

import asyncio
import contextlib
import json
import logging
import math
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.episodes.batch import Plan
from pyes.errors import ClusterError, PyesError
from pyes.remote import wire
from pyes.remote.agent import Agent
from pyes.remote.door import HANDSHAKE_SECONDS, Door
from pyes.remote.open_batch import OpenBatch
from pyes.remote.pace import Pace
from pyes.remote.peer import Peer
from pyes.remote.scheduler import Scheduler
from pyes.remote.session import BEAT_SECONDS, SILENT_SECONDS, keep_alive
from pyes.remote.standing import Heard, Place
from pyes.remote.wire.protocol import HeadSide, State
from pyes.run.journal import Generation
from pyes.run.metrics import NodeRow
from pyes.run.state import RunState
from pyes.system import packing
from pyes.system.text import counted

logger = logging.getLogger(__name__)

_PREPARING_SECONDS = 300.0  # that a node may be silent while it makes its table and its environments
_TICK_SECONDS = 0.05  # between looks at who is late
_FAREWELL_SECONDS = 2.0  # that a node has to read why it is sent away
_FEW_NODES = 8  # up to which each is sent only what it does not know
_OVERHEAD_BYTES = 2**16  # of a message, beside its arrays


@dataclass(frozen=True)
class Assignment:
    """What the nodes are to work at: a run, and what of a node's must equal the head's.

    Attributes
    ----------
    told : Job     as the nodes are told of it
    state : RunState    which the nodes are kept in step with
    plan : Plan    of the head's own table and buffers
    digest : str   of the settings that decide what members come to
    table : str    fingerprint of the noise table
    """

    told: wire.Job
    state: RunState
    plan: Plan
    digest: str
    table: str

    @property
    def place(self) -> Place:
        """Where the run is."""
        return self.state.generation, self.state.theta_hash

    @property
    def learns(self) -> bool:
        """Whether nodes update theta themselves."""
        return self.told.sync == "replay"


class Head:
    """Talks with all nodes; methods are for the thread of the event loop, properties and attributes for any.

    Parameters
    ----------
    door : Door        lets them in
    where : str        address that it listens at
    tell : callable    tells the user, in a line, who comes and goes
    lonely : str       what to tell when there is no node

    Attributes
    ----------
    lost : int          members that were lost with their nodes
    rerun : int         members handed out while another node still held them
    """

    def __init__(self, door: Door, where: str, tell: Callable[[str], None], lonely: str) -> None:
        self._door, self._where, self._tell, self._lonely = door, where, tell, lonely
        self._peers: dict[int, Peer] = {}
        self._connections = 0
        self._assignment: Assignment | None = None
        self._open: OpenBatch | None = None
        self._gone = np.zeros(2, np.int64)  # bytes of connections that are over
        self.lost = self.rerun = self._duplicates = 0  # members, in all batches
        self._tasks: set[asyncio.Task[None]] = set()
        self._own: Agent | None = None
        self._server: asyncio.Server | None = None
        self._failure: ClusterError | None = None

    @property
    def workers(self) -> int:
        """Worker processes of all nodes that are ready."""
        return sum(peer.pace.workers for peer in list(self._peers.values()) if peer.standing.ready)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received, as they were before TLS."""
        sides = [peer.side for peer in list(self._peers.values())]
        sent, received = self._gone.tolist()
        return sent + sum(each.bytes_sent for each in sides), received + sum(each.bytes_received for each in sides)

    async def serve(self, listening: socket.socket, own: Agent | None) -> None:
        """Let nodes in from now on, and look after this machine's own one."""
        self._own, self._listening = own, listening
        asyncio.get_running_loop().set_exception_handler(self._connection_failed)
        self._spawn(self._tick())
        self._server = await asyncio.start_server(self._accept, sock=listening, backlog=4096)

    async def end(self) -> None:
        """Send all nodes away."""
        self._open = None
        for peer in self._peers.values():
            if self._assignment is not None:
                peer.send(wire.End(self._assignment.told.job))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*(peer.farewell() for peer in list(self._peers.values())))
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)  # own workers have it, too, and may end a moment later
            self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def rows(self, generation: int, seconds: float) -> list[NodeRow]:
        """Return what each node has done since the last call."""
        return [peer.row(generation, seconds) for peer in self._peers.values() if peer.standing.ready]

    # --- what may go wrong here

    def _connection_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take note of an error in asyncio's own callbacks: of one connection, or one that nobody has foreseen."""
        error = context.get("exception")
        if isinstance(error, OSError):  # or no descriptors are left for another one
            self._door.refusals.log("a connection", error.strerror or str(error))
        else:
            self._fail(str(context.get("message")), error)

    def _fail(self, what: str, error: BaseException | None) -> None:
        """End the open batch, or the next, over an error that nobody has foreseen: the run must not wait for ever."""
        logger.error("the head failed: %s", what, exc_info=error)
        self._failure = ClusterError(f"the head failed ({error!r}); see train.log, resume the run")
        if self._open is not None and not self._open.future.done():
            self._open.future.set_exception(self._failure)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail("a task ended", error)

    # --- connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk with whoever has connected, until they leave."""
        host = str((writer.get_extra_info("peername") or ["?"])[0])
        peer: Peer | None = None
        side, refusals = HeadSide(self._limit()), self._door.refusals
        try:
            keep_alive(writer)
            below = writer.transport  # TLS will be above it
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                hello = await self._door.greet(reader, writer, side)
                if isinstance(hello, wire.Watch):
                    writer.write(side.send(self._report()))
                    writer.close()
                    await writer.wait_closed()  # else what the kernel has not taken yet would be lost
            if isinstance(hello, wire.Hello):
                peer = self._welcome(hello, side, writer, below)
            while peer is not None and (data := await reader.read(2**18)):
                peer.heard = time.monotonic()
                for message in side.receive(data):
                    self._take(peer, message)
        except ssl.SSLError as error:
            refusals.log(host, f"it has not the key of this cluster ({error.reason})")
        except TimeoutError:
            if peer is None:
                refusals.log(host, f"no handshake within {HANDSHAKE_SECONDS:g} s")
            else:  # the kernel's, about a node that has vanished
                logger.info("connection with %s timed out", host)
        except PyesError as error:  # the key's file, too, may be unreadable by now
            refusals.log(host, str(error))
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
        if self._assignment is None:
            return 2**26
        plan = self._assignment.plan
        row = 8 + 8 + 1 + 4 * plan.behaviour_size + 16 * plan.halves + 16
        return _OVERHEAD_BYTES + plan.capacity * row + plan.statistics_rows * 16 * plan.observation_size

    def _welcome(
        self, hello: wire.Hello, side: HeadSide, writer: asyncio.StreamWriter, below: asyncio.WriteTransport
    ) -> Peer:
        """Count a node in, and tell it what there is to do."""
        self._connections += 1
        peer = Peer(self._connections, hello, side, writer, below, Pace(max(1, hello.workers)))
        self._peers[peer.number] = peer
        logger.info("node %s is here with %s", peer.name, counted(hello.workers, "worker"))
        if self._assignment is not None:
            peer.send(self._assignment.told)
        return peer

    def _lose(self, peer: Peer) -> None:
        """Go on without a node whose connection is over."""
        if self._peers.pop(peer.number, None) is None:
            return
        logger.info("node %s has left", peer.name)
        peer.standing.leave()
        self._hand_back(peer)
        self._hand_out()
        if self._open is not None:
            self._tell_if_alone()

    def _hand_back(self, peer: Peer) -> None:
        """Have others evaluate what a node holds."""
        if self._open is not None and (lost := self._open.scheduler.leave(peer.number)):
            logger.warning("node %s held %s: others evaluate them", peer.name, counted(lost, "member"))

    def _send_away(self, peer: Peer, reason: str) -> None:
        """Refuse a node that has been let in."""
        self._door.refusals.log(peer.name, reason)
        peer.send(wire.Refused(reason))
        # It closes the connection when it has read this; if we did, with results of its under way, it never would.
        asyncio.get_running_loop().call_later(_FAREWELL_SECONDS, peer.leave)
        peer.standing.leave()
        self._hand_back(peer)

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
                    if now - peer.heard > (SILENT_SECONDS if peer.standing.ready else _PREPARING_SECONDS):
                        logger.warning("node %s has been silent for %.0f s", peer.name, now - peer.heard)
                        peer.leave()
            self._let_back()
            self._hand_out()

    # --- messages

    def _take(self, peer: Peer, message: wire.Message) -> None:
        if peer.side.state is State.OVER:
            return  # it was sent away by what it said just before
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

    def begin_job(self, assignment: Assignment) -> None:
        """Tell all nodes, and those to come, what the job is."""
        self._assignment = assignment
        for peer in self._peers.values():
            peer.send(assignment.told)

    def _take_ready(self, peer: Peer, ready: wire.Ready) -> None:
        """Let a node take part that has made itself ready, or that says it is out of step."""
        job = self._assignment
        if job is None or ready.job != job.told.job:
            return
        for what, got, expected in (
            ("settings", ready.digest, job.digest),
            ("noise table", ready.table, job.table),
        ):
            if got != expected:
                self._send_away(peer, f"its {what} differ from the head's ({got}, here {expected})")
                return
        try:
            heard = peer.standing.hear(ready)
        except ValueError as error:
            self._send_away(peer, str(error))
            return
        if heard is Heard.NOTHING:
            return
        if heard is Heard.ASTRAY:
            logger.warning(
                "node %s is out of step (theta %s in generation %d)", peer.name, ready.theta_hash, ready.generation
            )
            self._hand_back(peer)
        if peer.standing.hopeless:
            self._send_away(peer, "its theta differs from the head's, with the same state to begin from")
            return
        if not peer.since:
            self._tell(f"node {peer.name} joins with {counted(peer.pace.workers, 'worker')}")
            peer.since = time.monotonic()
        if self._open is not None and not peer.congested:
            self._enter(peer, job, self._open)
            self._hand_out()

    # --- batches

    def begin(self, batch: OpenBatch) -> None:
        """Have a batch evaluated by whoever is there, and those to come."""
        assert self._assignment is not None, "a job comes before its batches"
        self._open = batch
        if self._failure is not None:
            batch.future.set_exception(self._failure)
            return
        for peer in list(self._peers.values()):
            if peer.standing.ready and not peer.congested:
                self._enter(peer, self._assignment, batch)
            elif not batch.batch.evaluation:
                peer.known = np.zeros(len(batch.batch.population), np.bool_)
        self._hand_out()
        self._tell_if_alone()

    def _let_back(self) -> None:
        """Let nodes take part in the open batch whose connection has caught up with what they were sent."""
        if self._open is None or self._assignment is None:
            return
        for peer in list(self._peers.values()):
            if peer.standing.ready and not peer.congested and peer.number not in self._open.scheduler:
                self._enter(peer, self._assignment, self._open)

    def _tell_if_alone(self) -> None:
        if not any(peer.standing.ready for peer in self._peers.values()):
            self._tell(self._lonely)

    def _enter(self, peer: Peer, job: Assignment, batch: OpenBatch) -> None:
        """Let a node take part in the open batch, once it is in step."""
        if job.learns and peer.standing.lacks(job.place):
            if batch.packed_state is None:
                batch.packed_state = packing.pack(job.state.state_dict())
            peer.correct(job.place, batch.packed_state)
        peer.standing.enter()
        if not batch.batch.evaluation:
            peer.known = np.zeros(len(batch.batch.population), np.bool_)
        peer.send(batch.opening() if job.learns else batch.vectors())
        batch.scheduler.join(peer.number, peer.pace)

    def _hand_out(self) -> None:
        """Send members to whoever should have some."""
        batch, job = self._open, self._assignment
        if batch is None or job is None:
            return
        now = time.monotonic()
        population = batch.batch.population
        for number, members in batch.scheduler.grants(now):
            ranges = wire.ranges_of(members)
            peer = self._peers[number]
            if not job.learns and batch.apart:
                peer.send(wire.Bases(batch.number, ranges, population.bases[members]))
            peer.send(wire.Grant(batch.number, ranges))
        for number, members in batch.scheduler.withdrawn(now):
            self._peers[number].send(wire.Withdraw(batch.number, wire.ranges_of(members)))

    def _take_results(self, peer: Peer, done: wire.Done) -> None:
        batch = self._open
        if batch is None or done.batch != batch.number or not peer.standing.in_step:
            return  # of a batch that others have finished
        try:
            fresh = batch.take(peer.number, done, time.monotonic())
        except ValueError as error:
            self._send_away(peer, str(error))
            return
        if not batch.batch.evaluation:
            peer.known[fresh] = True  # of the others it is sent what counts: a member killed here may have lived there
        peer.standing.returned(batch.batch.generation)
        peer.members += len(done.returns)
        peer.timesteps += int(done.lengths.sum(dtype=np.int64))
        peer.busy_seconds += done.busy
        if batch.scheduler.complete:
            self._open = None
            self._count(batch.scheduler)
            for each in self._peers.values():
                each.send(wire.Close(batch.number))
            batch.future.set_result(batch.results())
        else:
            self._hand_out()

    def _count(self, scheduler: Scheduler) -> None:
        self.lost += scheduler.lost
        self.rerun += scheduler.rerun
        self._duplicates += scheduler.duplicates

    def _report(self) -> wire.Report:
        """Return how the head and its nodes are doing."""
        now, batch, job = time.monotonic(), self._open, self._assignment
        report = {
            "head": socket.gethostname(),
            "listen": self._where,
            "job": None if job is None else job.told.job,
            "task": None if job is None else job.state.setup.config.task.title,
            "generation": None if batch is None else batch.batch.generation,
            "members_left": None if batch is None else batch.scheduler.remaining,
            "workers": self.workers,
            "lost": self.lost,
            "rerun": self.rerun,
            "duplicates": self._duplicates,
            "nodes": [peer.report(now) for peer in self._peers.values()],
        }
        return wire.Report(json.dumps(report))

    def teach(self, record: Generation) -> None:
        """Send what a generation came to to all nodes that are in step.

        A few are each sent what they have not reported themselves. To many, which reported little each, the whole goes
        out, written once: else that work would grow with the number of nodes times that of members.
        """
        peers = [peer for peer in self._peers.values() if peer.standing.in_step]
        if len(peers) > _FEW_NODES:
            message = _lesson(record, np.arange(len(record.returns)))
            encoded = wire.encode(message)
            for peer in peers:
                peer.teach(message, encoded)
        else:
            for peer in peers:
                peer.teach(_lesson(record, np.flatnonzero(~peer.known)))


def _lesson(record: Generation, members: NDArray[np.int64]) -> wire.Learn:
    """Return what a generation came to, with the results of these members alone."""
    status = record.status[members]
    behaviours = record.behaviours
    return wire.Learn(
        generation=record.generation,
        theta_hash=record.theta_hash,
        ranges=wire.ranges_of(members),
        returns=record.returns[members],
        lengths=record.lengths[members],
        status=status if status.any() else None,
        observations=record.observations,
        sums=record.sums,
        behaviours=None if behaviours is None else behaviours.reshape(len(record.returns), -1)[members],
        agreement=math.nan if record.agreement is None else record.agreement,
    )
