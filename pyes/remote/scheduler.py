"""Which node evaluates which member of a batch: chunks by measured speed, short tails, second runs of what is late.

Owns who holds what of one batch (`Schedule`) and what is known of a node's speed (`Pace`). It does no input or output
and has no clock: times, in seconds of any steady clock, are passed in, and equal calls give equal answers. It must not
know what a member is. Results do not depend on it: a member comes to the same wherever it is evaluated.

A node holds one member for each of its workers and a queue, long enough to bridge the time until the head's answer to
a result is there. Towards the end of a batch queues shrink, as in guided self-scheduling (Polychronopoulos and Kuck
1987); once all is handed out, idle nodes run again what others would bring later (backup tasks: Dean and Ghemawat
2004, section 3.6). Nothing is done per member in Python: members are NumPy arrays throughout.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Members = NDArray[np.int64]

_TURNAROUND = 0.05  # seconds, beside a round trip, from a member's end to the head's answer: nodes gather for 40 ms
_CHUNK_SECONDS = 0.1  # of work that a refill brings beyond what is needed, so that messages stay few
_GUESS_SECONDS = 1.0  # a member is taken for, as long as nobody has returned one
_LOOK_SHARE = 0.1  # of a member's time, between two looks at the speeds of all nodes and at who is late
_LEAST_LOOK, _MOST_LOOK = 0.005, 0.2  # and these bounds, in seconds
_LEAST_SECONDS = 1e-7  # a member takes, in calculations
_COPIES = 2  # nodes that hold a member, at most
_COPIES_STUCK = 3  # the same when all holders are late by several times what another one needs
_STUCK = 4.0
_LEAST_GAIN = 0.01  # seconds that a second run must save: its messages cost some, too
_MEMORY_SECONDS = 0.2  # of each worker that its pace is the mean of, at least
_TRUSTED = 4  # results that tell a node's speed


class Pace:
    """What is known of one node, across batches.

    Parameters
    ----------
    workers : int    members that it evaluates at a time

    Attributes
    ----------
    round_trip : float    seconds for a message to the node and the answer
    seconds_per_member : float or None    of one worker, smoothed; None before the first result
    passed_over : bool    it got nothing lately, since others would have been done sooner
    on_trial : bool       it was passed over and gets one member, to show whether it is still slow
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"a node has at least 1 worker, got {workers}")
        self.workers = workers
        self.round_trip = 0.0
        self.seconds_per_member: float | None = None
        self.passed_over = False
        self.on_trial = False
        self._memory = 4.0 * workers + 16.0  # members
        self._seconds = 0.0
        self._members = 0.0

    @property
    def bridge(self) -> float:
        """Seconds from a member's end until the head's answer has come."""
        return self.round_trip + _TURNAROUND

    def record(self, worker_seconds: float, members: int, drained: bool = False) -> None:
        """Add what a node has done, and what it has spent without result.

        The last few members of each worker are remembered, or its last fifth of a second, if that is more; not the
        latter of a node that was drained: it has waited, and its time is the link's.
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

    def estimate(self, typical: float) -> float:
        """Return the seconds of a member; as long as there are few results, with those typical of all nodes."""
        if self.seconds_per_member is None:
            return typical
        trust = min(1.0, self._members / min(self.workers, _TRUSTED))
        return typical + trust * (self.seconds_per_member - typical)

    def reconsider(self) -> None:
        """Believe a node that was passed over to be twice as fast, so that one that was slow once is tried again."""
        if self.passed_over and self.seconds_per_member is not None:
            self.seconds_per_member /= 2.0
            self._members = min(self._members, float(_TRUSTED))  # what it does now counts for more
            self._seconds = self._members * self.seconds_per_member
            self.on_trial = True
        self.passed_over = False


class _Node:
    """A node in one batch."""

    def __init__(self, name: int, index: int, pace: Pace) -> None:
        self.name, self.index, self.pace = name, index, pace
        self.held = 0  # members granted and not returned, those included that others have returned meanwhile
        self.heard = 0.0  # when it last returned something, or could have begun to
        self.counted = 0.0  # until when its workers' time is in `unrecorded`
        self.unrecorded = 0.0  # worker-seconds spent since its last result

    def count(self, now: float) -> None:
        """Count its workers' time up to now; call it before `held` changes."""
        busy = min(self.held, self.pace.workers)
        if busy:
            self.unrecorded += busy * max(0.0, now - self.counted)
            self.counted = max(self.counted, now)
        else:
            self.counted = self.heard = now + self.pace.round_trip

    def returned(self, members: int, now: float) -> None:
        """Take note of results."""
        self.count(now)
        self.held -= members
        if members:
            self.heard = now
        self.pace.record(self.unrecorded, members, drained=self.held == 0)
        self.unrecorded = 0.0

    def seconds_per_member(self, now: float, typical: float) -> float:
        """Return the seconds that one of its workers takes, as far as can be told; a silent node becomes slow."""
        seconds = self.pace.estimate(typical)
        return max(seconds, now - self.heard - self.pace.bridge) if self.held else seconds


class Schedule:
    """Who evaluates what of one batch.

    Call `grants` after every `join`, `leave` and `done`, and every 0.1 s or so meanwhile: that a node is late shows by
    the clock alone.

    Parameters
    ----------
    members : int    in the batch: 0 to members - 1

    Attributes
    ----------
    remaining : int     members that nobody has returned
    lost : int          members that went back because their nodes left
    rerun : int         members handed out while another node still held them
    duplicates : int    results that were there already
    """

    def __init__(self, members: int) -> None:
        self.remaining = members
        self.lost = self.rerun = self.duplicates = 0
        self._free: Members = np.arange(members)  # held by nobody, not done; sorted
        self._done = np.zeros(members, np.bool_)
        # Up to three holders of each member: the index of a node, negative once it has returned the member; 0: none.
        self._holders = np.zeros((_COPIES_STUCK, members), np.int32)
        self._first = self._holders[0]
        self._granted = np.zeros((_COPIES_STUCK, members))  # when
        self._rounds = np.zeros((_COPIES_STUCK, members), np.float32)  # its end in the node's queue, in members' times
        self._nodes: dict[int, _Node] = {}
        self._joined = 0
        self._hungry: dict[int, _Node] = {}  # nodes that may take more; a dict keeps their order
        self._with_stale: dict[int, _Node] = {}  # nodes that hold what others have returned
        self._look_at = -math.inf  # when idle nodes may next look for what is late
        # Of all nodes together, as of the last survey.
        self._survey_at = -math.inf
        self._workers = 0
        self._speed = 0.0  # members a second
        self._fastest = self._typical = _GUESS_SECONDS  # of a member
        self._seconds = self._bridges = np.zeros(0)  # by a node's index: of a member, and until the head's answer

    @property
    def complete(self) -> bool:
        """Whether every member is done."""
        return self.remaining == 0

    def __contains__(self, node: int) -> bool:
        """Return whether a node takes part."""
        return node in self._nodes

    def join(self, node: int, pace: Pace) -> None:
        """Let a node take part from now on; one that has left may come back, and then holds nothing."""
        if node in self._nodes:
            raise ValueError(f"node {node} takes part already")
        pace.reconsider()
        self._joined += 1
        self._nodes[node] = self._hungry[node] = _Node(node, self._joined, pace)
        self._survey_at = -math.inf

    def leave(self, node: int) -> int:
        """Take a node out, if it takes part; return how many members go back: not done, and held by nobody else."""
        if node not in self._nodes:
            return 0
        index = self._nodes.pop(node).index
        self._hungry.pop(node, None)
        self._with_stale.pop(node, None)
        held = (self._holders == index).any(axis=0) & ~self._done
        self._holders[np.abs(self._holders) == index] = 0
        back = np.flatnonzero(held & ~(self._holders > 0).any(axis=0))
        if len(back):
            self._free = np.sort(np.concatenate([self._free, back]))
            self._hungry = dict(self._nodes)
        self.lost += len(back)
        self._survey_at = self._look_at = -math.inf
        return len(back)

    def grants(self, now: float) -> list[tuple[int, Members]]:
        """Return what to send now: each node at most once, with its members sorted."""
        if self.complete or not self._hungry:
            return []
        if len(self._free):
            return self._hand_out(now)
        if now >= self._look_at:
            return self._run_again(now)
        return []

    def done(self, node: int, members: Members, now: float) -> NDArray[np.bool_]:
        """Take a node's results; tell which of them are new.

        Parameters
        ----------
        members : int64 (n,)    sorted, each once

        Returns
        -------
        bool (n,)    False: another node, or this one, has returned the member before

        Raises
        ------
        ValueError    a member was never granted to this node, or the members are not sorted
        """
        state = self._nodes.get(node)
        if state is None:
            raise ValueError(f"got results of node {node}, which does not take part in this batch")
        if len(members) == 0:
            return np.zeros(0, np.bool_)
        self._check(members)
        new: NDArray[np.bool_] = self._first[members] == state.index
        returned = fresh = int(np.count_nonzero(new))
        if returned == len(members) and not self.rerun:  # the usual case: nobody else has held them
            self._first[members] = -state.index
        else:
            returned = self._take_back(state, members)
            new = ~self._done[members]
            fresh = int(np.count_nonzero(new))
        self._done[members] = True
        self.remaining -= fresh
        self.duplicates += len(members) - fresh
        if returned:
            state.returned(returned, now)
            self._hungry[node] = state
        if fresh and self.complete:
            for each in self._nodes.values():
                each.returned(0, now)  # who is slow may have returned nothing at all
        return new

    def withdrawn(self, now: float) -> list[tuple[int, Members]]:
        """Return members that nodes hold in their queues while others have returned them: they may drop them."""
        found = []
        for node in self._with_stale.values():
            slots, members = np.nonzero(self._holders == node.index)
            # First come, first served: as many as there are workers have begun.
            queued = np.lexsort((members, self._granted[slots, members]))[node.pace.workers :]
            queued = queued[self._done[members[queued]]]
            if len(queued):
                self._holders[slots[queued], members[queued]] = -node.index
                node.count(now)
                node.held -= len(queued)
                self._hungry[node.name] = node
                found.append((node.name, np.sort(members[queued])))
        self._with_stale = {}
        return found

    # --- what is free

    def _hand_out(self, now: float) -> list[tuple[int, Members]]:
        """Give the hungry what is free."""
        self._survey(now)
        found, hungry = [], {}
        for node in self._hungry.values():
            count = min(self._wanted(node, now), len(self._free)) if len(self._free) else 0
            if count:
                members, self._free = self._free[:count], self._free[count:]
                self._grant(node, np.zeros(count, np.intp), members, now)
                found.append((node.name, members))
            if node.held < node.pace.workers:
                hungry[node.name] = node
        self._hungry = hungry
        return found

    def _wanted(self, node: _Node, now: float) -> int:
        """Return how many more members a node should hold."""
        pace = node.pace
        seconds = node.seconds_per_member(now, self._typical)
        by_speed = pace.workers / (seconds * self._speed)
        waiting = max(0, self.remaining - self._workers)  # members beyond those that all workers together run
        # In a batch smaller than that, a part by workers or by speed, whichever is more: somebody must take them.
        running = min(pace.workers, math.ceil(self.remaining * max(by_speed, pace.workers / self._workers)))
        if pace.seconds_per_member is None:
            needed, extra, least = max(1, pace.workers // 4), 0, 0
        else:
            # It would still be at it when the others are through, not only by the errors of estimates.
            if seconds > 2.0 * self._fastest + self.remaining / self._speed + pace.bridge:
                pace.passed_over = True
                return 0
            if pace.on_trial:
                return 1 - min(node.held, 1)
            bridged = pace.workers * pace.bridge / seconds
            # Members of random length end like a Poisson process: two standard deviations more than the mean.
            needed = math.ceil(bridged + 2.0 * math.sqrt(bridged))
            extra = max(pace.workers // 4, int(pace.workers * _CHUNK_SECONDS / seconds))
            least = int(bridged)
        most = min(max(least, int(waiting * by_speed / 2.0)), math.ceil(waiting * by_speed))
        if node.held >= running + min(needed, most):
            return 0
        return running + min(needed + extra, most) - node.held

    def _grant(self, node: _Node, slots: NDArray[np.intp], members: Members, now: float) -> None:
        """Write down that a node holds members, in places that are free."""
        node.count(now)
        ahead = np.arange(node.held + 1 - node.pace.workers, node.held + 1 - node.pace.workers + len(members))
        self._holders[slots, members] = node.index
        self._granted[slots, members] = now
        self._rounds[slots, members] = 1.0 + np.maximum(ahead, 0) / node.pace.workers
        node.held += len(members)

    def _survey(self, now: float) -> None:
        """Look at the speeds of all nodes, unless it was done just now."""
        if now < self._survey_at:
            return
        self._typical = _mean_seconds(node.pace for node in self._nodes.values())
        self._seconds, self._bridges = np.zeros(self._joined + 1), np.zeros(self._joined + 1)
        self._workers, self._speed, self._fastest = 0, 0.0, math.inf
        for node in self._nodes.values():
            pace, seconds = node.pace, node.seconds_per_member(now, self._typical)
            self._seconds[node.index], self._bridges[node.index] = pace.estimate(self._typical), pace.bridge
            self._workers += pace.workers
            self._speed += pace.workers / seconds
            self._fastest = min(self._fastest, seconds)
        self._survey_at = now + self._pause()

    def _pause(self) -> float:
        """Return the seconds until it is worth to look again."""
        return min(max(_LOOK_SHARE * self._fastest, _LEAST_LOOK), _MOST_LOOK)

    # --- what is late

    def _run_again(self, now: float) -> list[tuple[int, Members]]:
        """Let idle workers run what its holders would bring later than they."""
        self._survey(now)
        self._look_at = now + self._pause()
        pending = np.flatnonzero(~self._done)
        holders = self._holders[:, pending]
        left = self._seconds_left(pending, holders, now)
        copies = np.count_nonzero(holders, axis=0)
        found = []
        for seconds, node in self._idle(left.max()):
            worth = (left > seconds + _LEAST_GAIN) & (copies < _COPIES)
            worth |= (left > _STUCK * seconds) & (copies < _COPIES_STUCK)
            chosen = np.flatnonzero(worth & (holders != node.index).all(axis=0))
            if len(chosen) == 0:
                continue
            latest = np.argsort(-left[chosen], kind="stable")[: node.pace.workers - node.held]
            chosen = np.sort(chosen[latest])
            slots = np.argmin(holders[:, chosen] != 0, axis=0)
            self._grant(node, slots, pending[chosen], now)
            holders[slots, chosen] = node.index
            left[chosen] = seconds
            copies[chosen] += 1
            self.rerun += len(chosen)
            found.append((node.name, pending[chosen]))
        return found

    def _idle(self, most: float) -> list[tuple[float, _Node]]:
        """Return the nodes with idle workers that would be done in less than so many seconds, the fastest first."""
        idle = []
        for node in self._hungry.values():
            seconds = self._seconds.item(node.index) + self._bridges.item(node.index)
            if seconds < most and node.held < node.pace.workers:
                idle.append((seconds, node.index, node))
        return [(seconds, node) for seconds, _, node in sorted(idle)]

    def _seconds_left(self, members: Members, holders: NDArray[np.int32], now: float) -> NDArray[np.float64]:
        """Return how long each member's holders will take yet, the soonest of them.

        What is late by so many seconds is taken to need as many more.
        """
        due = self._granted[:, members] + self._bridges[holders] + self._rounds[:, members] * self._seconds[holders]
        left: NDArray[np.float64] = np.where(holders > 0, np.abs(due - now), np.inf).min(axis=0)
        return left

    # --- what comes back

    def _check(self, members: Members) -> None:
        """Refuse what cannot be members of this batch."""
        if len(members) > 1 and not (members[1:] > members[:-1]).all():
            raise ValueError("its results are not sorted by member")
        least, most = members.item(0), members.item(-1)
        if least < 0 or most >= len(self._done):
            raise ValueError(f"it returned members {least} to {most}, expected 0 to {len(self._done) - 1}")

    def _take_back(self, node: _Node, members: Members) -> int:
        """Note that a node has returned members; return how many of them it held."""
        holders = self._holders[:, members]
        mine = holders == node.index
        held = int(np.count_nonzero(mine))
        unknown = len(members) - held - int(np.count_nonzero(holders == -node.index))
        if unknown:
            raise ValueError(f"it returned {unknown} members that it was not given")
        holders[mine] = -node.index
        self._holders[:, members] = holders
        others = set(holders[holders > 0].tolist())
        self._with_stale.update((each.name, each) for each in self._nodes.values() if each.index in others)
        return held


def _mean_seconds(paces: Iterable[Pace]) -> float:
    """Return the seconds of a member over all workers whose speed is known."""
    known = [(pace.workers, pace.seconds_per_member) for pace in paces if pace.seconds_per_member is not None]
    return sum(n for n, _ in known) / sum(n / seconds for n, seconds in known) if known else _GUESS_SECONDS
