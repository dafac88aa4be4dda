"""A node's part in one job: its pool, its noise table and, if nodes learn, a replica of the run's state.

Answers messages of the head with messages. Knows nothing of connections, which may be lost and replaced. Invariant:
results reported with the hash of a center belong to members drawn around that center.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.population import Population
from pyes.episodes.batch import Batch, Results
from pyes.errors import JournalError
from pyes.node.pool import Pool
from pyes.numerics.noise import NoiseTable
from pyes.remote import job, wire
from pyes.remote.pace import may_gather, may_wait
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


@dataclass
class _Reported:
    """Results of one batch that this node has sent to the head; ``generation`` is None for an evaluation."""

    generation: int | None
    known: NDArray[np.bool_]
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    status: NDArray[np.uint8]
    behaviours: NDArray[np.float32]

    @classmethod
    def nothing(cls, generation: int | None, members: int, behaviour_size: int) -> "_Reported":
        return cls(
            generation,
            np.zeros(members, np.bool_),
            np.empty(members),
            np.empty(members, np.int64),
            np.empty(members, np.uint8),
            np.empty((members, behaviour_size), np.float32),
        )

    def add(self, members: NDArray[np.int64], what: Results | wire.Learn) -> None:
        self.known[members] = True
        self.returns[members], self.lengths[members] = what.returns, what.lengths
        self.status[members] = 0 if what.status is None else what.status
        if what.behaviours is not None:
            self.behaviours[members] = what.behaviours


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
        self._batch = -1  # number of the open batch
        self._closed = 0.0  # monotonic time at which the last batch was closed
        self._snapshot = 0  # number of the last snapshot
        self._busy = 0.0  # worker-seconds of the open batch that have been reported to the head
        self._members, self._seconds = 0, 0.0  # totals of all batches, for the usual time of a member
        self._collected = 0.0  # monotonic time of the last results
        self._all_granted = False  # in the open batch
        self._told_errors: list[str] = []
        self._interface = Interface.of(self.config.task)
        with ExitStack() as stack:
            self._outer = stack.enter_context(ExitStack())  # closed after the pool, which reads the table
            self._pool = stack.enter_context(
                Pool(self.config.cluster, self.config.task, None if log is None else log.prepare)
            )
            self._stack = stack.pop_all()

    @classmethod
    async def make(cls, told: wire.Job, workers: int, log: Log | None = None) -> Self:
        """Return a replica that is ready; call it in the main thread of a process without other threads.

        The workers' parent is forked first: it must have no threads and no torch, and it ends with the thread that
        forked it. The rest takes seconds and runs in another thread.
        """
        replica = cls(told, workers, log)
        try:
            if log is not None:
                log.gather()
            await in_thread(replica._prepare)
        except BaseException:
            replica.close()
            raise
        return replica

    def _prepare(self) -> None:
        """Make the policy, the noise table and the initial state, and start the workers."""
        self._setup = setup = Setup.of(self.config, self._interface)
        self._table: NoiseTable = self._outer.enter_context(setup.make_table())
        self._state = RunState(setup, self._table) if self._learns else None
        self._plan = setup.plan(self.config.evaluation.episodes)
        self._reported = _Reported.nothing(None, 0, setup.interface.behaviour_size)
        self._pool.start(self._plan, self._table)
        self._digest = job.digest_of(setup)

    def ready(self) -> wire.Ready:
        """Return the message with this node's state."""
        generation, theta_hash = (0, "") if self._state is None else (self._state.generation, self._state.theta_hash)
        return wire.Ready(self.job, self._digest, self._table.fingerprint, theta_hash, generation, self._snapshot)

    @property
    def done(self) -> Any:
        """Connection that becomes readable when a worker has no more work."""
        return self._pool.done

    @property
    def busy(self) -> bool:
        """Whether members are offered or held."""
        return self._pool.remaining() > 0

    def may_gather(self, idle: bool) -> bool:
        """Return whether results may be kept back; ``idle``: a worker has no more work."""
        workers, left = self._pool.workers, self._pool.remaining()
        usual, since = self._seconds / max(1, self._members), time.monotonic() - self._collected
        if self._all_granted:
            return may_wait(left, usual, since)
        return not idle and may_gather(left - len(self._pool.running()), workers, usual, since)

    def at_rest(self) -> bool:
        """Whether no worker holds a member of a closed batch; ends workers that hold one for too long.

        Members that other nodes have returned may run for twice the usual time, in which most end by themselves, since
        starting another worker takes time, too. The node evaluates nothing until it is at rest.

        Raises
        ------
        ClusterError
            Workers cannot be replaced.
        """
        self._pool.withdraw(0, self._plan.capacity)  # members of dead workers have become free again
        held = self._pool.remaining()
        if not held:
            return True
        usual = self._seconds / max(1, self._members) * -(-held // self._pool.workers)
        if time.monotonic() - self._closed > max(_LEAST_PATIENCE, _PATIENCE * usual):
            self._pool.end_holders()
        self._pool.check()
        return False

    def drain(self) -> None:
        """Empty `done`."""
        self._pool.drain()

    def check(self) -> None:
        """Replace workers that have died.

        Raises
        ------
        ClusterError
            They cannot be replaced.
        """
        self._pool.check()

    def disconnect(self) -> None:
        """Reset what belongs to a lost connection: its batch and the number of its snapshots."""
        self.close_batch()
        self._snapshot = 0

    # --- theta

    def load(self, message: wire.Snapshot) -> wire.Ready:
        """Load a state sent by the head."""
        if self._state is not None:
            self._state.load_state_dict(packing.unpack(message.state))
        self._snapshot = message.number
        return self.ready()

    def learn(self, message: wire.Learn) -> wire.Ready | None:
        """Update theta from the record of a generation; return None, or this node's state if that fails."""
        state = self._state
        if state is None:
            return None
        members = wire.members_of(message.ranges)
        if message.generation != self._reported.generation:  # this node took no part in it, so the record is complete
            self._reported = _Reported.nothing(message.generation, len(members), self._setup.interface.behaviour_size)
        reported = self._reported
        if len(members) and members[-1] >= len(reported.known):
            return self.ready()
        reported.add(members, message)
        if message.generation != state.generation or not reported.known.all():
            return self.ready()
        record = Generation(
            generation=message.generation,
            theta_hash=message.theta_hash,
            returns=reported.returns,
            lengths=reported.lengths.astype(np.uint64),
            status=reported.status,
            observations=message.observations,
            sums=message.sums,
            behaviours=reported.behaviours.ravel() if self._setup.interface.behaviour_size else None,
            agreement=None if math.isnan(message.agreement) else message.agreement,
        )
        try:
            state.apply(record)
        except JournalError as error:
            logger.warning("%s", error)
            return self.ready()
        return None

    # --- batches

    def close_batch(self) -> None:
        """Withdraw all members that no worker has begun."""
        self._pool.withdraw(0, self._plan.capacity)
        if self._batch >= 0:
            self._batch, self._closed = -1, time.monotonic()

    def open(self, message: wire.Open) -> wire.Ready | None:
        """Open a batch that follows from the state; return None, or this node's state if it is another one.

        The node must be at rest.
        """
        state = self._state
        if state is None or (message.generation, message.theta_hash) != (state.generation, state.theta_hash):
            return self.ready()
        if message.episodes:
            self._open(message.batch, state.center_batch(message.episodes), None)
        else:
            self._open(message.batch, state.batch(), message.generation)
        self._theta_hash = message.theta_hash
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
            action_noise=message.action_noise,
        )
        self._open(message.batch, batch, None)
        self._theta_hash = message.theta_hash

    def _open(self, number: int, batch: Batch, generation: int | None) -> None:
        self._pool.collect()  # discards results of the previous batch
        self._pool.open(batch, offered=False)
        self._batch, self._busy, self._told_errors, self._all_granted = number, 0.0, [], False
        self._reported = _Reported.nothing(generation, len(batch.population), self._setup.interface.behaviour_size)

    def add_bases(self, message: wire.Bases) -> None:
        """Store the bases of members that are about to be granted."""
        if message.batch == self._batch:
            self._pool.set_bases(wire.members_of(message.ranges), message.bases)  # numbered as these members

    def grant(self, message: wire.Grant) -> None:
        """Let the workers evaluate members."""
        if message.batch == self._batch:
            for begin, end in message.ranges.tolist():
                self._pool.offer(begin, end)

    def take_time(self, message: wire.Granted) -> None:
        """Gather results for longer: no other members are left that the head could grant for them."""
        self._all_granted = self._all_granted or message.batch == self._batch

    def withdraw(self, message: wire.Withdraw) -> None:
        """Withdraw members that no worker has begun."""
        if message.batch == self._batch:
            for begin, end in message.ranges.tolist():
                self._pool.withdraw(begin, end)

    def collect(self) -> wire.Done | None:
        """Return the results since the last call, or None."""
        if self._batch < 0:
            return None
        results = self._pool.collect()
        if not len(results.members):
            return None
        self._collected = time.monotonic()
        self._reported.add(results.members, results)
        errors = [each for each in results.errors if each not in self._told_errors]
        self._told_errors += errors
        busy, self._busy = results.busy_seconds - self._busy, results.busy_seconds
        self._members, self._seconds = self._members + len(results.members), self._seconds + busy
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
        self._pool.withdraw(0, self._plan.capacity)
        running = self._pool.running() if self._batch >= 0 else np.empty(0, np.int64)
        # In this order: a member that ends between the two is in both, and counts once.
        return self.collect(), wire.Leave(max(0, self._batch), wire.ranges_of(running))

    def close(self) -> None:
        """End the workers and free the memory."""
        self._stack.close()


async def in_thread(work: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function in a thread; waits for its end even if cancelled, since only one may use a replica."""
    task = asyncio.create_task(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
