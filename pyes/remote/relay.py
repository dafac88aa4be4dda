"""A relay: a head to its nodes, and one node, with the workers of all of them, to its own head.

It has a replica of the run, as each node has, whose members its nodes evaluate: what is granted to it, it grants to
them, and what they return it passes on, gathered. Invariant: it decides nothing about a run; a relay that ends costs
what its nodes had not returned, which other nodes then evaluate.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pyes.episodes.batch import Batch, Plan, Results
from pyes.numerics.noise import NoiseTable
from pyes.remote import wire
from pyes.remote.door import Door
from pyes.remote.head import Head
from pyes.remote.job import OpenJob
from pyes.remote.open_batch import OpenBatch
from pyes.remote.replica import Crew, Replica, in_thread
from pyes.remote.session import Session, Wire
from pyes.run.journal import Generation
from pyes.run.logs import Log
from pyes.run.state import RunState
from pyes.system.addresses import Address

_NO_MEMBERS = np.empty(0, np.int64)
_LOOK_SECONDS = 0.2  # interval of checks for nodes while there is none


class _Share(OpenBatch):
    """The members of a batch that have been granted to this relay, and their results."""

    def __init__(self, number: int, batch: Batch, theta_hash: str, plan: Plan, stir: Callable[[], None]) -> None:
        super().__init__(number, batch, theta_hash, plan, offered=False)
        self._stir = stir  # called when nothing is left to evaluate
        self._fresh: list[NDArray[np.int64]] = []  # members whose results have not been collected
        self._errors_collected = 0

    @property
    def complete(self) -> bool:
        """Whether it has all results: only the head knows."""
        return False

    def take(self, node: int, done: wire.Done, now: float) -> NDArray[np.int64]:
        """Store a node's results; see `OpenBatch.take`."""
        fresh = super().take(node, done, now)
        self._fresh.append(fresh)
        if not self.scheduler.remaining:
            self._stir()
        return fresh

    def collect(self) -> Results:
        """Return the results since the last call."""
        members = np.sort(np.concatenate([_NO_MEMBERS, *self._fresh]))
        self._fresh = []
        results = self.results_of(members)
        new, self._errors_collected = results.errors[self._errors_collected :], len(results.errors)
        return replace(results, errors=list(dict.fromkeys(new)))


class _Nodes:
    """The nodes of a relay as the crew of its replica."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._share: _Share | None = None
        self._shares = 0
        self._stir: Callable[[], None] = lambda: None

    @property
    def workers(self) -> int:
        """Workers of the nodes that are ready."""
        return self._head.workers

    def start(self, plan: Plan, table: NoiseTable) -> None:
        """Do nothing: nodes start by themselves."""

    def watch(self, stir: Callable[[], None]) -> None:
        """Call ``stir`` when all members have been returned."""
        self._stir = stir

    def open(self, batch: Batch, theta_hash: str, plan: Plan) -> None:
        """Open a batch on all nodes."""
        # Not the head's number: it opens a batch again after a reconnect, while results from before are on their way.
        self._shares += 1
        self._share = _Share(self._shares, batch, theta_hash, plan, self._stir)
        self._head.begin(self._share)

    def close_batch(self) -> None:
        """Close the batch on all nodes."""
        self._share = None
        self._head.close_batch()

    def set_bases(self, rows: NDArray[np.int64], bases: NDArray[np.float32]) -> None:
        """Store rows of the open batch's bases before their members are offered."""
        if self._share is not None:
            self._share.batch.population.bases[rows] = bases

    def offer(self, begin: int, end: int) -> None:
        """Let the nodes evaluate members begin .. end-1 of the open batch."""
        if self._share is not None:
            self._share.scheduler.offer(np.arange(begin, end))
            self._head.hand_out_soon()

    def withdraw(self, begin: int, end: int) -> None:
        """Do without members begin .. end-1."""
        if self._share is not None:
            self._share.scheduler.revoke(np.arange(begin, min(end, len(self._share.batch.population))))
            self._head.hand_out_soon()

    def withdraw_free(self) -> None:
        """Do without the members that no node holds."""
        if self._share is not None:
            self._share.scheduler.revoke(self._share.scheduler.free)

    def add_no_more(self) -> None:
        """Tell the nodes, as soon as all members are granted, that nobody waits for all results but the last."""
        if self._share is not None:
            self._share.scheduler.more = False
            self._head.hand_out_soon()

    def end_holders(self) -> None:
        """Do nothing: nodes end the members of a closed batch themselves."""

    def collect(self) -> Results:
        """Return the results since the last call; of a batch that is open."""
        assert self._share is not None
        return self._share.collect()

    def remaining(self) -> int:
        """Return the number of members without a result."""
        return 0 if self._share is None else self._share.scheduler.remaining

    def running(self) -> NDArray[np.int64]:
        """Return the members that nodes hold."""
        return _NO_MEMBERS if self._share is None else self._share.scheduler.held

    def check(self) -> None:
        """Raise ClusterError after an unexpected error in what talks with the nodes."""
        if self._head.failure is not None:
            raise self._head.failure


class Relay(Replica):
    """A relay's part in one job, made by `Relay.over`.

    Parameters
    ----------
    told : Job
        The head's description of the job, which is also what the nodes are told.
    head : Head
        Talks with the nodes.
    log : Log or None
        Log of this process.
    """

    def __init__(self, told: wire.Job, head: Head, log: Log | None) -> None:
        self._told, self._head, self._nodes = told, head, _Nodes(head)
        super().__init__(told, max(1, head.expected), log)

    @classmethod
    async def over(cls, told: wire.Job, head: Head, log: Log | None) -> Self:
        """Return a relay whose nodes have been sent the job."""
        relay = cls(told, head, log)
        await relay._make(log)
        state = relay._state
        if state is None:
            state = await in_thread(RunState, relay._setup, relay._table)
        head.begin_job(OpenJob(told, state, relay._plan, relay._digest, relay._table.fingerprint))
        return relay

    def _hire(self, stack: ExitStack, log: Log | None) -> Crew:
        return self._nodes

    def watch(self, stir: Callable[[], None]) -> None:
        """Call ``stir`` when the nodes have no more work."""
        self._nodes.watch(stir)

    def unwatch(self) -> None:
        """End `watch`."""
        self._nodes.watch(lambda: None)

    async def load(self, message: wire.Snapshot) -> wire.Ready:
        """Load a state sent by the head, and send it to the nodes with the next batch."""
        self.close_batch()  # nodes must not be sent a state that changes
        await self._head.settled()
        self._head.reload()
        return await super().load(message)

    async def _pass_on(self, record: Generation) -> None:
        self.close_batch()  # as above: its end may have been lost with a connection
        await self._head.settled()
        self._head.teach(record)

    def _begin(self, message: wire.Open | wire.Vectors, batch: Batch) -> None:
        if not len(batch.population.bases):  # each member's own comes with its grant
            bases = np.zeros((len(batch.population), self._plan.dim), np.float32)
            batch = replace(batch, population=replace(batch.population, bases=bases))
        self._nodes.open(batch, message.theta_hash, self._plan)

    def close_batch(self) -> None:
        """Let the nodes drop the batch."""
        self._nodes.close_batch()
        super().close_batch()

    def take_time(self, message: wire.Granted) -> None:
        """Gather results for longer, and let the nodes."""
        super().take_time(message)
        if message.batch == self._batch:
            self._nodes.add_no_more()

    def retire(self) -> tuple[wire.Done | None, wire.Leave]:
        """Hand back the members that no node holds; return the results so far, and the message for the rest."""
        self._nodes.withdraw_free()
        return self.collect(), wire.Leave(max(0, self._batch), wire.ranges_of(self._nodes.running()))


class RelaySession(Session):
    """A relay's part in one job of its head.

    Parameters
    ----------
    address : Address
        Address of the head.
    key : str or None
        The nodes' key file of the head.
    listening : socket
        Where nodes connect.
    door : Door
        Accepts nodes, by a key of the relay's own.
    log : Log or None
        Log of this process.
    say : callable
        Shows the user a line.
    met : bool
        A head at this address has accepted this relay in an earlier job.
    """

    def __init__(
        self,
        address: Address,
        key: str | None,
        listening: socket.socket,
        door: Door,
        log: Log | None,
        say: Callable[[str], None],
        met: bool = False,
    ) -> None:
        super().__init__(address, key, 0, log, say, met)
        self._listening = listening
        where = Address(*listening.getsockname()[:2])
        self._head = Head(door, str(where), say, "no node is ready")
        self._told = 0  # workers that the head was told
        self._has_job = False  # whether the head has sent its job over this connection
        self._ready_withheld = False  # whether the head waits for the first node to be ready

    async def run(self) -> None:
        """Take part in one job; see `Session.run`."""
        try:
            await self._head.serve(self._listening, None)
            await super().run()
        finally:
            await self._head.end()

    @property
    def workers(self) -> int:
        """Workers of the nodes: of the ready ones or, if none is, of all."""
        return self._head.workers or self._head.expected

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the head as soon as there is a node."""
        if not self.workers:
            self._say("waiting for nodes")
        while not self.workers:
            await asyncio.sleep(_LOOK_SECONDS)
        return await super()._connect()

    def _hello(self) -> wire.Hello:
        hello = replace(super()._hello(), relay=True)
        self._told = hello.workers
        self._has_job = self._ready_withheld = False
        return hello

    async def _make(self, message: wire.Job) -> Replica:
        return await Relay.over(message, self._head, self._log)

    async def _join(self, message: wire.Job) -> wire.Message | None:
        answer = await super()._join(message)
        self._has_job = True
        self._ready_withheld = isinstance(answer, wire.Ready) and not self._head.workers
        return None if self._ready_withheld else answer

    def _look_after(self, replica: Replica, send: Wire) -> None:
        """Tell the head when there are more or fewer workers; leave it when there are none."""
        super()._look_after(replica, send)
        workers = self._head.workers
        if self._parting or not self._has_job:  # nodes prepare while the head does
            return
        if not workers:
            if not (self._ready_withheld and self._head.expected):
                self._part(replica, send, "leaving the head until there is a node")
            return
        if workers != self._told:
            send(wire.Workers(workers))
            self._told = workers
        if self._ready_withheld:
            self._ready_withheld = False
            send(replica.ready())
