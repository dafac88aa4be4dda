"""Which node evaluates which member: invariants under any interleaving, and short batches in virtual time."""

import math
from collections.abc import Set

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from numpy.typing import NDArray
from virtual_nodes import VirtualCluster, VirtualNode, ideal_seconds

from pyes.remote.pace import Pace
from pyes.remote.scheduler import Scheduler


def members(*of: int) -> NDArray[np.int64]:
    return np.array(of, np.int64)


def known(workers: int, seconds: float, round_trip: float = 0.0) -> Pace:
    """Return the pace of a node that has returned much."""
    pace = Pace(workers)
    pace.round_trip = round_trip
    pace.record(1000 * workers * seconds, 1000 * workers)
    return pace


def drawn(count: int, seed: int, spread: float = 0.3) -> NDArray[np.float64]:
    """Return seconds of members: log-normal, with mean 1 and this standard deviation."""
    variance = math.log(1.0 + spread**2)
    return np.random.default_rng(seed).lognormal(-variance / 2.0, math.sqrt(variance), count)


# Any interleaving


class AnyInterleaving(RuleBasedStateMachine):
    """Nodes that come, go, answer in any order, late and twice; a plain model beside the scheduler."""

    nodes = Bundle("nodes")
    COUNT = 60

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(self.COUNT)
        self.now = 0.0
        self.name = 0
        self.held: dict[int, set[int]] = {}
        self.answered: dict[int, set[int]] = {}
        self.done: set[int] = set()
        self.retired: set[int] = set()
        self.lost = self.rerun = self.duplicates = 0

    @rule(
        target=nodes,
        workers=st.integers(1, 20),
        seconds=st.sampled_from([None, 1e-6, 0.01, 1.0, 50.0]),
        round_trip=st.sampled_from([0.0, 0.05]),
    )
    def join(self, workers: int, seconds: float | None, round_trip: float) -> int:
        pace = Pace(workers) if seconds is None else known(workers, seconds)
        pace.round_trip = round_trip
        self.name += 1
        self.scheduler.join(self.name, pace)
        self.held[self.name], self.answered[self.name] = set(), set()
        return self.name

    @rule(target=nodes, node=consumes(nodes), comes_back=st.booleans())
    def leave(self, node: int, comes_back: bool) -> object:
        gone = self.held.pop(node) - self.done
        del self.answered[node]
        self.retired.discard(node)
        back = gone.difference(*self.held.values())
        assert self.scheduler.leave(node) == len(back)
        self.lost += len(back)
        if not comes_back:
            return multiple()
        self.scheduler.join(node, Pace(2))
        self.held[node], self.answered[node] = set(), set()
        return node

    @rule(node=nodes, data=st.data())
    def retire(self, node: int, data: st.DataObject) -> None:
        """Let a node hand back what it has not begun; it may name members that it has returned meanwhile."""
        held = self.held[node]
        named = data.draw(st.sets(st.sampled_from(sorted(held | self.answered[node])))) if held else set()
        handed_back = held - named
        self.held[node] = held & named
        back = (handed_back - self.done).difference(*self.held.values())
        assert self.scheduler.retire(node, members(*sorted(named)), self.now) == len(back)
        assert self.scheduler.holds(node) == bool(self.held[node])
        self.retired.add(node)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 10.0, 1000.0]))
    def grant(self, seconds: float) -> None:
        self.now += seconds
        grants = self.scheduler.grants(self.now)
        assert len({node for node, _ in grants}) == len(grants)
        for node, given in grants:
            assert node not in self.retired
            assert (np.diff(given) > 0).all()
            each = set(given.tolist())
            assert len(each) > 0
            assert not each & self.done
            assert not each & self.held[node]
            others = [held for name, held in self.held.items() if name != node]
            self.rerun += len(each & set().union(*others))
            self.held[node] |= each
        for member in range(self.COUNT):
            assert sum(member in held for held in self.held.values()) <= 3

    @rule(node=nodes, data=st.data(), seconds=st.sampled_from([0.0, 0.01, 2.0]))
    def answer(self, node: int, data: st.DataObject, seconds: float) -> None:
        if self.held[node]:
            chosen = data.draw(st.sets(st.sampled_from(sorted(self.held[node])), min_size=1))
            failed = data.draw(st.just(set()) | st.sets(st.sampled_from(sorted(chosen))))
            self.return_members(node, chosen, seconds, failed)

    @rule(node=nodes, data=st.data())
    def answer_again(self, node: int, data: st.DataObject) -> None:
        """Old results, some of them beside new ones."""
        if self.answered[node]:
            chosen = data.draw(st.sets(st.sampled_from(sorted(self.answered[node] | self.held[node])), min_size=1))
            self.return_members(node, chosen, 0.0)

    def return_members(self, node: int, chosen: set[int], seconds: float, failed: Set[int] = frozenset()) -> None:
        """Return members, some of which failed, which counts or not; the last node is always believed."""
        self.now += seconds
        ordered = sorted(chosen)
        which = np.array([member in failed for member in ordered]) if failed else None
        new = set(np.array(ordered)[self.scheduler.done(node, members(*ordered), self.now, which)].tolist())
        not_done = chosen - self.done
        assert not_done - failed <= new <= not_done
        if len(self.held) == 1:
            assert new == not_done
        self.duplicates += len(chosen & self.done)
        self.done |= new
        self.held[node] -= chosen
        self.answered[node] |= chosen

    @rule(node=nodes, member=st.integers(0, COUNT - 1))
    def lie(self, node: int, member: int) -> None:
        if member not in self.held[node] | self.answered[node]:
            with pytest.raises(ValueError, match="it returned"):
                self.scheduler.done(node, members(member), self.now)

    @rule()
    def withdraw(self) -> None:
        for node, dropped in self.scheduler.withdrawn(self.now):
            each = set(dropped.tolist())
            assert (np.diff(dropped) > 0).all()
            assert each <= self.held[node] & self.done
            self.held[node] -= each
            self.answered[node] |= each  # it may have begun them, and may yet answer

    @invariant()
    def counters_agree(self) -> None:
        assert self.scheduler.remaining == self.COUNT - len(self.done)
        assert self.scheduler.complete == (len(self.done) == self.COUNT)
        assert self.scheduler.lost == self.lost
        assert self.scheduler.rerun == self.rerun
        assert self.scheduler.duplicates == self.duplicates

    def teardown(self) -> None:
        """Whatever has happened: with one node that answers, the others gone, the batch ends."""
        for node in list(self.held):
            self.leave(node, False)
        last = self.join(3, None, 0.05)
        for _ in range(self.COUNT):
            self.grant(0.1)
            if self.held[last]:
                self.return_members(last, set(self.held[last]), 0.1)
        assert self.scheduler.complete
        assert self.scheduler.grants(self.now) == []


class AnyInterleavingOfARelay(AnyInterleaving):
    """Members are offered in parts, and taken back with results or without; nodes have more workers or fewer."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(self.COUNT, offered=False)
        self.done = set(range(self.COUNT))  # or not offered, or revoked
        self.never_offered = set(self.done)

    @rule(data=st.data())
    def offer(self, data: st.DataObject) -> None:
        if self.never_offered:
            chosen = data.draw(st.sets(st.sampled_from(sorted(self.never_offered)), min_size=1))
            self.scheduler.offer(members(*sorted(chosen)))
            self.never_offered -= chosen
            self.done -= chosen

    @rule(data=st.data())
    def offer_again(self, data: st.DataObject) -> None:
        """As the head does when another node has left to which it had given them."""
        if over := self.done - self.never_offered - set().union(*self.held.values()):
            chosen = data.draw(st.sets(st.sampled_from(sorted(over)), min_size=1))
            self.scheduler.offer(members(*sorted(chosen)))
            self.done -= chosen

    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sets(st.integers(0, self.COUNT - 1))) - self.never_offered
        self.scheduler.revoke(members(*sorted(chosen)))
        self.done |= chosen

    @rule(node=AnyInterleaving.nodes, workers=st.integers(1, 20))
    def resize(self, node: int, workers: int) -> None:
        self.scheduler.resize(node, workers, self.now)

    @invariant()
    def free_and_held_are_told(self) -> None:
        held = set().union(*self.held.values()) - self.done
        assert set(self.scheduler.held.tolist()) == held
        assert set(self.scheduler.free.tolist()) == set(range(self.COUNT)) - self.done - held


TestAnyInterleaving = AnyInterleaving.TestCase
TestAnyInterleaving.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyInterleavingOfARelay = pytest.mark.slow(AnyInterleavingOfARelay.TestCase)
TestAnyInterleavingOfARelay.settings = TestAnyInterleaving.settings


# Handing out


def test_grants_of_one_member_a_worker_are_even():
    scheduler = Scheduler(36)
    for node, round_trip in ((1, 0.0), (2, 0.05)):
        scheduler.join(node, known(18, 1.0, round_trip))
    assert [(node, given.tolist()) for node, given in scheduler.grants(0.0)] == [
        (1, list(range(18))),
        (2, list(range(18, 36))),
    ]
    assert scheduler.grants(0.0) == []


def test_grants_to_an_unknown_node_are_its_workers_and_a_little():
    scheduler = Scheduler(1000)
    scheduler.join(1, Pace(16))
    ((_, given),) = scheduler.grants(0.0)
    assert 16 < len(given) <= 24


def test_grants_bridge_a_round_trip():
    scheduler = Scheduler(1_000_000)
    scheduler.join(1, known(4, 0.001, round_trip=0.05))
    ((_, given),) = scheduler.grants(0.0)
    assert 4 * 50 < len(given) < 4 * 300


def test_a_queue_is_never_longer_than_the_batch_even_if_results_come_sooner_than_a_round_trip():
    scheduler = Scheduler(1_000)
    one = Pace(64)
    one.round_trip = 7.0  # measured while the node was stopped
    scheduler.join(1, one)
    ((_, given),) = scheduler.grants(0.0)
    scheduler.done(1, given[:40], 0.02)
    scheduler.grants(0.02)
    refill_at, gather = scheduler.terms(1)
    assert 0 <= refill_at <= 1_000
    assert gather == pytest.approx(0.04)


def test_grants_follow_speed():
    scheduler = Scheduler(3_000)
    scheduler.join(1, known(4, 0.01, round_trip=5.0))
    scheduler.join(2, known(4, 0.02, round_trip=5.0))
    (_, fast), (_, slow) = scheduler.grants(0.0)
    assert len(fast) == pytest.approx(2 * len(slow), rel=0.05)


def test_a_small_batch_is_handed_out_at_once():
    scheduler = Scheduler(10)
    for node in range(20):
        scheduler.join(node, known(18, 0.9 + 0.01 * node))
    grants = scheduler.grants(0.0)
    assert sum(len(given) for _, given in grants) == 10
    assert max(len(given) for _, given in grants) <= 2


def test_a_small_batch_goes_to_the_fast():
    scheduler = Scheduler(2)
    scheduler.join(1, known(18, 10.0))
    scheduler.join(2, known(2, 1.0))
    assert [(node, len(given)) for node, given in scheduler.grants(0.0)] == [(2, 2)]


def test_members_of_a_lost_node_are_handed_out_again_in_few_ranges():
    scheduler = Scheduler(100)
    scheduler.join(1, known(10, 1.0))
    scheduler.join(2, known(10, 1.0))
    first = dict(scheduler.grants(0.0))
    assert scheduler.leave(1) == scheduler.lost == len(first[1])
    scheduler.done(2, first[2], 1.0)
    ((_, again),) = scheduler.grants(1.0)
    assert again.tolist()[: len(first[1])] == first[1].tolist()


def test_members_that_a_leaving_node_hands_back_are_not_lost():
    scheduler = Scheduler(100)
    scheduler.join(1, known(10, 1.0))
    scheduler.join(2, known(10, 1.0))
    first = dict(scheduler.grants(0.0))
    running = first[1][:10]
    assert scheduler.retire(1, running, 0.5) == len(first[1]) - 10
    scheduler.done(2, first[2], 1.0)
    assert scheduler.holds(1)
    scheduler.done(1, running, 1.0)
    assert not scheduler.holds(1)
    ((node, again),) = scheduler.grants(1.0)
    assert (node, again[0], scheduler.lost) == (2, first[1][10], 0)


def test_a_member_that_is_late_is_run_by_an_idle_node():
    scheduler = Scheduler(2)
    scheduler.join(1, known(1, 1.0))
    scheduler.join(2, known(1, 1.0))
    assert len(scheduler.grants(0.0)) == 2
    scheduler.done(2, members(1), 1.0)
    assert scheduler.grants(1.1) == []  # it may be there any moment
    ((node, again),) = scheduler.grants(2.5)
    assert (node, again.tolist(), scheduler.rerun) == (2, [0], 1)
    assert scheduler.done(2, again, 3.5).tolist() == [True]
    assert scheduler.done(1, again, 9.0).tolist() == [False]
    assert (scheduler.complete, scheduler.duplicates) == (True, 1)


def test_a_member_whose_holders_are_stuck_is_given_to_a_third_node_and_no_fourth():
    scheduler = Scheduler(4)
    for node in range(4):
        scheduler.join(node, known(1, 1.0))
    holder = {given.item(0): node for node, given in scheduler.grants(0.0)}
    for member in (1, 2, 3):
        scheduler.done(holder[member], members(member), 1.0)
    found = [len(scheduler.grants(float(moment))) for moment in range(1, 60)]
    assert sum(found) == 2
    assert found.index(1) <= 3
    assert scheduler.rerun == 2


def test_withdrawn_are_queued_members_that_others_have_returned():
    scheduler = Scheduler(40)
    scheduler.join(1, Pace(8))
    ((_, slow),) = scheduler.grants(0.0)
    assert len(slow) == 10
    scheduler.join(2, known(40, 0.01))
    ((_, rest),) = scheduler.grants(5.0)
    scheduler.done(2, rest, 5.01)
    ((_, again),) = scheduler.grants(50.0)
    assert again.tolist() == slow.tolist()
    scheduler.done(2, members(*again.tolist()[5:]), 50.01)
    assert [(node, gone.tolist()) for node, gone in scheduler.withdrawn(50.01)] == [(1, slow.tolist()[8:])]
    assert scheduler.withdrawn(50.01) == []


def test_members_offered_in_parts_are_handed_out_as_they_come():
    scheduler = Scheduler(100, offered=False)
    scheduler.join(1, known(4, 1.0))
    assert (scheduler.grants(0.0), scheduler.remaining) == ([], 0)
    for begin in (50, 10):
        offered = np.arange(begin, begin + 2)
        scheduler.offer(offered)
        ((_, given),) = scheduler.grants(0.0)
        assert given.tolist() == offered.tolist()
    assert scheduler.held.tolist() == [10, 11, 50, 51]
    assert scheduler.done(1, members(10, 50), 1.0).all()
    assert (scheduler.held.tolist(), scheduler.remaining) == ([11, 51], 2)


def test_results_of_revoked_members_do_not_count():
    scheduler = Scheduler(100, offered=False)
    scheduler.join(1, known(4, 1.0))
    scheduler.offer(np.arange(40))
    ((_, given),) = scheduler.grants(0.0)
    scheduler.revoke(members(0, 39))
    assert (39 in scheduler.free, 39 in given, scheduler.remaining) == (False, False, 38)
    assert scheduler.done(1, members(0, 1), 1.0).tolist() == [False, True]
    assert scheduler.remaining == 37


def test_revoked_members_are_withdrawn_from_a_nodes_queue():
    scheduler = Scheduler(40, offered=False)
    scheduler.join(1, known(4, 1.0))
    scheduler.offer(np.arange(40))
    ((_, given),) = scheduler.grants(0.0)
    assert len(given) > 4
    scheduler.revoke(np.arange(40))
    assert [(node, gone.tolist()) for node, gone in scheduler.withdrawn(0.5)] == [(1, given.tolist()[4:])]
    assert scheduler.remaining == 0


def test_a_node_with_more_workers_is_granted_more():
    scheduler = Scheduler(1000)
    scheduler.join(1, known(4, 1.0))
    ((_, before),) = scheduler.grants(0.0)
    scheduler.resize(1, 40, 0.1)
    ((_, more),) = scheduler.grants(0.1)
    assert len(before) + len(more) >= 40
    assert scheduler.held.size == len(before) + len(more)


def test_done_refuses_what_cannot_be():
    scheduler = Scheduler(10)
    scheduler.join(1, Pace(2))
    scheduler.grants(0.0)
    with pytest.raises(ValueError, match=r"^it returned 1 members that it was not given"):
        scheduler.done(1, members(0, 9), 1.0)
    with pytest.raises(ValueError, match="node 7"):
        scheduler.done(7, members(0), 1.0)
    with pytest.raises(ValueError, match="already takes part"):
        scheduler.join(1, Pace(2))
    assert scheduler.leave(7) == 0
    assert scheduler.remaining == 10


def test_pace_follows_a_change_of_speed():
    pace = known(4, 1.0)
    assert pace.seconds_per_member == pytest.approx(1.0)
    for _ in range(40):
        pace.record(4 * 0.1, 4)
    assert pace.seconds_per_member == pytest.approx(0.1, rel=0.1)


# In virtual time


def test_two_nodes_end_short_batches_of_short_members_together():
    """Batches of a quarter of a second, as of a small environment on two machines."""
    cluster = VirtualCluster([VirtualNode(1, 0.001) for _ in range(2)])
    cluster.evaluate(0.0026 * drawn(200, 0, 0.6))
    messages = cluster.messages + cluster.answers
    found = [efficiency(cluster, 0.0026 * drawn(200, seed, 0.6), [(0.0, 1.0)] * 2) for seed in range(1, 11)]
    assert np.mean(found) > 0.96  # 0.89 if results are gathered for 40 ms
    assert (cluster.messages + cluster.answers - messages) / 10 < 60


def efficiency(cluster: VirtualCluster, durations: NDArray[np.float64], workers: list[tuple[float, float]]) -> float:
    """Run a batch; return what the same workers in one machine would have taken, as a share of what it took."""
    begun = cluster.now
    cluster.evaluate(durations)
    assert (cluster.times_done == 1).all()
    return ideal_seconds(durations, workers) / (cluster.now - begun)


@pytest.mark.slow
@pytest.mark.parametrize("round_trip", [0.0, 0.001, 0.05])
@pytest.mark.parametrize("each", [5, 10])
def test_equal_nodes_come_close_to_the_ideal(each: int, round_trip: float):
    cluster = VirtualCluster([VirtualNode(18, round_trip) for _ in range(80)])
    cluster.evaluate(np.ones(1440))  # from here on speeds are known
    assert efficiency(cluster, drawn(1440 * each, seed=each), [(0.0, 1.0)] * 1440) >= 0.95
    assert cluster.scheduler.rerun < 0.02 * 1440 * each


def test_equal_nodes_of_unknown_speed_come_close_to_the_ideal():
    cluster = VirtualCluster([VirtualNode(18, 0.05) for _ in range(10)])
    assert efficiency(cluster, drawn(1800, seed=2), [(0.0, 1.0)] * 180) >= 0.95


def test_a_node_that_is_slower_holds_nobody_up():
    slow = VirtualNode(18, 0.001, slowness=10.0)
    cluster = VirtualCluster([VirtualNode(18, 0.001) for _ in range(9)] + [slow])
    workers = [(0.0, 1.0)] * 162 + [(0.0, 10.0)] * 18
    assert efficiency(cluster, drawn(900, 0), workers) >= 0.85  # its speed is unknown: its members are run again
    for seed in range(1, 4):
        assert efficiency(cluster, drawn(900, seed), workers) >= 0.95


def test_a_node_that_was_slow_is_tried_again():
    once_slow = VirtualNode(18, 0.001, slowness=10.0)
    cluster = VirtualCluster([VirtualNode(18, 0.001), once_slow])
    for seed in range(3):
        cluster.evaluate(drawn(180, seed))
    once_slow.slowness = 1.0
    for seed in range(3, 11):
        cluster.evaluate(drawn(180, seed))
    before = once_slow.evaluated
    cluster.evaluate(drawn(180, 11))
    assert once_slow.evaluated - before > 60  # its share is 90


def test_a_node_that_never_returns_anything_gets_less_and_less():
    pace, mute = Pace(2), Pace(64)
    granted = []
    now = 0.0
    for _ in range(20):
        scheduler, queue, running = Scheduler(40), [], []
        scheduler.join(1, pace)
        scheduler.join(2, mute)
        granted.append(0)
        while not scheduler.complete:
            for node, members in scheduler.grants(now):
                if node == 1:
                    queue.extend(members.tolist())
                else:
                    granted[-1] += len(members)
            while queue and len(running) < 2:
                running.append((now + 0.02, queue.pop(0)))
            now += 0.005
            done = np.array(sorted(member for end, member in running if end <= now), np.int64)
            running = [each for each in running if each[0] > now]
            if len(done):
                scheduler.done(1, done, now)
            scheduler.withdrawn(now)
    assert granted[0] > 20  # nothing is known of it yet
    assert max(granted[-10:]) <= 1


def test_a_node_that_stops_costs_its_share_and_two_members_times_at_most():
    stopped = VirtualNode(18, 0.001, stops=3.0)
    cluster = VirtualCluster([VirtualNode(18, 0.001) for _ in range(9)] + [stopped])
    durations = drawn(900, seed=3)
    cluster.evaluate(durations)
    assert cluster.now <= ideal_seconds(durations, [(0.0, 1.0)] * 162) + 2.0
    assert cluster.scheduler.rerun >= 18


def test_a_node_that_stops_at_the_end_costs_two_members_times_at_most():
    stopped = VirtualNode(4, 0.05, stops=5.5)
    cluster = VirtualCluster([VirtualNode(4, 0.05), stopped])
    durations = np.ones(48)
    cluster.evaluate(durations)
    assert 6.0 < cluster.now <= 6.0 + 2.0 + 7 * stopped.pace.bridge


def test_nodes_that_join_in_the_middle_take_their_share():
    late = [VirtualNode(18, 0.05, joins=3.0) for _ in range(5)]
    cluster = VirtualCluster([VirtualNode(18, 0.05) for _ in range(5)] + late)
    assert efficiency(cluster, drawn(1800, seed=4), [(0.0, 1.0)] * 90 + [(3.0, 1.0)] * 90) >= 0.95
    assert min(node.evaluated for node in late) > 100


def test_short_members_keep_the_pipeline_full_over_a_slow_link():
    cluster = VirtualCluster([VirtualNode(4, 0.05) for _ in range(2)])
    cluster.evaluate(np.full(2_000, 0.001))
    assert efficiency(cluster, np.full(20_000, 0.001), [(0.0, 1.0)] * 8) >= 0.95


def test_costless_members_take_few_round_trips():
    cluster = VirtualCluster([VirtualNode(1, 0.05) for _ in range(2)])
    cluster.evaluate(np.full(20_000, 1e-5))
    assert cluster.now < 0.1 + 9 * 0.08  # nothing was known of their speed
    begun, messages = cluster.now, cluster.messages
    cluster.evaluate(np.full(20_000, 1e-5))
    assert cluster.now - begun < 0.1 + 2 * 0.08
    assert cluster.messages - messages <= 12
    assert cluster.scheduler.rerun <= 2  # of 20,000


@pytest.mark.slow
def test_many_nodes_are_granted_several_members_at_a_time_to_the_end():
    """Members of 50 ms, 32,000 a second in all: the head could not answer a message for every few of them."""
    cluster = VirtualCluster([VirtualNode(4, 0.001) for _ in range(400)])
    cluster.evaluate(0.05 * drawn(32_000, 0))
    messages = cluster.messages
    found = [efficiency(cluster, 0.05 * drawn(32_000, seed), [(0.0, 1.0)] * 1600) for seed in (1, 2)]
    assert np.mean(found) > 0.9
    assert (cluster.messages - messages) / 2 / 400 < 10  # 11.5 if they are granted one by one


FAILED, EVALUATED = np.array([True]), np.array([False])


def test_a_failure_counts_at_once_on_a_node_that_evaluates_other_members():
    scheduler = Scheduler(3)
    scheduler.join(1, known(3, 0.01))
    scheduler.join(2, known(3, 10.0))
    given = dict(scheduler.grants(0.0))[1]
    assert scheduler.done(1, given[:2], 0.01, np.array([True, False])).all()
    assert scheduler.done(1, given[2:], 0.02, FAILED).all()  # the first one after that
    assert scheduler.complete


def test_a_member_that_failed_where_none_is_evaluated_is_run_by_another_node_even_if_that_comes_late():
    scheduler = Scheduler(4)
    scheduler.join(1, known(4, 0.01))
    scheduler.join(2, known(1, 10.0))
    given = dict(scheduler.grants(0.0))[1]
    assert given.tolist() == [0, 1, 2, 3]
    assert not scheduler.done(1, given, 0.01, np.full(4, True)).any()
    ((node, again),) = scheduler.grants(0.02)
    assert (node, again.tolist(), scheduler.remaining) == (2, [0], 4)
    assert scheduler.grants(100.0) == []  # nor does the first one run it because it is late
    assert scheduler.done(2, again, 101.0, FAILED).all()  # the second failure
    ((node, again),) = scheduler.grants(102.0)
    assert (node, again.tolist()) == (2, [1])
    assert scheduler.done(2, again, 103.0, EVALUATED).all()
    ((node, again),) = scheduler.grants(104.0)
    assert scheduler.done(2, again, 105.0, FAILED).all()
    assert scheduler.remaining == 1


def test_nodes_on_which_all_fail_do_not_confirm_each_other_while_another_one_evaluates():
    """Two of them, as on one full disk, and one that works; they fail at once, and it takes a second."""
    scheduler, status = Scheduler(40), {}
    for node in (1, 2, 3):
        scheduler.join(node, Pace(2))
    now, works = 0.0, set()
    while not scheduler.complete:
        grants, now = scheduler.grants(now), now + 0.01
        for node, given in grants:
            if node == 3:
                works |= set(given.tolist())
                continue
            new = scheduler.done(node, given, now, np.full(len(given), True))
            status |= dict.fromkeys(given[new].tolist(), "failed")
        if not grants:
            now += 1.0
            given = members(*sorted(works))
            new, works = scheduler.done(3, given, now, np.full(len(given), False)), set()
            status |= dict.fromkeys(given[new].tolist(), "evaluated")
    assert set(status.values()) == {"evaluated"}


def test_a_member_that_failed_waits_for_no_node_that_has_left():
    scheduler = Scheduler(1)
    scheduler.join(1, known(1, 0.01))
    scheduler.join(2, known(1, 0.01))
    ((node, given),) = scheduler.grants(0.0)
    assert not scheduler.done(node, given, 0.01, FAILED).any()
    scheduler.leave(3 - node)
    assert [name for name, _ in scheduler.grants(0.02)] == [node]
    assert scheduler.done(node, given, 0.03, FAILED).all()


def test_a_member_that_a_relay_is_given_again_is_run_again():
    scheduler = Scheduler(1, offered=False)
    scheduler.join(1, known(1, 0.01))
    scheduler.join(2, known(1, 0.01))
    for begin in (0.0, 1.0):
        scheduler.offer(members(0))
        assert not scheduler.complete
        while not scheduler.complete:
            begin += 0.01
            ((node, given),) = scheduler.grants(begin)
            scheduler.done(node, given, begin, FAILED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "workers", "slowness"), [(0.6, 1, 5.0), (0.9, 4, 1.0)], ids=["one is slower", "equal nodes"]
)
def test_members_that_fail_everywhere_end_a_batch(share, workers, slowness):
    """Nodes that evaluate some members and fail in others may get none for a while, now one and now the other."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        cluster = VirtualCluster([VirtualNode(workers), VirtualNode(workers, slowness=slowness)])
        for _ in range(6):
            failing = set(np.flatnonzero(rng.random(30) < share).tolist())
            for node in cluster.nodes:
                node.fails = failing
            cluster.evaluate(rng.lognormal(-2.35, 0.3, 30), limit=100.0)
            assert (cluster.times_done == 1).all()


def test_members_that_a_node_is_given_again_are_withdrawn_once():
    """Three failed on it; then it evaluates one, is given them again, and another node is sooner."""
    scheduler = Scheduler(12)
    for node in (1, 2):
        scheduler.join(node, Pace(1))
    queues: dict[int, list[int]] = {1: [], 2: []}
    now = 0.0

    def hand_out() -> None:
        for node, given in scheduler.grants(now):
            queues[node] += given.tolist()

    hand_out()
    for failed in (True, True, True, False):
        now += 0.01
        scheduler.done(1, members(queues[1].pop(0)), now, np.array([failed]))
        hand_out()
    withdrawn = []
    while not scheduler.complete:
        if not queues[2]:
            now += 1.0  # the first node is late
            hand_out()
            continue
        now += 0.01
        scheduler.done(2, members(queues[2].pop(0)), now, EVALUATED)
        withdrawn += [given.tolist() for node, given in scheduler.withdrawn(now) if node == 1]
        hand_out()
    assert withdrawn
    assert all(given == sorted(set(given)) for given in withdrawn)
    assert scheduler.holds(1)  # what it runs


def test_a_slow_node_gets_the_members_that_fail_on_a_fast_one():
    fast, slow = VirtualNode(4), VirtualNode(4, slowness=20.0)
    cluster = VirtualCluster([fast])
    cluster.evaluate(np.full(40, 0.02))
    cluster.nodes.append(slow)
    fast.fails = range(40)
    for _ in range(3):
        before = slow.evaluated
        cluster.evaluate(np.full(40, 0.02), limit=100.0)
        assert slow.evaluated >= before + 38  # the first failure after a success counts
