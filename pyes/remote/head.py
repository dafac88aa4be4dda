"""The head's side of the connections with many nodes, in one thread with an event loop.

Owns the state of each node, and the open batch; the door handles connections and refusals. Knows nothing of the
training thread, which passes jobs, batches and records of generations, and waits for a batch's future. Invariants:
messages of nodes are checked before use; only the first result of a member counts; the state of the run is read only
while a batch is open.
"""

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from pyes.errors import ClusterError
from pyes.remote import wire
from pyes.remote.door import Door
from pyes.remote.job import OpenJob
from pyes.remote.open_batch import OpenBatch
from pyes.remote.peer import Peer, lesson
from pyes.remote.session import BEAT_SECONDS, SILENT_SECONDS
from pyes.remote.standing import Heard
from pyes.remote.state_copy import StateCopy
from pyes.remote.wire.protocol import State
from pyes.run.journal import Generation
from pyes.run.metrics import NodeRow
from pyes.system.repeats import repeated
from pyes.system.text import counted

logger = logging.getLogger(__name__)

_PREPARING_SECONDS = 300.0  # allowed silence of a node while it makes its table and its environments
_TICK_SECONDS = 0.05  # between checks for late nodes
_FAREWELL_SECONDS = 10.0  # for a node to read why it is refused, even where its machine stands still for a while
_SETTLING_SECONDS = 0.01  # for connections just accepted to begin: asyncio never closes one that has not
_MEMBER_BYTES = 10  # of a member in the record of a generation
_MOST_CONTRADICTED = 8  # members that failed on a node alone, without another one that it has evaluated
_NO_JOB_LIMIT = 2**26  # maximum bytes of a node's message while there is no job


class Head:
    """Talks with all nodes; methods are for the thread of the event loop, properties and attributes for any thread.

    Parameters
    ----------
    door : Door
        Accepts nodes.
    where : str
        Address of the head.
    tell : callable
        Shows the user a line about nodes that join or leave.
    lonely : str
        Message while there is no node; none if it is empty.

    Attributes
    ----------
    lost : int
        Members that were lost with their nodes.
    rerun : int
        Members granted while another node still held them.
    """

    def __init__(self, door: Door, where: str, tell: Callable[[str], None], lonely: str) -> None:
        self._door, self._where, self._tell, self._lonely = door, where, tell, lonely
        self._peers: dict[int, Peer] = {}
        self._job: OpenJob | None = None
        self._open: OpenBatch | None = None
        self._copy: StateCopy | None = None  # for nodes that lack the state
        self.lost = self.rerun = self._duplicates = 0  # members, in all batches
        self._joined: Counter[str] = Counter()  # connections of each node, by its name
        self._lost_at: Counter[str] = Counter()  # members that were lost with each node
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._failure: ClusterError | None = None
        self._handing_out = False  # whether that is due

    @property
    def workers(self) -> int:
        """Worker processes of all nodes that are ready."""
        peers = list(self._peers.values())
        return sum(peer.pace.workers for peer in peers if peer.standing.ready and not peer.leaving)

    @property
    def expected(self) -> int:
        """Worker processes of all nodes, ready or not."""
        return sum(peer.pace.workers for peer in list(self._peers.values()) if not peer.leaving)

    @property
    def failure(self) -> ClusterError | None:
        """The unexpected error after which the head evaluates nothing more."""
        return self._failure

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received, without TLS."""
        sides = [peer.side for peer in list(self._peers.values())]
        sent, received = self._door.gone.tolist()
        return sent + sum(each.bytes_sent for each in sides), received + sum(each.bytes_received for each in sides)

    async def serve(self, listening: socket.socket, check_own: Callable[[], None] | None) -> None:
        """Start to accept nodes; ``check_own`` is called regularly to keep this machine's own node running."""
        asyncio.get_running_loop().set_exception_handler(self._connection_failed)
        self._spawn(self._tick(check_own))

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._door.serve(self, reader, writer)

        self._server = await asyncio.start_server(accept, sock=listening, backlog=4096)

    async def end(self) -> None:
        """Dismiss all nodes."""
        self._open = None
        for peer in self._peers.values():
            if self._job is not None:
                peer.send(wire.End())
        self._job = None  # whoever connects meanwhile waits for the next head
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*(peer.farewell() for peer in list(self._peers.values())))
        if self._server is not None:
            with contextlib.suppress(NotImplementedError):  # on Windows
                for each in self._server.sockets:
                    asyncio.get_running_loop().remove_reader(each.fileno())
            await asyncio.sleep(_SETTLING_SECONDS)
            self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def rows(self, generation: int, seconds: float) -> list[NodeRow]:
        """Return each node's row since the last call."""
        return [peer.row(generation, seconds) for peer in self._peers.values() if peer.standing.ready]

    # --- failures of the head itself

    def _connection_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error in asyncio's own callbacks: of a connection, or an unexpected one."""
        error = context.get("exception")
        if isinstance(error, OSError):  # such as too many open files for another connection
            self._door.refusals.log("a connection", error.strerror or str(error))
        else:
            self._fail(str(context.get("message")), error)

    def _fail(self, what: str, error: BaseException | None) -> ClusterError:
        """End the open or the next batch with an error, which is returned: the run must not wait forever."""
        logger.error("the head failed: %s", what, exc_info=error)
        reason = what if error is None else repr(error)
        self._failure = ClusterError(f"the head failed ({reason}); see train.log, resume the run")
        if self._open is not None and not self._open.future.done():
            self._open.future.set_exception(self._failure)
        return self._failure

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail("a task ended", error)

    # --- nodes that join, leave or fall silent

    def message_limit(self) -> int:
        """Return the maximum size in bytes of a node's message."""
        return _NO_JOB_LIMIT if self._job is None else self._job.message_limit

    def welcome(self, peer: Peer) -> None:
        """Add an accepted node, and send it the job."""
        self._peers[peer.number] = peer
        self._joined[peer.name] += 1
        logger.info("node %s is connected, with %s", peer.name, counted(peer.hello.workers, "worker"))
        if self._job is not None:
            peer.send(self._job.told)

    def lose(self, peer: Peer) -> None:
        """Remove a node whose connection has ended."""
        if self._peers.pop(peer.number, None) is None:
            return
        logger.info("node %s has left", peer.name)
        peer.standing.leave()
        self._hand_back(peer)
        self._hand_out()
        if self._open is not None:
            self._tell_if_alone()

    def _hand_back(self, peer: Peer) -> None:
        """Return the members that a node holds to the scheduler."""
        if self._open is not None and (lost := self._open.scheduler.leave(peer.number)):
            self._lost_at[peer.name] += lost
            logger.warning("node %s held %s: other nodes evaluate them", peer.name, counted(lost, "member"))

    def _send_away(self, peer: Peer, reason: str) -> None:
        """Refuse an accepted node."""
        self._door.refusals.log(peer.name, reason)
        peer.send(wire.Refused(reason))
        # The node closes the connection after reading this. If the head closed it immediately while the node is
        # sending, the reason could be lost.
        asyncio.get_running_loop().call_later(_FAREWELL_SECONDS, peer.leave)
        peer.standing.leave()
        self._hand_back(peer)

    async def _tick(self, check_own: Callable[[], None] | None) -> None:
        """Handle silent and late nodes while the head runs."""
        beat = 0.0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            if now - beat >= BEAT_SECONDS:
                beat = now
                if check_own is not None:
                    check_own()
                self._beat(now)
            self._let_back()
            self._hand_out()

    def _beat(self, now: float) -> None:
        """Send a beat to each node, and disconnect nodes that have been silent for too long."""
        for peer in list(self._peers.values()):
            if not peer.sending:  # a beat that waits behind a snapshot would measure no round trip
                peer.send(wire.Beat(now))
            if now - peer.heard > (SILENT_SECONDS if peer.standing.ready else _PREPARING_SECONDS):
                logger.warning("node %s has been silent for %.0f s", peer.name, now - peer.heard)
                peer.leave()

    # --- messages

    def take(self, peer: Peer, message: wire.Message) -> None:
        """Handle a message of a node."""
        if peer.side.state is State.OVER:
            return  # the node has been refused
        match message:
            case wire.Done():
                self._take_results(peer, message)
            case wire.Ready():
                self._take_ready(peer, message)
            case wire.Echo():
                # Bounded, since a node could send any time and the lengths of queues depend on it.
                peer.pace.round_trip = min(max(0.0, time.monotonic() - message.time), SILENT_SECONDS)
            case wire.Beat():
                peer.send(wire.Echo(message.time))
            case wire.Leave():
                self._take_leave(peer, message)
            case wire.Workers():
                self._take_workers(peer, message)
            case wire.Log():
                logger.log(message.level, "%s: %s", peer.name, message.text)
            case wire.Unable():
                peer.unable = message.reason
                text = f"node {peer.name} cannot take part: {message.reason}"
                logger.warning("%s", text)
                self._tell(text)

    def begin_job(self, job: OpenJob) -> None:
        """Send the job to all nodes, including those that join later."""
        self._job = job
        for peer in self._peers.values():
            peer.send(job.told)

    def _take_ready(self, peer: Peer, ready: wire.Ready) -> None:
        """Handle a node that is prepared for the job, or that reports to be out of step."""
        job = self._job
        if job is None or ready.job != job.told.job:
            return
        difference = job.difference(ready)
        if difference is not None:
            self._send_away(peer, difference)
            return
        try:
            heard = peer.standing.hear(ready)
        except ValueError as error:
            self._send_away(peer, str(error))
            return
        if heard is Heard.NOTHING:
            if self._open is not None and peer.available and peer.number not in self._open.scheduler:
                self._enter(peer, job, self._open)  # it has loaded a large snapshot
                self._hand_out()
            return
        if heard is Heard.ASTRAY:
            where = f"theta {ready.theta_hash} in generation {ready.generation}"
            logger.warning("node %s is out of step (%s)", peer.name, where)
            self._hand_back(peer)
        if peer.standing.hopeless:
            expected = "that of the head, from whose state it began"
            self._send_away(
                peer, f"its theta in generation {ready.generation} is {ready.theta_hash}, expected {expected}"
            )
            return
        if not peer.since:
            self._tell(f"node {peer.name} joins with {counted(peer.pace.workers, 'worker')}")
            peer.since = time.monotonic()
        if self._open is not None and peer.available:
            self._enter(peer, job, self._open)
            self._hand_out()

    # --- batches

    def begin(self, batch: OpenBatch) -> None:
        """Let all nodes evaluate a batch, including those that become ready meanwhile."""
        assert self._job is not None, "a job comes before its batches"
        self._open = batch
        if self._failure is not None:
            batch.future.set_exception(self._failure)
            return
        for peer in list(self._peers.values()):
            if peer.available:
                self._enter(peer, self._job, batch)
        self._hand_out()
        self._tell_if_alone()

    def _let_back(self) -> None:
        """Let nodes take part in the open batch again if their connections are no longer congested."""
        if self._open is None or self._job is None:
            return
        for peer in list(self._peers.values()):
            if peer.number not in self._open.scheduler and peer.available:
                self._enter(peer, self._job, self._open)

    def _tell_if_alone(self) -> None:
        if self._lonely and not any(peer.standing.ready for peer in self._peers.values()):
            self._tell(self._lonely)

    def _enter(self, peer: Peer, job: OpenJob, batch: OpenBatch) -> None:
        """Let a node take part in the open batch, after a snapshot if it is not in step: as soon as there is one."""
        if job.learns and peer.standing.lacks(job.place) and not self._bring_into_step(peer, job):
            return
        peer.standing.enter()
        if not peer.available:  # it takes a while to load the state, and is let back then
            return
        if batch.opened is None:  # the same for all nodes
            message = batch.opening() if job.learns else batch.vectors()
            batch.opened = message, wire.encode(message)
        peer.send(*batch.opened)
        batch.scheduler.join(peer.number, peer.pace)

    def _bring_into_step(self, peer: Peer, job: OpenJob) -> bool:
        """Send a node the state; return False if that has to be copied and packed first."""
        copy = self._copy
        if copy is None:
            copy = self._copy = StateCopy(job.state, job.state_bytes)
            if copy.pieces is None:
                self._spawn(self._let_back_after(copy))
        if copy.pieces is None:
            return False
        peer.correct(copy.place, copy.pieces)
        for record in copy.records:
            peer.send(lesson(record))
        return True

    async def _let_back_after(self, copy: StateCopy) -> None:
        """Let the nodes take part that wait for a copy of the state."""
        await copy.packed
        copy.offered = True
        self._let_back()
        self._hand_out()

    async def settled(self) -> None:
        """Wait until the state of the run, whose batch is closed, is not read any more."""
        if self._copy is not None:
            await asyncio.wait([self._copy.copied])

    async def _deliver(self, batch: OpenBatch) -> None:
        """Pass on the results of a complete batch."""
        try:
            await self.settled()
            batch.future.set_result(batch.results())
        except Exception as error:
            batch.future.set_exception(self._fail("results could not be delivered", error))

    def hand_out_soon(self) -> None:
        """Hand out once for all messages that have arrived: when the head is busy, that is cheaper than for each."""
        if not self._handing_out:
            self._handing_out = True
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        """Send the scheduler's grants and withdrawals to the nodes."""
        self._handing_out = False
        batch, job = self._open, self._job
        if batch is None or job is None:
            return
        now = time.monotonic()
        population = batch.batch.population
        for number, members in batch.scheduler.grants(now):
            ranges = wire.ranges_of(members)
            peer = self._peers[number]
            if not job.learns and batch.apart:
                peer.send(wire.Bases(batch.number, ranges, population.bases[members]))
            peer.send(wire.Grant(batch.number, ranges, *batch.scheduler.terms(number)))
        for number, members in batch.scheduler.withdrawn(now):
            self._peers[number].send(wire.Withdraw(batch.number, wire.ranges_of(members)))
        if batch.scheduler.all_granted and not batch.scheduler.more and not batch.told_granted:
            batch.told_granted = True
            self._tell_granted(batch)

    def _tell_granted(self, batch: OpenBatch) -> None:
        """Tell the nodes that nobody waits for their results but for the last ones."""
        message = wire.Granted(batch.number)
        encoded = wire.encode(message)
        for peer in self._peers.values():
            if peer.number in batch.scheduler:
                peer.send(message, encoded)

    def _take_results(self, peer: Peer, done: wire.Done) -> None:
        batch = self._open
        if batch is None or done.batch != batch.number or not peer.standing.in_step:
            return  # results of a batch that other nodes have finished
        try:
            fresh = batch.take(peer.number, done, time.monotonic())
        except ValueError as error:
            self._send_away(peer, str(error))
            return
        if done.errors:
            peer.error = done.errors[-1]
        if batch.has_evaluated(fresh):
            peer.contradicted = 0
        self._tell_contradictions(batch)
        peer.standing.returned(batch.batch.generation)
        peer.members += len(done.returns)
        peer.timesteps += int(done.lengths.sum(dtype=np.int64))
        peer.busy_seconds += done.busy
        if batch.complete:
            self.close_batch()
            self._spawn(self._deliver(batch))
        else:
            self._let_go(peer)
            self.hand_out_soon()

    def _tell_contradictions(self, batch: OpenBatch) -> None:
        """Warn of nodes whose results other nodes contradict; send away one on which member after member fails."""
        for number, other in batch.contradicted:
            broken, right = self._peers.get(number), self._peers.get(other)
            if broken is None:
                continue
            broken.contradicted += 1
            name, why = "another node" if right is None else right.name, broken.error or "its worker was killed"
            text = f"a member failed on node {broken.name} and not on {name} ({why})"
            logger.warning("%s", text, extra=repeated(f"a member failed on node {broken.name} alone"))
            if broken.contradicted == _MOST_CONTRADICTED:
                self._tell(text)
                self._send_away(broken, f"members fail on it that other nodes evaluate: {why}")
        for member, first, second in batch.disputed:
            names = [each.name for number in (first, second) if (each := self._peers.get(number)) is not None]
            text = f"nodes {' and '.join(names)} returned other results of one member"
            text += " (is the environment deterministic, and the same version on both?)"
            logger.warning("member %d: %s", member, text, extra=repeated(text))
        batch.contradicted, batch.disputed = [], []

    def _take_workers(self, peer: Peer, message: wire.Workers) -> None:
        """Handle a relay that other nodes have joined or left."""
        if self._open is not None and peer.number in self._open.scheduler:
            self._open.scheduler.resize(peer.number, message.workers, time.monotonic())
            self.hand_out_soon()
        else:
            peer.pace.resize(message.workers)

    def _take_leave(self, peer: Peer, leave: wire.Leave) -> None:
        """Grant a node that wants to leave no more members, and hand out those that it has not begun."""
        peer.leaving = True
        if self._open is not None:
            ranges, count = leave.ranges, len(self._open.batch.population)
            if leave.batch != self._open.number:
                ranges = ranges[:0]
            if len(ranges) and ranges[-1, 1] > count:  # before they are made: there may be billions
                self._send_away(peer, f"it runs member {ranges[-1, 1] - 1} of {count}")
                return
            running = wire.members_of(ranges)
            back = self._open.scheduler.retire(peer.number, running, time.monotonic())
            logger.info("node %s leaves, and hands back %s", peer.name, counted(back, "member"))
        self._let_go(peer)
        self._hand_out()

    def _let_go(self, peer: Peer) -> None:
        """Close the connection of a node that leaves, if it holds no members."""
        if not peer.leaving or peer.writer.is_closing():
            return
        if self._open is None or not self._open.scheduler.holds(peer.number):
            self._spawn(peer.farewell())

    def close_batch(self) -> None:
        """Close the batch, if one is open: nodes drop what they have of it."""
        batch, self._open = self._open, None
        if batch is None:
            return
        if self._copy is not None and self._copy.offered:
            self._copy = None
        scheduler = batch.scheduler
        self.lost += scheduler.lost
        self.rerun += scheduler.rerun
        self._duplicates += scheduler.duplicates
        for peer in self._peers.values():
            peer.send(wire.Close(batch.number))
            self._let_go(peer)

    def report(self) -> wire.Report:
        """Return the state of the head and its nodes."""
        now, batch, job = time.monotonic(), self._open, self._job
        sent, received = self.traffic
        report = {
            "head": socket.gethostname(),
            "listen": self._where,
            "job": None if job is None else job.told.job,
            "task": None if job is None else job.state.setup.config.task.title,
            "generation": None if batch is None else batch.batch.generation,
            "evaluation": None if batch is None else batch.batch.evaluation,
            "members": None if batch is None else len(batch.batch.population),
            "members_left": None if batch is None else batch.scheduler.remaining,
            "workers": self.workers,
            "left": sum(self._joined.values()) - len(self._peers),
            "lost": self.lost,
            "rerun": self.rerun,
            "duplicates": self._duplicates,
            "bytes_sent": sent,
            "bytes_received": received,
            "nodes": [
                peer.report(now) | {"reconnects": self._joined[peer.name] - 1, "lost": self._lost_at[peer.name]}
                for peer in self._peers.values()
            ],
        }
        return wire.Report(json.dumps(report))

    def teach(self, record: Generation) -> None:
        """Send the record of a generation, encoded once, to all nodes that are in step.

        Where the state after it is smaller than the record, nodes are sent that instead, with the next batch.
        """
        peers = [peer for peer in self._peers.values() if peer.standing.in_step]
        if self._copy is not None:
            self._copy.records.append(record)
        if self._job is not None and self._job.state_bytes < _MEMBER_BYTES * len(record.returns):
            self._copy = None
            for peer in peers:
                peer.standing.miss()
        elif peers:
            message = lesson(record)
            encoded = wire.encode(message)
            for peer in peers:
                peer.teach(message, encoded)

    def reload(self) -> None:
        """Send the state to all nodes with the next batch, unless they report to be in it."""
        self._copy = None
        for peer in self._peers.values():
            peer.standing.miss()
