"""The speed of a node and the number of members that it should hold: across batches (`Pace`), in one (`Load`).

Does no input or output and has no clock: times, in seconds of any monotonic clock, are passed in, and equal calls give
equal results.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Seconds for which each of a few nodes gathers results, and each of many; between, these for each node.
_FEW_GATHER, _MANY_GATHER, _GATHER_A_NODE = 0.005, 0.04, 0.04 / 64.0
_DELAY_SHARE = 0.04  # of a member's time, ...
_LINK_SHARE = 0.25  # ... and of a round trip: a result that is later by that delays nothing much
_MOST_GATHER = 1.0  # seconds for which a node gathers while its queue is long enough
_WAIT_SHARE = 0.25  # of a member's time, at the end of a batch
_HANDLING = 0.01  # seconds from a message with results to the head's answer, without the round trip
#: Additional work in a refill, so that there are few messages: a share of a member's time, in seconds from .. to.
_CHUNK_SHARE, _LEAST_CHUNK, _MOST_CHUNK = 1.5, 0.1, 3.0
_LEAST_SECONDS = 1e-7  # smallest time of a member in calculations
_MEMORY_SECONDS = 0.2  # of each worker: the shortest time over which its pace is averaged
_MOST_FAILURES = 8  # members in a row
_TRUSTED = 4  # results after which only a node's own speed counts


class Queue(NamedTuple):
    """Members that a node should hold in addition to those that its workers run."""

    needed: int  # with no more, the node is refilled
    refill: int  # additional members of a refill
    bridge: int  # members that its workers finish until the head has answered; kept even at the end of a batch


def least_gather(nodes: int) -> float:
    """Return the seconds for which each of so many nodes gathers results at least.

    The end of a batch is as uneven as the head's knowledge of it is old; and there is a limit to the messages that a
    head can read in a second.
    """
    return min(max(_FEW_GATHER, _GATHER_A_NODE * nodes), _MANY_GATHER)


def gathers_for(waiting: int, refill_at: int, workers: int, seconds: float, since: float) -> float:
    """Return for how long a node may still gather results, since nobody waits for them; 0: send them.

    Parameters
    ----------
    waiting : int
        Members in its queue.
    refill_at : int
        The length of the queue with which it gets more.
    workers : int
    seconds : float
        Usual time of a member; 0 if it is unknown.
    since : float
        Seconds since it has sent results, or the batch was opened.
    """
    return max(0.0, min((waiting - refill_at) * seconds / workers, _MOST_GATHER - since))


def gathers_at_end(left: int, workers: int, seconds: float, since: float) -> float:
    """Return for how long a node may still gather results when all members have been granted.

    Parameters
    ----------
    left : int
        Members that it holds; with the last one it sends at once, for the batch may wait for it.
    workers : int
    seconds, since : float
        As for `gathers_for`.
    """
    if not left:
        return 0.0
    return max(0.0, min(_WAIT_SHARE * seconds * max(1.0, left / workers), _MOST_GATHER) - since)


class Pace:
    """The speed of one node across batches.

    Parameters
    ----------
    workers : int
        Members that it evaluates at the same time.
    relay : bool
        Whether it hands members on to nodes of its own, which have queues themselves.

    Attributes
    ----------
    round_trip : float
        Seconds for a message to the node and its answer.
    least_gather : float
        Seconds for which nodes gather results at least.
    seconds_per_member : float or None
        Smoothed seconds of one worker for a member; None before the first result.
    passed_over : bool
        The node recently got no members, since others would have finished them sooner.
    on_trial : bool
        The node was passed over and now gets one member, to measure whether it is still slow.
    failures : int
        Members that failed since the last one that did not.
    proven : bool
        Whether members are evaluated there: one was, and no more than one has failed since.
    """

    def __init__(self, workers: int, *, relay: bool = False) -> None:
        self.resize(workers)
        self.relay = relay
        self.round_trip = 0.0
        self.least_gather = _MANY_GATHER
        self.seconds_per_member: float | None = None
        self.passed_over = False
        self.on_trial = False
        self.failures = 0
        self.proven = False
        self._seconds = 0.0
        self._members = 0.0

    def resize(self, workers: int) -> None:
        """Set the number of workers; the time of a member stays."""
        self.workers = workers
        self._memory = 4.0 * workers + 16.0  # members

    @property
    def suspended(self) -> bool:
        """Whether so many members have failed that it gets none while other nodes have not failed so many."""
        return self.failures >= max(_MOST_FAILURES, 2 * self.workers)

    def judge(self, evaluated: int, failed: int) -> None:
        """Note how many members the node has evaluated, and how many failed, in one message."""
        self.failures = 0 if evaluated else self.failures + failed
        self.proven = bool(evaluated) or (self.proven and self.failures < 2)

    @property
    def gather_seconds(self) -> float:
        """Seconds for which the node gathers results at least."""
        delay = max(_DELAY_SHARE * (self.seconds_per_member or 0.0), _LINK_SHARE * self.round_trip)
        return max(self.least_gather, min(delay, _MANY_GATHER))

    @property
    def bridge(self) -> float:
        """Seconds from a member's end until the head's answer has arrived."""
        return self.round_trip + self.gather_seconds + _HANDLING

    def record(self, worker_seconds: float, members: int, drained: bool = False) -> None:
        """Add the time that a node's workers have spent and the members that they have returned.

        The average is over the last few members of each worker, or over its last 0.2 s if that is more. The latter does
        not hold for a node that has run out of members, since it includes time spent waiting.
        """
        keep = self._memory / (self._memory + members)
        if not drained:
            least = _MEMORY_SECONDS * self.workers
            keep = max(keep, least / (least + worker_seconds))
        self._seconds = (self._seconds + worker_seconds) * keep
        self._members = (self._members + members) * keep
        if self._members:
            self.seconds_per_member = max(self._seconds / self._members, _LEAST_SECONDS)
        self.on_trial = self.on_trial and members == 0

    @property
    def least_seconds(self) -> float:
        """Seconds that a member takes at least, since each worker was busy so long without a result; 0 after one."""
        return 0.0 if self._members else self._seconds / self.workers

    def estimate(self, typical: float) -> float:
        """Return the seconds of a member; with few results, averaged with the ``typical`` ones of all nodes."""
        if self.seconds_per_member is None:
            return max(typical, self.least_seconds)
        trust = min(1.0, self._members / min(self.workers, _TRUSTED))
        return typical + trust * (self.seconds_per_member - typical)

    def reconsider(self) -> None:
        """Assume that a node that was passed over is twice as fast as measured, so that it is tried again.

        Nor do as many failures count any more: what it lacked may be there again.
        """
        self.failures //= 2
        if not self.passed_over:
            return
        self.passed_over, self.on_trial = False, True
        if self.seconds_per_member is None:
            self._seconds /= 2.0
            return
        self.seconds_per_member /= 2.0
        self._members = min(self._members, float(_TRUSTED))  # so that the next results count for more
        self._seconds = self._members * self.seconds_per_member

    def queue(self, seconds: float) -> Queue:
        """Return the queue that the node should have if a member takes ``seconds``."""
        if self.seconds_per_member is None:
            return Queue(max(1, self.workers // 4), 0, 0)
        bridged = self.workers * self.bridge / seconds
        # The ends of members resemble a Poisson process: mean plus two standard deviations.
        needed = math.ceil(bridged + 2.0 * math.sqrt(bridged))
        chunk = min(max(_CHUNK_SHARE * seconds, _LEAST_CHUNK), _MOST_CHUNK)
        refill = max(self.workers // 4, int(self.workers * chunk / seconds))
        return Queue(needed + refill * self.relay, refill, int(bridged))


class Load:
    """The members that a node holds in one batch.

    Attributes
    ----------
    held : int
        Members granted and not returned, including those that other nodes have returned.
    grants : list of int64 (n,)
        Members granted, among them all that it holds.
    refill_at : int
        Members in its queue with which it gets more.
    retired : bool
        The node is about to leave, and gets no more members.
    """

    def __init__(self, name: int, index: int, pace: Pace) -> None:
        self.name, self.index, self.pace = name, index, pace
        self.held = 0
        self.grants: list[NDArray[np.int64]] = []
        self.refill_at = 0
        self.retired = False
        self._heard = 0.0  # when it last returned a result, or could have begun to
        self._counted = 0.0  # time up to which its workers' time is in `_unrecorded`
        self._unrecorded = 0.0  # worker-seconds spent since its last result

    def count(self, now: float) -> None:
        """Add its workers' time up to now; call it before `held` changes."""
        busy = min(self.held, self.pace.workers)
        if busy:
            self._unrecorded += busy * max(0.0, now - self._counted)
            self._counted = max(self._counted, now)
        else:
            self._counted = self._heard = now + self.pace.round_trip

    def returned(self, members: int, now: float, failed: int = 0) -> None:
        """Count results of the node; those of members that failed say nothing of its speed."""
        self.count(now)
        self.held -= members
        if members:
            self._heard = now
            self.pace.on_trial = self.pace.on_trial and failed < members
        evaluated = max(0, members - failed)
        seconds = self._unrecorded * (evaluated / members if members else 1.0)
        self.pace.record(seconds, evaluated, drained=self.held == 0)
        self._unrecorded = 0.0

    def seconds_per_member(self, now: float, typical: float) -> float:
        """Return the estimated seconds of a member, at least the time that the node has been silent."""
        seconds = self.pace.estimate(typical)
        if not self.held:
            return seconds
        gathers = gathers_for(self.held - self.pace.workers, self.refill_at, self.pace.workers, seconds, 0.0)
        return max(seconds, now - self._heard - self.pace.bridge - gathers)
