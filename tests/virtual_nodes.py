"""Nodes in virtual time around a real `Scheduler`, for its tests and its benchmark.

A virtual node has workers, a queue, and a link; like a real one it gathers results, for longer while its queue lasts
or nobody waits for them, drops its queue when a batch is over or when told, and lets no running member go: what its
workers run at the end of a batch they finish, while the next batch waits. Unlike a real one, it does not report at once
that a worker has run out of members. A member takes as long wherever and whenever it is run, times the slowness of the
node; where it fails, it takes `FAILING_SHARE` of that.
"""

import copy
import heapq
import math
from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.remote.pace import Pace, gathers_at_end, gathers_for
from pyes.remote.scheduler import Scheduler

TICK_SECONDS = 0.05  # the head looks after its nodes, with results or without
FAILING_SHARE = 0.3  # of a member's time, after which it fails


@dataclass
class VirtualNode:
    """A node that takes ``slowness`` times the time, takes part from ``joins``, and answers nothing after ``stops``.

    Members that are in ``fails`` fail there.
    """

    workers: int
    round_trip: float = 0.0
    slowness: float = 1.0
    joins: float = 0.0
    stops: float = math.inf
    fails: Container[int] = ()
    busy: int = 0
    queue: deque[tuple[int, int]] = field(default_factory=deque)  # (batch, member)
    ready: list[tuple[int, int]] = field(default_factory=list)
    refill_at: int = 0  # length of the queue with which it gets more
    gather: float = 0.0  # seconds for which it gathers results at least
    evaluated: int = 0
    sent: float = -math.inf  # when it last sent results, or the batch was opened
    all_granted: int = 0  # the batch of which it knows that no member is left to grant

    def __post_init__(self) -> None:
        self.pace = Pace(self.workers)
        self.pace.round_trip = self.round_trip
        self.own_pace = Pace(self.workers)  # as it sees itself

    @property
    def usual(self) -> float:
        """Usual seconds of a member."""
        return self.own_pace.seconds_per_member or 0.0

    def seconds(self, member: int, duration: float) -> float:
        """Seconds that a worker has a member."""
        return self.slowness * duration * (FAILING_SHARE if member in self.fails else 1.0)


class VirtualCluster:
    """A head with its nodes; `evaluate` runs one batch after the other."""

    def __init__(self, nodes: Iterable[VirtualNode]) -> None:
        self.nodes = list(nodes)
        self.now = 0.0
        self.batch = 0
        self.calls: list[tuple[str, Any]] = []  # of the scheduler in the last batch, for `replay`
        self.messages = self.answers = 0  # grants, and messages with results
        self._told_granted = 0  # the last batch of which the nodes were told that all members are granted
        self.ranges = 0  # in them
        self._events: list[tuple[float, int, str, Any]] = []
        self._count = 0
        self._tick()

    def evaluate(self, durations: NDArray[np.float64], limit: float = 1e6) -> Scheduler:
        """Run one batch; return its scheduler. `now` is then the end of the batch."""
        self.batch += 1
        self.durations = durations.tolist()
        self.limit = self.now + limit
        self.times_done = np.zeros(len(durations), np.int64)
        self.scheduler = Scheduler(len(durations))
        self.calls = []
        for name, node in enumerate(self.nodes):
            node.sent = self.now
            if node.joins <= self.now:
                self._join(self.batch, name)
            else:
                self._at(node.joins, "join", (self.batch, name))
        self._hand_out()
        while not self.scheduler.complete:
            self.now, _, kind, what = heapq.heappop(self._events)
            assert self.now < self.limit, "the batch does not end"
            getattr(self, f"_{kind}")(*([] if what is None else what))
        for name, node in enumerate(self.nodes):
            self._at(self.now + node.round_trip / 2, "drop", (self.batch, name, set()))
        return self.scheduler

    def _at(self, moment: float, kind: str, what: Any = None) -> None:
        self._count += 1  # what is put down for one moment happens in that order
        heapq.heappush(self._events, (moment, self._count, kind, what))

    # --- the head

    def _hand_out(self) -> None:
        self.calls.append(("look", self.now))
        for name, members in self.scheduler.grants(self.now):
            self.messages += 1
            self.ranges += 1 + int(np.count_nonzero(np.diff(members) != 1))
            terms = self.scheduler.terms(name)
            self._at(self.now + self.nodes[name].round_trip / 2, "grant", (self.batch, name, members, terms))
        for name, members in self.scheduler.withdrawn(self.now):
            self._at(self.now + self.nodes[name].round_trip / 2, "drop", (self.batch, name, set(members.tolist())))
        if self.scheduler.all_granted and self._told_granted < self.batch:
            self._told_granted = self.batch
            for name, node in enumerate(self.nodes):
                self._at(self.now + node.round_trip / 2, "all_granted", (self.batch, name))

    def _results(self, name: int, results: list[tuple[int, int]]) -> None:
        members = np.array(sorted(member for batch, member in results if batch == self.batch), np.int64)
        if len(members):
            failed = np.array([member in self.nodes[name].fails for member in members.tolist()])
            self.calls.append(("done", (name, members, self.now, failed)))
            self.times_done[members[self.scheduler.done(name, members, self.now, failed)]] += 1
            self._hand_out()

    def _join(self, batch: int, name: int) -> None:
        if batch == self.batch:
            self.calls.append(("join", (name, copy.copy(self.nodes[name].pace))))
            self.scheduler.join(name, self.nodes[name].pace)

    def _tick(self) -> None:
        if self.batch:
            self._hand_out()
        self._at(self.now + TICK_SECONDS, "tick")

    # --- the nodes

    def _grant(self, batch: int, name: int, members: NDArray[np.int64], terms: tuple[int, float]) -> None:
        self.nodes[name].refill_at, self.nodes[name].gather = terms
        if batch == self.batch and self.now < self.nodes[name].stops:
            self.nodes[name].queue.extend((batch, member) for member in members.tolist())
            self._work(name)

    def _all_granted(self, batch: int, name: int) -> None:
        self.nodes[name].all_granted = batch

    def _work(self, name: int) -> None:
        node = self.nodes[name]
        while node.busy < node.workers and node.queue:
            batch, member = node.queue.popleft()
            node.busy += 1
            self._at(self.now + node.seconds(member, self.durations[member]), "end", (batch, name, member))

    def _end(self, batch: int, name: int, member: int) -> None:
        node = self.nodes[name]
        if self.now >= node.stops:
            return
        node.busy -= 1
        node.evaluated += 1
        node.own_pace.record(node.seconds(member, self.durations[member]), 1)
        if not node.ready:
            self._at(self.now + node.gather, "send", (name,))
        node.ready.append((batch, member))
        self._work(name)

    def _send(self, name: int) -> None:
        node = self.nodes[name]
        if self.now >= node.stops or not node.ready:
            return
        since = self.now - node.sent
        if node.all_granted == self.batch:
            waits = gathers_at_end(len(node.queue) + node.busy, node.workers, node.usual, since)
        else:
            waits = gathers_for(len(node.queue), node.refill_at, node.workers, node.usual, since)
        if waits:
            self._at(self.now + max(waits, node.gather), "send", (name,))
            return
        self.answers += 1
        self._at(self.now + node.round_trip / 2, "results", (name, node.ready))
        node.ready, node.sent = [], self.now

    def _drop(self, batch: int, name: int, members: set[int]) -> None:
        """Drop members from a queue, and whatever is of a batch that is over."""
        gone = {(batch, member) for member in members}
        node = self.nodes[name]
        node.queue = deque(each for each in node.queue if each[0] == self.batch and each not in gone)


def replay(members: int, calls: Iterable[tuple[str, Any]]) -> None:
    """Scheduler a batch again, by the same calls and with nothing in between."""
    scheduler = Scheduler(members)
    for name, arguments in calls:
        if name == "look":
            scheduler.grants(arguments)
            scheduler.withdrawn(arguments)
        elif name == "done":
            scheduler.done(*arguments)
        else:
            scheduler.join(arguments[0], copy.copy(arguments[1]))


def ideal_seconds(durations: NDArray[np.float64], workers: Iterable[tuple[float, float]]) -> float:
    """Return the seconds of one machine with all these workers: each member goes to the one that would end it first.

    Parameters
    ----------
    workers : (free from, slowness) of each
    """
    free: dict[float, list[float]] = {}
    for begin, slowness in workers:
        free.setdefault(slowness, []).append(begin)
    for times in free.values():
        heapq.heapify(times)
    end = 0.0
    for duration in durations.tolist():
        soonest, slowness = min((times[0] + each * duration, each) for each, times in free.items())
        heapq.heapreplace(free[slowness], soonest)
        end = max(end, soonest)
    return end
