"""How long nodes gather results, and what the head thinks of a node that is silent."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyes.remote.pace import Load, Pace, gathers_at_end, gathers_for, least_gather

SECONDS = st.floats(1e-7, 1e4)


def pace(seconds: float, *, workers: int = 4, round_trip: float = 0.0, least: float = 0.005) -> Pace:
    made = Pace(workers)
    made.record(1000 * workers * seconds, 1000 * workers)
    made.round_trip, made.least_gather = round_trip, least
    return made


def test_more_nodes_send_no_more_messages_in_all_until_there_are_many():
    assert least_gather(0) == least_gather(8) == 0.005
    assert least_gather(32) == pytest.approx(0.02)
    assert least_gather(64) == least_gather(10_000) == 0.04


@pytest.mark.parametrize(
    ("seconds", "round_trip", "gathered"),
    [(0.001, 0.0, 0.005), (0.5, 0.0, 0.02), (100.0, 0.0, 0.04), (0.001, 0.1, 0.025), (0.001, 3.0, 0.04)],
)
def test_node_gathers_longer_where_members_or_messages_take_long(seconds, round_trip, gathered):
    assert pace(seconds, round_trip=round_trip).gather_seconds == pytest.approx(gathered)


def test_node_gathers_as_one_of_many_until_nodes_are_counted():
    assert Pace(4).gather_seconds == 0.04


def test_node_gathers_until_its_queue_is_as_long_as_that_with_which_it_gets_more():
    assert gathers_for(30, 10, 2, 0.01, 0.0) == pytest.approx(0.1)
    assert gathers_for(10, 10, 2, 0.01, 0.0) == 0.0
    assert gathers_for(-2, 0, 2, 0.01, 0.0) == 0.0
    assert gathers_for(30, 10, 2, 0.0, 0.0) == 0.0, "before the first result"


def test_node_gathers_at_the_end_for_a_quarter_of_what_its_members_take_and_sends_the_last_at_once():
    assert gathers_at_end(40, 4, 0.02, 0.0) == pytest.approx(0.05)
    assert gathers_at_end(1, 4, 0.02, 0.0) == pytest.approx(0.005)
    assert gathers_at_end(1, 4, 0.02, 0.1) == 0.0
    assert gathers_at_end(0, 4, 0.02, 0.0) == 0.0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 5000), SECONDS, st.floats(0.0, 10.0))
def test_node_sends_what_it_has_once_a_second(waiting, refill_at, workers, seconds, since):
    at_end = gathers_at_end(waiting, workers, seconds, since)
    for left in (gathers_for(waiting, refill_at, workers, seconds, since), at_end):
        assert 0.0 <= left <= max(0.0, 1.0 - since)


def test_node_that_gathers_is_not_taken_for_a_slow_one_and_one_that_is_silent_is():
    load = Load(1, 1, pace(0.01, workers=2))
    load.count(0.0)
    load.held, load.refill_at = 42, 10  # 40 in the queue: 30 of them until it gets more, which take 0.15 s
    assert load.seconds_per_member(0.15, 0.01) == pytest.approx(0.01)
    assert load.seconds_per_member(1.0, 0.01) == pytest.approx(1.0 - 0.15 - 0.015)


@given(st.lists(st.tuples(SECONDS, st.integers(1, 100)), max_size=20))
def test_what_a_node_is_told_can_be_sent(results):
    one = Pace(3)
    for seconds, members in results:
        one.record(seconds * members, members)
    assert 0.005 <= one.gather_seconds <= 0.04
    assert math.isfinite(one.bridge)
    assert np.isfinite(one.queue(one.estimate(1.0))).all()
