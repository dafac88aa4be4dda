"""Assigns the members of a batch to nodes: chunks by measured speed, short tails, second runs of late members.

Owns which node holds which member. Does no input or output and has no clock: times, in seconds of any monotonic clock,
are passed in, and equal calls give equal results. Must not know what a member is. A member's result is the same on
every node, so results do not depend on the assignment.

A node holds one member for each of its workers and a queue that bridges the time until the head has answered a result.
Towards the end of a batch queues shrink, as in guided self-scheduling (Polychronopoulos and Kuck 1987); when no free
members are left, idle nodes also run members that their holders would return later (backup tasks: Dean and Ghemawat
2004, section 3.6). There are no Python loops over members, which are NumPy arrays.

A node on which everything fails at once, for lack of memory or disk, is faster than all that work, and would be given
everything. So a failure counts at once only of a node that evaluates other members (`Pace.proven`); otherwise another
node runs the member, too, one that is proven if there is any.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pyes.remote.pace import Load, Pace, least_gather

Members = NDArray[np.int64]

_GUESS_SECONDS = 1.0  # assumed time of a member until one has been returned
_LOOK_SHARE = 0.1  # interval of checks of speeds and late members, as a share of a member's time
_LEAST_LOOK, _MOST_LOOK = 0.005, 0.2  # bounds of that interval in seconds
_COPIES = 2  # maximum number of nodes that hold a member
_COPIES_STUCK = 3  # the same if all holders are late by `_STUCK` times the time that another node needs
_STUCK = 4.0
_LEAST_GAIN = 0.01  # seconds that a second run must save, since its messages take time, too
_MESSAGE_SECONDS = 2e-4  # of the head's processor for a message of a node and the answer


class Scheduler:
    """Decides which node evaluates which members of one batch.

    Call `grants` after every `join`, `leave` and `done`, and about every 0.1 s to notice late nodes.

    Parameters
    ----------
    members : int
        Size of the batch: its members are 0 to members - 1.
    offered : bool
        Whether all of them are to be assigned; otherwise only those of `offer`.

    Attributes
    ----------
    more : bool
        Whether further members may be offered, so that no node is too slow for the rest.
    remaining : int
        Members to be assigned that have no result.
    lost : int
        Members that became free again because their nodes left.
    rerun : int
        Members granted while another node still held them.
    duplicates : int
        Results for members that already had one.
    """

    def __init__(self, members: int, *, offered: bool = True) -> None:
        self.more = not offered
        self.remaining = members if offered else 0
        self.lost = self.rerun = self.duplicates = 0
        self._free: Members = np.arange(self.remaining)  # neither held nor done; sorted
        self._done = np.full(members, not offered)  # or not offered
        self._late_results = False  # whether a node may return members that are done, or that will be run again
        self._doubted = np.zeros(members, np.bool_)  # failed on a node that is not proven
        self._second: Members = np.zeros(0, np.int64)  # as `_free`, of those
        self._suspicious = False  # whether there may be such members, or nodes that get none
        self._offered_again = False  # whether some were that nodes had returned
        # Up to three holders of each member: the index of a node, negative after it has returned the member; 0: none.
        self._holders = np.zeros((_COPIES_STUCK, members), np.int32)
        self._first = self._holders[0]
        self._granted = np.zeros((_COPIES_STUCK, members))  # time of the grant
        self._rounds = np.zeros((_COPIES_STUCK, members), np.float32)  # expected end after the grant, in members' times
        self._nodes: dict[int, Load] = {}
        self._by_index: dict[int, Load] = {}
        self._joined = 0
        self._hungry: dict[int, Load] = {}  # nodes that may take more members; a dict keeps their order
        self._with_stale: dict[int, Load] = {}  # nodes that hold members that others have returned
        self._look_at = -math.inf  # time of the next check for late members
        # Results of the last survey of all nodes.
        self._survey_at = -math.inf  # time of the next survey
        self._workers = 0
        self._speed = 0.0  # members per second
        self._fastest = self._typical = _GUESS_SECONDS  # seconds of a member
        self._seconds = self._bridges = np.zeros(0)  # by node index: seconds of a member, and until the head's answer

    @property
    def complete(self) -> bool:
        """Whether every member is done."""
        return self.remaining == 0

    @property
    def free(self) -> Members:
        """Members without a result that no node holds."""
        return np.union1d(self._free, self._second)

    @property
    def held(self) -> Members:
        """Members without a result that nodes hold."""
        pending = ~self._done
        pending[self._free] = pending[self._second] = False
        return np.flatnonzero(pending)

    @property
    def all_granted(self) -> bool:
        """Whether no member is free."""
        return not len(self._free) and not len(self._second)

    def __contains__(self, node: int) -> bool:
        """Return whether a node takes part."""
        return node in self._nodes

    def offer(self, members: Members) -> None:
        """Let members be assigned that have not been offered before, or have been returned or revoked since."""
        self._done[members] = self._doubted[members] = False
        if self._holders[:, members].any():
            self._offered_again = self._late_results = True
        self.remaining += len(members)
        self._free = np.sort(np.concatenate([self._free, members]))
        self._survey_at = self._look_at = -math.inf

    def revoke(self, members: Members) -> None:
        """Do without the results of members; nodes that hold them are told by `withdrawn`."""
        members = members[~self._done[members]]
        self._done[members] = self._late_results = True
        self.remaining -= len(members)
        self._forget_done()
        self._mark_stale(self._holders[:, members])

    def join(self, node: int, pace: Pace) -> None:
        """Let a node take part; one that has left may join again, and then holds nothing."""
        if node in self._nodes:
            raise ValueError(f"node {node} already takes part")
        pace.reconsider()
        self._suspicious = self._suspicious or pace.suspended
        self._joined += 1
        load = Load(node, self._joined, pace)
        self._nodes[node] = self._hungry[node] = self._by_index[load.index] = load
        self._survey_at = -math.inf

    def leave(self, node: int) -> int:
        """Remove a node, if it takes part; return how many members become free: not done, and held by no other node."""
        if node not in self._nodes:
            return 0
        index = self._nodes.pop(node).index
        self._hungry.pop(node, None)
        self._with_stale.pop(node, None)
        held = (self._holders == index).any(axis=0) & ~self._done
        self._holders[np.abs(self._holders) == index] = 0
        lost = self._set_free(held)
        self.lost += lost
        return lost

    def retire(self, node: int, running: Members, now: float) -> int:
        """Grant a node, if it takes part, no more members; return how many become free: all but those that it runs."""
        if node not in self._nodes:
            return 0
        load = self._nodes[node]
        load.count(now)
        load.retired = True
        mine = self._holders == load.index
        mine[:, running] = False
        self._holders[mine] = 0
        load.held -= int(np.count_nonzero(mine))
        return self._set_free(mine.any(axis=0) & ~self._done)

    def resize(self, node: int, workers: int, now: float) -> None:
        """Continue with another number of workers of a node that takes part."""
        load = self._nodes[node]
        load.count(now)
        load.pace.resize(workers)
        self._hungry[node] = load
        self._survey_at = -math.inf

    def holds(self, node: int) -> bool:
        """Return whether a node is still to return members."""
        return node in self._nodes and self._nodes[node].held > 0

    def _set_free(self, held: NDArray[np.bool_]) -> int:
        """Free those of the members that no other node holds; return their number."""
        back = np.flatnonzero(held & ~(self._holders > 0).any(axis=0))
        if len(back):
            doubted = self._doubted[back]
            self._free = np.sort(np.concatenate([self._free, back[~doubted]]))
            self._second = np.sort(np.concatenate([self._second, back[doubted]]))
            self._hungry = dict(self._nodes)
        self._survey_at = self._look_at = -math.inf
        return len(back)

    def grants(self, now: float) -> list[tuple[int, Members]]:
        """Return the members to grant now: each node at most once, with its members sorted."""
        if self.complete or not self._hungry:
            return []
        found = [] if self.all_granted else self._hand_out(now)
        if found or len(self._free) or now < self._look_at:
            return found
        return self._run_again(now)

    def terms(self, node: int) -> tuple[int, float]:
        """Return the length of its queue with which a node gets more members, and for how long it gathers results."""
        load = self._nodes[node]
        return load.refill_at, load.pace.gather_seconds

    def done(
        self, node: int, members: Members, now: float, failed: NDArray[np.bool_] | None = None
    ) -> NDArray[np.bool_]:
        """Record a node's results; return which of them are new, and count.

        Parameters
        ----------
        node : int
        members : int64 (n,)
            Members of the batch, sorted, without duplicates.
        now : float
        failed : bool (n,) or None
            Members that failed there; None: none.

        Returns
        -------
        bool (n,)
            False where another node, or this one, has already returned the member, and where it has failed and another
            node runs it, too.

        Raises
        ------
        ValueError
            A member was never granted to this node.
        """
        state = self._nodes.get(node)
        if state is None:
            raise ValueError(f"got results of node {node}, which does not take part in this batch")
        failures = 0 if failed is None else int(np.count_nonzero(failed))
        state.pace.judge(len(members) - failures, failures)
        doubtful = None
        if failures and failed is not None:
            doubtful = self._doubtful(state, members, failed)
        new: NDArray[np.bool_] = self._first[members] == state.index
        returned = fresh = int(np.count_nonzero(new))
        if returned == len(members) and not self._late_results:  # the usual case
            self._first[members] = -state.index
        else:
            returned = self._take_back(state, members)
            self.duplicates += int(np.count_nonzero(self._done[members]))
            new = ~self._done[members]
            if doubtful is not None:
                self._doubt(members[new & doubtful])
                new &= ~doubtful
            fresh = int(np.count_nonzero(new))
        self._done[members[new]] = True
        if self._suspicious or self._offered_again:  # a node may send the result of a member that is free again
            self._forget_done()
        self.remaining -= fresh
        if returned:
            state.returned(returned, now, failures)
            self._hungry[node] = state
        if fresh and self.complete:
            for each in self._nodes.values():
                each.returned(0, now)  # updates slow nodes that may have returned nothing
        return new

    def _doubtful(self, node: Load, members: Members, failed: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Return which failures of a node do not count, since another node may evaluate these members."""
        holders = self._holders[:, members]
        if node.pace.proven:
            if self._suspicious:  # nodes whose failures it confirms have no fault
                doubted = holders[:, failed & self._doubted[members]]
                for index in set((-doubted[doubted < 0]).tolist()) & self._by_index.keys():
                    self._by_index[index].pace.failures = 0
            return None
        self._suspicious = self._late_results = True
        others = sum(other is not node for other in self._trusted())
        marks = np.count_nonzero((holders < 0) & (holders != -node.index), axis=0)
        doubtful: NDArray[np.bool_] = failed & (marks < min(others, _COPIES_STUCK - 1))
        return doubtful

    def _trusted(self) -> list[Load]:
        """Return the nodes that take members, without those on which all fail, unless all are such nodes."""
        active = [node for node in self._nodes.values() if not node.retired]
        return [node for node in active if not node.pace.suspended] or active

    def _doubt(self, members: Members) -> None:
        """Let another node run members that have failed."""
        self._doubted[members] = True
        free = members[~(self._holders[:, members] > 0).any(axis=0)]
        self._second = np.union1d(self._second, free)  # one may be reported twice
        self._hungry |= {node.name: node for node in self._nodes.values() if node.held < node.pace.workers}

    def _forget_done(self) -> None:
        """Take members that are done out of the free ones."""
        self._free = self._free[~self._done[self._free]]
        self._second = self._second[~self._done[self._second]]

    def withdrawn(self, now: float) -> list[tuple[int, Members]]:
        """Return queued members of each node that others have returned, so that it may drop them."""
        found = []
        for node in self._with_stale.values():
            slots, members = self._held_by(node)
            # Members are begun in the order of their grants, so the first ones, one per worker, are running.
            queued = np.lexsort((members, self._granted[slots, members]))[node.pace.workers :]
            queued = queued[self._done[members[queued]]]
            if len(queued):
                self._holders[slots[queued], members[queued]] = -node.index
                node.count(now)
                node.held -= len(queued)
                self._hungry[node.name] = node
                found.append((node.name, np.unique(members[queued])))
        self._with_stale = {}
        return found

    def _held_by(self, node: Load) -> tuple[NDArray[np.intp], Members]:
        """Return the slots and the members that a node holds, found among its grants alone: batches may be large."""
        members = np.unique(np.concatenate(node.grants))  # it may have had one before, and failed in it
        slots, places = np.nonzero(self._holders[:, members] == node.index)
        node.grants = [members[places]]
        return slots, members[places]

    # --- free members

    def _hand_out(self, now: float) -> list[tuple[int, Members]]:
        """Grant free members to the nodes that may take more."""
        self._survey(now)
        found, hungry = [], {}
        trusted = self._trusted() if self._suspicious else []
        for node in self._hungry.values():
            if trusted and node.pace.suspended and node not in trusted:
                hungry[node.name] = node
                continue
            count = max(0, self._wanted(node, now)) if len(self._free) else 0
            second = self._taken_again(node, trusted, count) if len(self._second) else self._second
            if len(second):
                self._grant(node, self._slots(node, second), second, now)
            members = self._free[: max(0, count - len(second))]
            if len(members):
                self._free = self._free[len(members) :]
                slots = self._slots(node, members) if self._offered_again else np.zeros(1, np.intp)
                self._grant(node, slots, members, now)
            if len(second) + len(members):
                found.append((node.name, np.sort(np.concatenate([second, members])) if len(second) else members))
            if node.held < node.pace.workers:
                hungry[node.name] = node
        self._hungry = hungry
        return found

    def _taken_again(self, node: Load, trusted: Sequence[Load], count: int) -> Members:
        """Return the members that have failed elsewhere and a node is to run now, and take them out of these.

        A node that comes late takes them, too, if it is idle: those on which they have failed cannot do it instead.
        """
        count = max(count, node.pace.workers - node.held)
        if node.retired or count <= 0 or (not node.pace.proven and any(each.pace.proven for each in trusted)):
            return self._second[:0]
        holders = self._holders[:, self._second]
        mine = (np.abs(holders) == node.index).any(axis=0)
        everywhere = np.zeros(len(self._second), np.bool_)
        if len(trusted) <= _COPIES_STUCK:  # else a member has no slots for all of them
            # On each: were failures only counted, one node could have a member again and again, and no other one.
            everywhere = np.all([(holders == -each.index).any(axis=0) for each in trusted], axis=0)
        places = np.flatnonzero(~mine | everywhere | node.pace.proven)[:count]
        members, self._second = self._second[places], np.delete(self._second, places)
        return members

    def _slots(self, node: Load, members: Members) -> NDArray[np.intp]:
        """Return the slot of each member in which a node had it before, or else one that is free."""
        own = self._holders[:, members] == -node.index
        free = self._holders[:, members] == 0
        slots: NDArray[np.intp] = np.where(own.any(axis=0), np.argmax(own, axis=0), np.argmax(free, axis=0))
        return slots

    def _wanted(self, node: Load, now: float) -> int:
        """Return how many more members a node should hold."""
        if node.retired:
            return 0
        pace, seconds = node.pace, node.seconds_per_member(now, self._typical)
        if pace.seconds_per_member is not None or pace.least_seconds:
            if not self.more and self._comes_too_late(pace, seconds):
                pace.passed_over = True
                return 0
            if pace.on_trial:
                return 1 - min(node.held, 1)
        by_speed = min(1.0, pace.workers / (seconds * self._speed))  # the node's share of the total speed
        # In a batch with fewer members than workers, the larger share by workers or by speed, so that none is left.
        running = min(pace.workers, math.ceil(self.remaining * max(by_speed, pace.workers / self._workers)))
        queue = pace.queue(seconds)
        waiting = max(0, self.remaining - self._workers)  # members beyond those that all workers together run
        # What it finishes while the head takes a message of each node. With fewer at a time, the head is kept too busy.
        fewest = int(pace.workers * _MESSAGE_SECONDS * len(self._nodes) / seconds)
        most = min(max(queue.bridge + fewest, int(waiting * by_speed / 2.0)), math.ceil(waiting * by_speed))
        node.refill_at = min(queue.needed, max(0, most - fewest))
        if node.held > running + node.refill_at:
            return 0
        return running + min(queue.needed + queue.refill, most) - node.held

    def _comes_too_late(self, pace: Pace, seconds: float) -> bool:
        """Whether a node would return a member clearly after the others have finished the batch."""
        return seconds > 2.0 * self._fastest + self.remaining / self._speed + pace.bridge

    def _grant(self, node: Load, slots: NDArray[np.intp], members: Members, now: float) -> None:
        """Record that a node holds members, in slots that are free."""
        node.count(now)
        ahead = np.arange(node.held + 1 - node.pace.workers, node.held + 1 - node.pace.workers + len(members))
        self._holders[slots, members] = node.index
        self._granted[slots, members] = now
        self._rounds[slots, members] = 1.0 + np.maximum(ahead, 0) / node.pace.workers
        node.held += len(members)
        node.grants.append(members)

    def _survey(self, now: float) -> None:
        """Update the speeds of all nodes, unless that was done recently."""
        if now < self._survey_at:
            return
        self._typical = _mean_seconds(node.pace for node in self._nodes.values())
        least = least_gather(len(self._nodes))
        self._seconds, self._bridges = np.zeros(self._joined + 1), np.zeros(self._joined + 1)
        for node in self._nodes.values():
            node.pace.least_gather = least
            self._seconds[node.index], self._bridges[node.index] = node.pace.estimate(self._typical), node.pace.bridge
        self._workers, self._speed, self._fastest = 0, 0.0, math.inf
        for node in self._trusted():  # a slower one must not wait for those that get no members
            seconds = node.seconds_per_member(now, self._typical)
            self._workers += node.pace.workers
            self._speed += node.pace.workers / seconds
            self._fastest = min(self._fastest, seconds)
        self._survey_at = now + self._pause()

    def _pause(self) -> float:
        """Return the interval of surveys and of checks for late members, in seconds."""
        return min(max(_LOOK_SHARE * self._fastest, _LEAST_LOOK), _MOST_LOOK)

    # --- late members

    def _run_again(self, now: float) -> list[tuple[int, Members]]:
        """Grant idle workers members that their holders would return later."""
        self._survey(now)
        self._look_at = now + self._pause()
        pending = self.held
        if not len(pending):
            return []
        holders = self._holders[:, pending]
        left = self._seconds_left(pending, holders, now)
        idle = self._idle(left.max())
        if not idle:
            return []
        fastest = idle[0][0]
        late = left > min(fastest + _LEAST_GAIN, _STUCK * fastest)  # few of many: the others are nobody's business
        pending, holders, left = pending[late], holders[:, late], left[late]
        copies = np.count_nonzero(holders, axis=0)
        found = []
        for seconds, node in idle:
            worth = (left > seconds + _LEAST_GAIN) & (copies < _COPIES)
            worth |= (left > _STUCK * seconds) & (copies < _COPIES_STUCK)
            chosen = np.flatnonzero(worth & (np.abs(holders) != node.index).all(axis=0))
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
            self._late_results = True
            found.append((node.name, pending[chosen]))
        return found

    def _idle(self, most: float) -> list[tuple[float, Load]]:
        """Return the nodes with idle workers that need less than ``most`` seconds for a member, the fastest first."""
        idle = []
        for node in self._hungry.values():
            seconds = self._seconds.item(node.index) + self._bridges.item(node.index)
            if seconds < most and node.held < node.pace.workers and not node.retired and not node.pace.suspended:
                idle.append((seconds, node.index, node))
        return [(seconds, node) for seconds, _, node in sorted(idle)]

    def _seconds_left(self, members: Members, holders: NDArray[np.int32], now: float) -> NDArray[np.float64]:
        """Return the expected seconds until the first holder of each member returns it.

        A member that is late is expected to need as many seconds again as it is late.
        """
        due = self._granted[:, members] + self._bridges[holders] + self._rounds[:, members] * self._seconds[holders]
        left: NDArray[np.float64] = np.where(holders > 0, np.abs(due - now), np.inf).min(axis=0)
        return left

    # --- results

    def _take_back(self, node: Load, members: Members) -> int:
        """Record that a node has returned members; return how many of them it held."""
        holders = self._holders[:, members]
        mine = holders == node.index
        held = int(np.count_nonzero(mine))
        unknown = len(members) - int(np.count_nonzero((np.abs(holders) == node.index).any(axis=0)))
        if unknown:
            raise ValueError(f"it returned {unknown} members that it was not given")
        holders[mine] = -node.index
        self._holders[:, members] = holders
        self._mark_stale(holders)
        return held

    def _mark_stale(self, holders: NDArray[np.int32]) -> None:
        """Note nodes that hold members which are done."""
        for index in set(holders[holders > 0].tolist()):
            node = self._by_index[index]
            self._with_stale[node.name] = node


def _mean_seconds(paces: Iterable[Pace]) -> float:
    """Return the seconds of a member over all workers whose speed is known."""
    known = [(pace.workers, pace.seconds_per_member) for pace in paces if pace.seconds_per_member is not None]
    return sum(n for n, _ in known) / sum(n / seconds for n, seconds in known) if known else _GUESS_SECONDS
