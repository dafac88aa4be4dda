"""Clusters of up to a million workers in virtual time, with the head as one or under relays.

    python benchmarks/simulation.py costs          what messages cost this machine's processor
    python benchmarks/simulation.py [NAME ...]     rows of CASES, default all (hours; half an hour without the largest)

With `--rows FILE` rows are kept in a file as they are found, and not run again if they are there; `--figure FILE` draws
all of them.

Real: `pyes.remote.scheduler` and the rules by which nodes gather results (`pyes.remote.pace`).
Simulated: nodes of 18 workers, which take members first come, first served; links; and the head, which takes one
message after another: `MESSAGE_SECONDS` for one with results and `MEMBER_SECONDS` for each member in it,
`GRANT_SECONDS` for each message to a node. While it is busy, messages wait, and it answers all that have arrived at
once, as the real one does.

A relay is a head to its nodes and a node to its head: the same schedule on both levels, and one more link.

efficiency    seconds of the ideal schedule (the same members by the same workers, without any message) over those taken
head, relay   the share of a core that the messages of the head take, and of the busiest relay
"""

import argparse
import csv
import heapq
import itertools
import math
import sys
import time
import timeit
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyes.remote import wire
from pyes.remote.pace import Pace, gathers_at_end, gathers_for
from pyes.remote.scheduler import Scheduler
from pyes.remote.wire.protocol import HeadSide, NodeSide, State

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from schedule import drawn
from virtual_nodes import ideal_seconds

WORKERS = 18  # of a node
MEMBERS = 5  # of a worker, in a batch
#: Processor time of the head on an AMD EPYC: together what many_workers.py prints for a message at 10,080 workers; how
#: it is divided, and what a member takes, is as `costs` prints, with some room.
MESSAGE_SECONDS, MEMBER_SECONDS, GRANT_SECONDS = 1.1e-4, 1e-7, 0.4e-4
LOOK_SECONDS = 0.1  # between two looks for late members

#: Medians of what many_workers.py measured with the real head, the nodes being on the other core of the same machine.
REAL = {1_440: 1.001, 10_080: 0.983, 20_160: 0.975, 30_240: 0.958}

Members = NDArray[np.int64]


class Case(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    workers : int
    relays : int
        0: all nodes are the head's own.
    seconds : float
        Mean time of a member.
    spread : float
        Standard deviation of that time over its mean; log-normal.
    link : float
        Seconds of a round trip, between any two.
    leaving : float
        Share of the nodes that is killed in a minute; each comes back after half a minute.
    """

    workers: int
    relays: int = 0
    seconds: float = 1.0
    spread: float = 0.3
    link: float = 0.01
    leaving: float = 0.0


SIZES = (1_440, 5_760, 10_080, 20_160, 30_240, 100_080, 300_240, 1_000_080)
LARGEST = {1.0: 100_080, 10.0: 300_240}  # without relays: beyond, the head is full
CURVES = {
    f"{'relays' if relays else 'head'}-{seconds:g}s": [
        Case(workers, relays * round(workers / 5_000), seconds)
        for workers in SIZES
        if (workers >= 10_080 if relays else workers <= LARGEST[seconds])
    ]
    for seconds in (1.0, 10.0)
    for relays in (0, 1)
}
CASES = {f"{name}-{case.workers}": case for name, curve in CURVES.items() for case in curve} | {
    f"{name}-{workers}": Case(workers, relays, **changes)
    for workers, relays in ((10_080, 0), (100_080, 20))
    for name, changes in (("tail", {"spread": 1.0}), ("link", {"link": 0.1}), ("spot", {"leaving": 0.1}))
}


class World:
    """Virtual time: what happens next, and what is evaluated."""

    def __init__(self, case: Case) -> None:
        self.case, self.now = case, 0.0
        self.batch = 0
        self.durations: list[float] = []
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = itertools.count()

    def at(self, moment: float, what: Callable[..., None], *arguments: Any) -> None:
        """Put something down; what is put down for one moment happens in that order."""
        heapq.heappush(self._events, (moment, next(self._count), what, arguments))

    def deliver(self, what: Callable[..., None], *arguments: Any) -> None:
        """Put down the arrival of a message that is sent now."""
        self.at(self.now + self.case.link / 2, what, *arguments)

    def run(self, until: Callable[[], bool]) -> None:
        """Let things happen."""
        while not until():
            self.now, _, what, arguments = heapq.heappop(self._events)
            what(*arguments)


class Desk:
    """A head: grants the members of a batch to what is below it, nodes or relays, and takes their results."""

    def __init__(self, world: World, below: "list[Node] | list[Relay]") -> None:
        self.world, self.below = world, below
        self.busy = 0.0  # seconds of its processor
        self._inbox: deque[tuple[int, int, Members]] = deque()
        self._working = False
        self._told = False
        self.scheduler = Scheduler(0)
        for number, each in enumerate(below):
            each.above, each.number = self, number
        world.at(0.0, self._look)

    def begin(self, scheduler: Scheduler) -> None:
        """Begin a batch."""
        self.scheduler, self._told = scheduler, False
        self._inbox.clear()
        for number, each in enumerate(self.below):
            if each.present:
                scheduler.join(number, each.pace)

    def take(self, number: int, batch: int, members: Members) -> None:
        """Take a message with results."""
        self._inbox.append((number, batch, members))
        self.wake()

    def wake(self) -> None:
        """Work, unless it does."""
        if not self._working:
            self._work()

    def _work(self) -> None:
        """Read all messages that have arrived, then hand out members."""
        self._working = True
        read, self._inbox = self._inbox, deque()
        cost = sum(MESSAGE_SECONDS + MEMBER_SECONDS * len(members) for _, _, members in read)
        self.busy += cost
        self.world.at(self.world.now + cost, self._answer, read)

    def _answer(self, read: deque[tuple[int, int, Members]]) -> None:
        world, scheduler = self.world, self.scheduler
        for number, batch, members in read:
            if batch == world.batch and number in scheduler and not scheduler.complete:
                self.took(number, members)
        cost = 0.0
        for number, members in scheduler.grants(world.now):
            cost += GRANT_SECONDS + MEMBER_SECONDS * len(members)
            arrives = world.now + cost + world.case.link / 2
            self.below[number].refill_at = scheduler.terms(number)[0]
            world.at(arrives, self.below[number].grant, world.batch, self.named(members))
        scheduler.withdrawn(world.now)
        if scheduler.all_granted and self.last and not self._told:
            self._told = True
            for each in self.below:
                cost += GRANT_SECONDS
                world.at(world.now + cost + world.case.link / 2, each.all_granted, world.batch)
        self.busy += cost
        world.at(world.now + cost, self._rest)

    def _rest(self) -> None:
        self._working = False
        if self._inbox:
            self._work()

    def _look(self) -> None:
        self.wake()
        self.world.at(self.world.now + LOOK_SECONDS, self._look)

    def took(self, number: int, members: Members) -> None:
        """Record results."""
        self.scheduler.done(number, members, self.world.now)

    def named(self, members: Members) -> Members:
        """Return the numbers in the batch of members of its schedule."""
        return members

    @property
    def last(self) -> bool:
        """Whether it will get no more members."""
        return True

    def lose(self, number: int) -> None:
        """Notice that a connection has ended."""
        self.scheduler.leave(number)
        self.wake()

    def gain(self, number: int) -> None:
        """Take a node that is new, or there again."""
        if number not in self.scheduler:
            self.scheduler.join(number, self.below[number].pace)
        self.wake()


class Gatherer:
    """What sends results up, as rarely as nobody waits for them."""

    above: Desk
    number: int

    def __init__(self, world: World, workers: int) -> None:
        self.world, self.workers, self.present = world, workers, True
        self.pace = Pace(workers, relay=isinstance(self, Relay))
        self.pace.round_trip = world.case.link
        self.pace.record(4.0 * workers * world.case.seconds, 4 * workers)  # speeds are known
        self._ready: list[int] = []
        self._sent, self._told, self._gathering = -math.inf, 0, False
        self.refill_at = 0

    def all_granted(self, batch: int) -> None:
        """Learn that the head has no more members."""
        self._told = batch

    def gather(self, member: int) -> None:
        """Add a result to those that are to be sent."""
        self._ready.append(member)
        if not self._gathering:
            self._gathering = True
            self.world.at(self.world.now + self.pace.gather_seconds, self._send, self.world.batch)

    def clear(self) -> None:
        """Forget the last batch."""
        self._ready, self._gathering, self._sent = [], False, self.world.now

    def _send(self, batch: int) -> None:
        world = self.world
        if batch != world.batch or not self._gathering:
            return
        since, usual = world.now - self._sent, world.case.seconds
        if self._told == batch:
            waits = gathers_at_end(self.held, self.workers, usual, since)
        else:
            waits = gathers_for(self.waiting, self.refill_at, self.workers, usual, since)
        if waits and self.present:
            world.at(world.now + max(waits, self.pace.gather_seconds), self._send, batch)
            return
        self._gathering = False
        if self.present:
            world.deliver(self.above.take, self.number, batch, np.array(sorted(self._ready)))
        self._ready, self._sent = [], world.now

    @property
    def waiting(self) -> int:
        """Members that it has not begun."""
        raise NotImplementedError

    @property
    def held(self) -> int:
        """Members that it has to return."""
        raise NotImplementedError


class Node(Gatherer):
    """Workers and a queue."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        super().__init__(world, WORKERS)
        self._queue: deque[int] = deque()
        self._running, self._life = 0, 0
        self._rng = rng
        if world.case.leaving:
            self._live()

    waiting = property(lambda self: len(self._queue))
    held = property(lambda self: len(self._queue) + self._running)

    def grant(self, batch: int, members: Members) -> None:
        """Take members."""
        if batch == self.world.batch and self.present:
            self._queue.extend(members.tolist())
            self._work()

    def clear(self) -> None:
        """Forget the last batch; what runs goes on to its end."""
        super().clear()
        self._queue.clear()

    def _work(self) -> None:
        world, queue = self.world, self._queue
        while self._running < WORKERS and queue:
            member = queue.popleft()
            self._running += 1
            world.at(world.now + world.durations[member], self._end, world.batch, member, self._life)

    def _end(self, batch: int, member: int, life: int) -> None:
        if life != self._life:
            return
        self._running -= 1
        if batch == self.world.batch:
            self.gather(member)
        self._work()

    def _live(self) -> None:
        self.world.at(self.world.now + self._rng.exponential(60.0 / self.world.case.leaving), self._die)

    def _die(self) -> None:
        self.present, self._life, self._running = False, self._life + 1, 0
        self.clear()
        self.above.lose(self.number)
        self.world.at(self.world.now + 30.0, self._return)

    def _return(self) -> None:
        self.present = True
        self.above.gain(self.number)
        self._live()


class Relay(Gatherer):
    """A head to its nodes, and a node to its head: its schedule has numbers of its own for its members."""

    def __init__(self, world: World, nodes: list[Node]) -> None:
        super().__init__(world, WORKERS * len(nodes))
        self.desk = _RelayDesk(self, world, nodes)

    waiting = property(lambda self: max(0, self.desk.scheduler.remaining - self.workers))
    held = property(lambda self: self.desk.scheduler.remaining)

    def grant(self, batch: int, members: Members) -> None:
        """Take members."""
        if batch == self.world.batch:
            self.desk.add(members)

    def all_granted(self, batch: int) -> None:
        """Learn that the head has no more members; the nodes are told when the relay has none either."""
        super().all_granted(batch)
        self.desk.scheduler.more = self.desk.scheduler.more and batch != self.world.batch
        self.desk.wake()

    def clear(self) -> None:
        """Forget the last batch."""
        super().clear()
        self.desk.renew()


class _RelayDesk(Desk):
    """The desk of a relay, whose batch grows by what is granted to it."""

    def __init__(self, relay: Relay, world: World, nodes: list[Node]) -> None:
        self._relay = relay
        self._members: Members = np.empty(0, np.int64)
        self._own: dict[int, int] = {}
        self._granted = 0
        super().__init__(world, nodes)

    last = property(lambda self: self._relay._told == self.world.batch)

    def renew(self) -> None:
        """Begin a batch, of no members so far."""
        capacity = 3 * MEMBERS * self._relay.workers
        self._members, self._own, self._granted = np.empty(capacity, np.int64), {}, 0
        self.begin(Scheduler(capacity, offered=False))
        for node in self.below:
            node.clear()

    def add(self, members: Members) -> None:
        """Take members of the head's."""
        own = np.arange(self._granted, self._granted + len(members))
        self._granted += len(members)
        self._members[own] = members
        self._own.update(zip(members.tolist(), own.tolist(), strict=True))
        self.scheduler.offer(own)
        self.wake()

    def named(self, members: Members) -> Members:
        """Return the head's numbers."""
        return self._members[members]

    def took(self, number: int, members: Members) -> None:
        """Record results, and pass on those that are new."""
        own = np.array(sorted(self._own[member] for member in members.tolist()))
        for member in self._members[own[self.scheduler.done(number, own, self.world.now)]].tolist():
            self._relay.gather(member)


@dataclass
class Row:
    """What a case came to."""

    efficiency: float
    head: float
    relay: float


def simulate(case: Case) -> Row:
    """Return the mean over some batches; over more where nodes are killed at random."""
    world, rng = World(case), np.random.default_rng(0)
    nodes = [Node(world, rng) for _ in range(case.workers // WORKERS)]
    relays = [Relay(world, nodes[k :: case.relays]) for k in range(case.relays)]
    head = Desk(world, relays or nodes)
    ideal = taken = busy = 0.0
    for seed in range(8 if case.leaving else 2):
        world.durations = (case.seconds * drawn(MEMBERS * case.workers, seed, case.spread)).tolist()
        world.batch += 1
        for each in relays or nodes:
            each.clear()
        head.begin(Scheduler(len(world.durations)))
        begun = world.now
        before = [desk.busy for desk in (head, *(relay.desk for relay in relays))]
        world.at(world.now + GRANT_SECONDS * len(head.below), head.wake)  # each is told of the batch
        world.run(lambda: head.scheduler.complete)
        taken += world.now - begun
        present = sum(node.present for node in nodes) * WORKERS
        ideal += ideal_seconds(np.array(world.durations), [(0.0, 1.0)] * present)
        spent = [desk.busy - each for desk, each in zip((head, *(r.desk for r in relays)), before, strict=True)]
        busy += spent[0]
    relay = max(spent[1:], default=math.nan) / (world.now - begun)
    return Row(ideal / taken, busy / taken, relay)


def costs() -> None:
    """Print the processor time of what the head does with a message, without the socket and the loop of asyncio."""
    for count in (18, 5_000):
        members = np.arange(count)
        done = wire.Done(
            batch=3,
            theta_hash="0" * 16,
            ranges=wire.ranges_of(members),
            returns=np.zeros(count),
            lengths=np.ones(count, np.uint16),
            status=None,
            sums=None,
            behaviours=None,
            halves=None,
            busy=1.0,
            errors=[],
        )
        head, node = HeadSide(2**31), NodeSide(2**31)
        head.state = node.state = State.NODE
        head._decoder.limit = 2**31
        data = node.send(done)

        def receive(data: bytes = data, head: HeadSide = head) -> None:
            head.receive(data)

        def grant(members: Members = members, head: HeadSide = head) -> None:
            head.send(wire.Grant(3, wire.ranges_of(members), 1, 0.005))

        read, granted = (timeit.timeit(each, timer=time.process_time, number=500) / 500 for each in (receive, grant))
        figures = [1e6 * each for each in (read, booked(count), granted)]
        print("{:>6,} members: {:6.1f} us to read, {:6.1f} us to record, {:6.1f} us to grant".format(count, *figures))


def booked(count: int) -> float:
    """Return the seconds of the schedule for results, and for the grant that follows."""
    rounds = 200
    scheduler, pace = Scheduler(rounds * count), Pace(max(1, count // 3))
    pace.record(1.0 * pace.workers, pace.workers)
    scheduler.join(0, pace)
    held: deque[Members] = deque(members for _, members in scheduler.grants(0.0))
    begun, turns, now = time.process_time(), 0, 0.0
    while held and turns < rounds:
        now, turns = now + 1.0, turns + 1
        scheduler.done(0, held.popleft(), now)
        held.extend(members for _, members in scheduler.grants(now))
    return (time.process_time() - begun) / turns


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"costs, or of {', '.join(CASES)}")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="take rows from this file, and keep new ones there")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw efficiency over workers")
    options = parser.parse_args()
    if "costs" in options.cases:
        costs()
        return
    found = kept(options.rows) if options.rows else {}
    print("| workers | relays | member, s | deviation | link, ms | killed a minute | efficiency | head | relay |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.cases or CASES:
        case = CASES[name]
        if case not in found:
            found[case] = simulate(case)
            if options.rows:
                keep(options.rows, name, found[case])
        row = found[case]
        cells = [f"{case.workers:,}", case.relays or "", f"{case.seconds:g}", f"{case.spread * case.seconds:g}"]
        cells += [f"{1e3 * case.link:g}", f"{case.leaving:.0%}", f"{row.efficiency:.3f}", f"{row.head:.2f}"]
        print(f"| {' | '.join(map(str, cells))} | {'' if math.isnan(row.relay) else f'{row.relay:.2f}'} |", flush=True)
    if options.figure:
        draw(found, options.figure)


def kept(path: Path) -> dict[Case, Row]:
    """Return the rows in a file; none if it does not exist."""
    if not path.exists():
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        return {CASES[name]: Row(*map(float, figures)) for name, *figures in csv.reader(file)}


def keep(path: Path, name: str, row: Row) -> None:
    """Add a row to a file."""
    with open(path, "a", newline="", encoding="utf-8") as file:
        figures = [f"{each:.4f}" for each in (row.efficiency, row.head, row.relay)]
        csv.writer(file, lineterminator="\n").writerow([name, *figures])


def draw(found: dict[Case, Row], path: Path) -> None:
    """Draw the efficiency of the curves, and what was measured with the real head."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, curve in CURVES.items():
        known = [case for case in curve if case in found]
        who, seconds = name.split("-")
        label = f"{'one head' if who == 'head' else 'relays of 5,000 workers'}, members of {seconds[:-1]} s"
        color, line = "C0" if who == "head" else "C1", "-" if seconds == "1s" else "--"
        efficiency = [found[case].efficiency for case in known]
        axes.plot([case.workers for case in known], efficiency, line, marker=".", color=color, label=label)
    axes.plot(*zip(*REAL.items(), strict=True), "kx", label="measured: one head, members of 1 s")
    axes.set(xscale="log", xlabel="workers", ylabel="efficiency", ylim=(0, 1.05))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize=8)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
