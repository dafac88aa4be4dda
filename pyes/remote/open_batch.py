"""A batch at the head while nodes evaluate it: its scheduler and the results so far."""

from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.episodes.batch import Batch, Plan, Results, Status
from pyes.remote import wire
from pyes.remote.scheduler import Scheduler

_NO_MEMBERS = np.empty(0, np.int64)
_MOST_TIMESTEPS = 2**48  # of a member, whatever the limit of its task: the sum over all members is to be a number


class OpenBatch:
    """A batch and its results so far.

    Parameters
    ----------
    number : int
        Number of the batch.
    batch : Batch
    theta_hash : str
        Hash of the center around which the members are drawn.
    plan : Plan
        Plan of the job.
    offered : bool
        Whether all members are to be evaluated; see `Scheduler`.

    Attributes
    ----------
    apart : bool
        Whether each member has its own base, which is sent with its grant.
    contradicted : list of (int, int)
        Nodes on which a member has failed, and the nodes that have evaluated it; emptied by who reads it.
    disputed : list of (int, int, int)
        Members of which two nodes have returned other results, and these nodes, the one that counts first; likewise.
    """

    def __init__(self, number: int, batch: Batch, theta_hash: str, plan: Plan, *, offered: bool = True) -> None:
        count, stride = len(batch.population), batch.statistics_stride
        self.number, self.batch, self.theta_hash = number, batch, theta_hash
        rows = batch.population.rows
        self.apart = len(batch.population.bases) == count > 1 and bool((rows == np.arange(count)).all())
        self.scheduler = Scheduler(count, offered=offered)
        self.future: Future[Results] = Future()
        self.opened: tuple[wire.Message, bytes] | None = None  # what opens it on a node, and that encoded
        self.told_granted = False  # whether nodes know that all members are granted
        self._returns = np.empty(count)
        self._lengths = np.empty(count, np.int64)
        self._status = np.empty(count, np.uint8)
        self._sums = np.empty((-(-count // stride) if stride else 0, 2, plan.observation_size))
        self._behaviours = np.empty((count, plan.behaviour_size), np.float32)
        self._halves = np.empty((count, 2 if plan.halves else 0))
        self._nodes = np.full(count, -1)  # whose result it is
        self._failed_on: dict[int, int] = {}  # members that were given to another node, by the node before
        self.contradicted: list[tuple[int, int]] = []
        self.disputed: list[tuple[int, int, int]] = []
        self._busy = 0.0
        self._errors: list[str] = []

    @property
    def complete(self) -> bool:
        """Whether it has all results."""
        return self.scheduler.complete

    def opening(self) -> wire.Open:
        """Return the message that opens the batch on a node that draws the members itself."""
        members = self.batch
        episodes = len(members.population) if members.evaluation else 0
        return wire.Open(self.number, members.generation, episodes, self.theta_hash)

    def vectors(self) -> wire.Vectors:
        """Return the message that opens the batch on a node that is sent the members; grants bring bases if `apart`."""
        members, population = self.batch, self.batch.population
        return wire.Vectors(
            batch=self.number,
            generation=members.generation,
            theta_hash=self.theta_hash,
            bases=population.bases[:0] if self.apart else population.bases,
            rows=population.rows,
            offsets=population.offsets,
            scales=population.scales,
            deviation=population.deviation,
            seeds=members.seeds,
            limit=members.limit,
            mean=members.mean,
            inverse_std=members.inverse_std,
            statistics_stride=members.statistics_stride,
            evaluation=members.evaluation,
            reward_min=members.reward_min,
        )

    def take(self, node: int, done: wire.Done, now: float) -> NDArray[np.int64]:
        """Store a node's results; return the members that had none yet.

        Raises
        ------
        ValueError
            They do not match what the node was asked for.
        """
        if done.theta_hash != self.theta_hash:
            raise ValueError(f"its theta is {done.theta_hash}, expected {self.theta_hash}")
        if len(done.ranges) and done.ranges[-1, 1] > len(self._returns):
            raise ValueError(f"it returned member {done.ranges[-1, 1] - 1} of {len(self._returns)}")
        members = wire.members_of(done.ranges)
        stride = self.batch.statistics_stride
        summed = np.flatnonzero(members % stride == 0) if stride else _NO_MEMBERS
        expected = (len(summed), *self._sums.shape[1:])
        sums = np.empty((0, *expected[1:])) if done.sums is None else done.sums
        if sums.shape != expected:
            raise ValueError(f"its sums have shape {sums.shape}, expected {expected}")
        behaviours = _rows_of("behaviours", done.behaviours, members, self._behaviours)
        halves = _rows_of("halves", done.halves, members, self._halves)
        failed = np.zeros(len(members), np.bool_) if done.status is None else done.status != Status.OK
        self._check(done, failed)
        new = self.scheduler.done(node, members, now, failed)
        self._compare(node, members, failed, new, done)
        fresh = members[new]
        self._nodes[fresh] = node
        self._returns[fresh], self._lengths[fresh] = done.returns[new], done.lengths[new]
        self._status[fresh] = 0 if done.status is None else done.status[new]
        if behaviours.size:
            self._behaviours[fresh] = behaviours[new]
        if halves.size:
            self._halves[fresh] = halves[new]
        if len(summed):
            kept = new[summed]
            self._sums[members[summed[kept]] // stride] = sums[kept]
        self._busy += done.busy
        self._errors += done.errors
        return fresh

    def _check(self, done: wire.Done, failed: NDArray[np.bool_]) -> None:
        """Raise ValueError for numbers that no episodes can have."""
        if not np.isfinite(done.returns[~failed]).all():
            raise ValueError("it returned a member that has not failed, with a return that is not finite")
        most, longest = self.batch.limit * self.batch.seeds.shape[1], int(done.lengths.max(initial=0))
        most = min(most, _MOST_TIMESTEPS)
        if longest > most:
            raise ValueError(f"it returned a member with {longest} timesteps, expected at most {most}")

    def _compare(
        self,
        node: int,
        members: NDArray[np.int64],
        failed: NDArray[np.bool_],
        new: NDArray[np.bool_],
        done: wire.Done,
    ) -> None:
        """Note where results contradict those of another node."""
        if self._failed_on:
            other = [self._failed_on.pop(member, node) for member in members[new].tolist()]
            pairs = zip(other, failed[new].tolist(), strict=True)
            self.contradicted += [(each, node) for each, again in pairs if each != node and not again]
        if new.all():
            return
        known = ~new & (self._nodes[members] >= 0)
        self._failed_on |= dict.fromkeys(members[~new & ~known & failed].tolist(), node)
        known &= ~failed & (self._nodes[members] != node)
        for place in np.flatnonzero(known).tolist():
            member = int(members[place])
            same = self._returns[member] == done.returns[place] and self._lengths[member] == done.lengths[place]
            if self._status[member] == Status.OK and not same:
                self.disputed.append((member, int(self._nodes[member]), node))

    def has_evaluated(self, members: NDArray[np.int64]) -> bool:
        """Return whether any of the members, which have results, has not failed."""
        return bool((self._status[members] == Status.OK).any())

    def results(self) -> Results:
        """Return the results of a complete batch."""
        return self.results_of(np.arange(len(self._returns)))

    def results_of(self, members: NDArray[np.int64]) -> Results:
        """Return the results of some members, int64 (n,) in ascending order, which have been returned."""
        stride = self.batch.statistics_stride
        summed = members[members % stride == 0] if stride else _NO_MEMBERS
        return Results(
            members=members,
            returns=self._returns[members],
            lengths=self._lengths[members],
            status=self._status[members],
            sums=self._sums[summed // max(1, stride)],
            sum_lengths=np.where(self._status[summed] == Status.OK, self._lengths[summed], 0),
            behaviours=self._behaviours[members],
            halves=self._halves[members],
            busy_seconds=self._busy,
            errors=self._errors,
        )


def _rows_of(name: str, got: NDArray[Any] | None, members: NDArray[np.int64], kept: NDArray[Any]) -> NDArray[Any]:
    """Return a node's rows for some members; ValueError if their shape does not fit ``kept``."""
    rows = np.empty((len(members), 0)) if got is None else got
    expected = (len(members), kept.shape[1])
    if rows.shape != expected:
        raise ValueError(f"its {name} have shape {rows.shape}, expected {expected}")
    return rows
