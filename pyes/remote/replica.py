"""A node's part in one job: its crew, its noise table and, if nodes learn, a replica of the run's state.

Answers messages of the head with messages. The crew evaluates members: worker processes, or the nodes of a relay
(`pyes.remote.relay`). Knows nothing of connections, which may be lost and replaced. Invariant: results reported with
the hash of a center belong to members drawn around that center.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.population import Population
from pyes.episodes.batch import Batch, Plan, Results
from pyes.errors import JournalError
from pyes.node.pool import Pool
from pyes.numerics.noise import NoiseTable
from pyes.remote import job, wire
from pyes.remote.pace import Pace, gathers_at_end, gathers_for
from pyes.run.journal import Generation
from pyes.run.logs import Log
from pyes.run.state import Interface, RunState, Setup
from pyes.system import packing
from pyes.system.lifetime import Closing

logger = logging.getLogger(__name__)

#: A worker may continue with a member of a closed batch for this multiple of a member's usual time, ...
_PATIENCE = 2.0
_LEAST_PATIENCE = 1.0  # ... and at least for these seconds

_T = TypeVar("_T")


class Crew(Protocol):
    """What evaluates a node's members; see `pyes.node.pool.Pool`, whose methods these are."""

    @property
    def workers(self) -> int:
        """Members that are evaluated at the same time."""

    def start(self, plan: Plan, table: NoiseTable) -> None:
        """Start the workers."""

    def set_bases(self, rows: NDArray[np.int64], bases: NDArray[np.float32]) -> None:
        """Write rows of the open batch's bases, before their members are offered."""

    def offer(self, begin: int, end: int) -> None:
        """Let members begin .. end-1 be evaluated."""

    def withdraw(self, begin: int, end: int) -> None:
        """Withdraw members begin .. end-1 as far as possible."""

    def end_holders(self) -> None:
        """End the evaluation of members that are held."""

    def collect(self) -> Results:
        """Return the results since the last call."""

    def remaining(self) -> int:
        """Return the number of members that are offered or held."""

    def running(self) -> NDArray[np.int64]:
        """Return the members that are held."""

    def check(self) -> None:
        """Replace what has died; raise ClusterError if that cannot be."""


class Replica(Closing):
    """A node's part in one job, made by `Replica.make`.

    Parameters
    ----------
    told : Job
        The head's description of the job.
    workers : int
        Worker processes.
    log : Log or None
        Log of this process and its workers.

    Raises
    ------
    ConfigError, TaskError
        This node cannot take part in the job.
    """

    def __init__(self, told: wire.Job, workers: int, log: Log | None) -> None:
        job.check_allowed(told.settings)
        self.job = told.job
        self.config = job.config_of(told.settings, workers)
        self._learns = told.sync == "replay"
        self.gather_seconds = 0.0  # seconds for which results are gathered at least
        self._batch = -1  # number of the open batch
        self._closed = 0.0  # monotonic time at which the last batch was closed
        self._snapshot = 0  # number of the last snapshot
        self._busy = 0.0  # worker-seconds of the open batch that have been reported to the head
        self._pace = Pace(max(1, workers))  # of this node, as it sees it
        self._collected = 0.0  # monotonic time of the last results, or of the opening of the batch
        self._refill_at = 0  # members beyond one for each worker, with which the head grants more
        self._all_granted = False  # in the open batch
        self._told_errors: list[str] = []
        self._interface = Interface.of(self.config.task)
        with ExitStack() as stack:
            self._outer = stack.enter_context(ExitStack())  # closed after the crew, which reads the table
            self._crew = self._hire(stack, log)
            self._stack = stack.pop_all()

    @classmethod
    async def make(cls, told: wire.Job, workers: int, log: Log | None = None) -> Self:
        """Return a replica that is ready; call it in the main thread of a process without other threads.

        The workers' parent is forked first: it must have no threads, but for those that the modules of an environment
        start, and no torch, and it ends with the thread that forked it. The rest takes seconds and runs in another
        thread.
        """
        replica = cls(told, workers, log)
        await replica._make(log)
        return replica

    async def _make(self, log: Log | None) -> None:
        try:
            if log is not None:
                log.gather()
            await in_thread(self._prepare)
        except BaseException:
            self.close()
            raise

    def _hire(self, stack: ExitStack, log: Log | None) -> Crew:
        """Return the crew, which ``stack`` closes."""
        self._pool = Pool(self.config.cluster, self.config.task, None if log is None else log.prepare)
        return stack.enter_context(self._pool)

    def _prepare(self) -> None:
        """Make the policy, the noise table and the initial state, and start the workers."""
        self._setup = setup = Setup.of(self.config, self._interface)
        self._table: NoiseTable = self._outer.enter_context(setup.make_table())
        self._state = RunState(setup, self._table) if self._learns else None
        self._plan = setup.plan(self.config.evaluation.episodes)
        self._digest, self._versions = job.digest_of(setup), setup.versions()
        self._crew.start(self._plan, self._table)

    def ready(self) -> wire.Ready:
        """Return the message with this node's state."""
        generation, theta_hash = (0, "") if self._state is None else (self._state.generation, self._state.theta_hash)
        table = self._table.fingerprint
        return wire.Ready(self.job, self._digest, table, theta_hash, generation, self._snapshot, self._versions)

    @property
    def workers(self) -> int:
        """Workers of the crew; 0: there is none at the moment."""
        return self._crew.workers

    def watch(self, stir: Callable[[], None]) -> None:
        """Call ``stir`` in the running loop when a worker has no more work, until `unwatch`."""

        def stirred() -> None:
            self._pool.drain()
            stir()

        asyncio.get_running_loop().add_reader(self._pool.done.fileno(), stirred)

    def unwatch(self) -> None:
        """End `watch`."""
        asyncio.get_running_loop().remove_reader(self._pool.done.fileno())

    @property
    def busy(self) -> bool:
        """Whether members are offered or held."""
        return self._crew.remaining() > 0

    def gathers_for(self, idle: bool) -> float:
        """Return the seconds for which results may be kept back; ``idle``: a worker has no more work."""
        workers, left = self._crew.workers, self._crew.remaining()
        if not workers:
            return 0.0
        usual, since = self._usual, time.monotonic() - self._collected
        if self._all_granted:
            return gathers_at_end(left, workers, usual, since)
        return 0.0 if idle else gathers_for(left - workers, self._refill_at, workers, usual, since)

    @property
    def _usual(self) -> float:
        """Usual seconds of a member; 0 before the first result."""
        return self._pace.seconds_per_member or 0.0

    def at_rest(self) -> bool:
        """Whether no worker holds a member of a closed batch; ends workers that hold one for too long.

        Members that other nodes have returned may run for twice the usual time, in which most end by themselves, since
        starting another worker takes time, too. The node evaluates nothing until it is at rest.

        Raises
        ------
        ClusterError
            Workers cannot be replaced.
        """
        self._crew.withdraw(0, self._plan.capacity)  # members of dead workers have become free again
        held = self._crew.remaining()
        if not held:
            return True
        usual = self._usual * -(-held // self._crew.workers)
        if time.monotonic() - self._closed > max(_LEAST_PATIENCE, _PATIENCE * usual):
            self._crew.end_holders()
        self._crew.check()
        return False

    def check(self) -> None:
        """Replace workers that have died.

        Raises
        ------
        ClusterError
            They cannot be replaced.
        """
        self._crew.check()

    def disconnect(self) -> None:
        """Reset what belongs to a lost connection: its batch and the number of its snapshots."""
        self.close_batch()
        self._snapshot = 0

    # --- theta

    async def load(self, message: wire.Snapshot) -> wire.Ready:
        """Load a state sent by the head."""
        return await in_thread(self._load, message)

    def _load(self, message: wire.Snapshot) -> wire.Ready:
        if self._state is not None:
            assert isinstance(message.state, bytes), "in pieces at the head alone"
            self._state.load_state_dict(packing.unpack(message.state))
        self._snapshot = message.number
        return self.ready()

    async def learn(self, message: wire.Learn) -> wire.Ready | None:
        """Update theta from the record of a generation; return None, or this node's state if that fails."""
        if self._state is None:
            return None
        if message.generation != self._state.generation:
            return self.ready()
        record = _record_of(message)
        await self._pass_on(record)
        return await in_thread(self._apply, record)

    async def _pass_on(self, record: Generation) -> None:
        """Send the record of a generation to others: what a relay does."""

    def _apply(self, record: Generation) -> wire.Ready | None:
        assert self._state is not None
        try:
            self._state.apply(record)
        except JournalError as error:
            logger.warning("%s", error)
            return self.ready()
        return None

    # --- batches

    def close_batch(self) -> None:
        """Withdraw all members that no worker has begun."""
        self._crew.withdraw(0, self._plan.capacity)
        if self._batch >= 0:
            self._batch, self._closed = -1, time.monotonic()

    async def open(self, message: wire.Open) -> wire.Ready | None:
        """Open a batch that follows from the state; return None, or this node's state if it is another one.

        The node must be at rest.
        """
        state = self._state
        if state is None or (message.generation, message.theta_hash) != (state.generation, state.theta_hash):
            return self.ready()
        if message.episodes:
            batch = await in_thread(state.center_batch, message.episodes)
        else:
            batch = await in_thread(state.batch)
        self._open(message, batch)
        return None

    def open_vectors(self, message: wire.Vectors) -> None:
        """Open a batch that was sent completely, except for bases that are sent with the grants."""
        population = Population(
            message.generation, message.bases, message.rows, message.offsets, message.scales, message.deviation
        )
        batch = Batch(
            population,
            seeds=message.seeds,
            limit=message.limit,
            mean=message.mean,
            inverse_std=message.inverse_std,
            statistics_stride=message.statistics_stride,
            evaluation=message.evaluation,
            reward_min=message.reward_min,
        )
        self._open(message, batch)

    def _open(self, message: wire.Open | wire.Vectors, batch: Batch) -> None:
        self._begin(message, batch)
        self._batch, self._theta_hash = message.batch, message.theta_hash
        self._collected = time.monotonic()
        self._busy, self._told_errors, self._all_granted = 0.0, [], False

    def _begin(self, message: wire.Open | wire.Vectors, batch: Batch) -> None:
        """Open a batch for the crew, of which nothing is offered yet."""
        self._pool.collect()  # discards results of the previous batch
        self._pool.open(batch, offered=False)

    def add_bases(self, message: wire.Bases) -> None:
        """Store the bases of members that are about to be granted."""
        if message.batch == self._batch:
            self._crew.set_bases(wire.members_of(message.ranges), message.bases)  # numbered as these members

    def grant(self, message: wire.Grant) -> None:
        """Let the workers evaluate members."""
        if message.batch == self._batch:
            self._refill_at, self.gather_seconds = message.refill_at, message.gather
            for begin, end in message.ranges.tolist():
                self._crew.offer(begin, end)

    def take_time(self, message: wire.Granted) -> None:
        """Gather results for longer: no other members are left that the head could grant for them."""
        self._all_granted = self._all_granted or message.batch == self._batch

    def withdraw(self, message: wire.Withdraw) -> None:
        """Withdraw members that no worker has begun."""
        if message.batch == self._batch:
            for begin, end in message.ranges.tolist():
                self._crew.withdraw(begin, end)

    def collect(self) -> wire.Done | None:
        """Return the results since the last call, or None."""
        if self._batch < 0:
            return None
        results = self._crew.collect()
        if not len(results.members):
            return None
        self._collected = time.monotonic()
        errors = [each for each in results.errors if each not in self._told_errors]
        self._told_errors += errors
        busy, self._busy = results.busy_seconds - self._busy, results.busy_seconds
        self._pace.record(busy, len(results.members))
        return wire.Done(
            batch=self._batch,
            theta_hash=self._theta_hash,
            ranges=wire.ranges_of(results.members),
            returns=results.returns,
            lengths=results.lengths.astype(np.min_scalar_type(int(results.lengths.max()))),
            status=results.status if results.status.any() else None,
            sums=results.sums if len(results.sums) else None,
            behaviours=results.behaviours if self._setup.interface.behaviour_size else None,
            halves=results.halves if self._plan.halves else None,
            busy=busy,
            errors=errors,
        )

    def retire(self) -> tuple[wire.Done | None, wire.Leave]:
        """Withdraw the members that no worker has begun; return the results so far, and the message for the rest."""
        self._crew.withdraw(0, self._plan.capacity)
        running = self._crew.running() if self._batch >= 0 else np.empty(0, np.int64)
        # In this order: a member that ends between the two is in both, and counts once.
        return self.collect(), wire.Leave(max(0, self._batch), wire.ranges_of(running))

    def close(self) -> None:
        """End the workers and free the memory."""
        self._stack.close()


def _record_of(message: wire.Learn) -> Generation:
    """Return the record of a generation from its message."""
    return Generation(
        generation=message.generation,
        theta_hash=message.theta_hash,
        returns=message.returns,
        lengths=message.lengths,
        status=np.zeros(len(message.returns), np.uint8) if message.status is None else message.status,
        observations=message.observations,
        sums=message.sums,
        behaviours=None if message.behaviours is None else message.behaviours.ravel(),
        agreement=None if math.isnan(message.agreement) else message.agreement,
    )


async def in_thread(work: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function in a thread; waits for its end even if cancelled, since only one may use a replica."""
    task = asyncio.create_task(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
