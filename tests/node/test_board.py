import numpy as np
import pytest

from pyes.algorithms.population import Population
from pyes.episodes.batch import Batch, Plan, Status
from pyes.node.board import Board

PLAN = Plan(seed=0, dim=3, capacity=10, episodes=2, observation_size=2, statistics_rows=5, policy=None)


@pytest.fixture
def board():
    board = Board(PLAN, workers=2)
    yield board
    board.close()


def _batch(members, **settings):
    return Batch(
        Population.around(7, np.arange(3, dtype=np.float32), np.arange(members), np.ones(members, np.float32)),
        seeds=np.zeros((members, 2), np.int64),
        limit=100,
        **settings,
    )


def test_nothing_can_be_claimed_before_a_batch_is_open(board):
    assert board.claim(0) == -1
    assert board.remaining() == 0


def test_members_are_claimed_once_each_and_come_back_in_their_order(board):
    board.open(_batch(5))
    assert [board.claim(worker) for worker in (0, 1, 0, 1, 0, 1)] == [0, 1, 2, 3, 4, -1]
    for member, worker in [(4, 0), (0, 0), (1, 1), (3, 1), (2, 0)]:
        board.finish(worker, member, (float(member), member + 1, Status.OK))
    assert board.remaining() == 0
    results = board.collect()
    np.testing.assert_array_equal(results.returns, range(5))
    np.testing.assert_array_equal(results.lengths, range(1, 6))


def test_another_process_sees_the_batch_as_it_was_opened(board):
    normalizer = {"mean": np.ones(2, np.float32), "inverse_std": np.full(2, 2, np.float32)}
    board.open(_batch(4, **normalizer, evaluation=True, reward_min=-0.1))
    other = Board(PLAN, 2, board.handle)
    batch = other.batch()
    np.testing.assert_array_equal(batch.population.bases, [[0, 1, 2]])
    np.testing.assert_array_equal(batch.mean, 1)
    np.testing.assert_array_equal(batch.inverse_std, 2)
    assert (batch.generation, batch.limit, batch.evaluation, len(batch.population)) == (7, 100, True, 4)
    assert batch.reward_min == -0.1
    other.close()


def test_a_smaller_batch_after_a_larger_one_offers_its_own_members_only(board):
    board.open(_batch(10))
    while (member := board.claim(0)) >= 0:
        board.finish(0, member, (0.0, 1, Status.OK))
    board.open(_batch(2))
    assert [board.claim(1) for _ in range(3)] == [0, 1, -1]


def test_the_member_of_a_dead_worker_is_free_again_until_it_has_cost_too_many(board):
    board.open(_batch(2, statistics_stride=2))
    assert board.claim(0) == 0
    assert board.recover(0, attempts=2, blame="it crashed") == [0]
    assert board.recover(0, attempts=2, blame="it crashed") == []
    assert [board.claim(0), board.claim(1)] == [1, 0]
    board.sums_of(0)[:] = 5.0
    assert board.recover(1, attempts=2, blame="it crashed") == [0]
    board.finish(0, 1, (1.0, 1, Status.OK))
    results = board.collect()
    np.testing.assert_array_equal(results.status, [Status.KILLED, Status.OK])
    assert np.isnan(results.returns[0])
    assert (results.sums[0] == 0).all()
    assert results.errors == ["it crashed (generation 7, member 0, which has cost 2 workers)"]


def test_recover_without_blame_sets_the_member_free_any_number_of_times(board):
    board.open(_batch(1))
    for _ in range(10):
        assert board.claim(0) == 0
        board.pids[0], board.started[0] = 123, 4.5
        assert board.recover(0) == [0]
        assert (board.pids[0], board.started[0], board.attempts[0]) == (0, 0.0, 0)
    assert board.claim(0) == 0
    assert board.recover(0, attempts=1, blame="it crashed") == [0]
    assert board.remaining() == 0


def test_members_that_a_dead_worker_held_together_are_to_be_evaluated_alone_and_cost_nothing_yet(board):
    board.open(_batch(4))
    assert [board.claim(0) for _ in range(3)] == [0, 1, 2]
    board.finish(0, 1, (1.0, 1, Status.OK))
    assert board.held(0) == [0, 2]
    assert board.recover(0, attempts=1, blame="it crashed") == [0, 2]
    assert board.alone.tolist()[:4] == [True, False, True, False]
    assert not board.attempts.any()
    assert [board.claim(1) for _ in range(4)] == [3, 0, 2, -1]
    assert board.recover(1) == [0, 2, 3]
    assert board.alone.tolist()[:4] == [True, False, True, False]
    board.open(_batch(4))
    assert not board.alone.any()


def test_a_worker_is_unwanted_for_the_members_it_holds_and_its_members_are_not_set_free(board):
    board.open(_batch(4))
    assert [board.claim(0), board.claim(1)] == [0, 1]
    board.finish(1, 1, (1.0, 1, Status.OK))
    board.end_holders()
    assert [board.is_unwanted(worker) for worker in (0, 1)] == [True, False]
    board.withdraw(0, 4)
    assert board.recover(0, attempts=2) == [0]
    assert (board.remaining(), board.claim(1)) == (0, -1)
    board.open(_batch(4))
    assert board.claim(0) == 0
    assert not board.is_unwanted(0)  # that was another batch


@pytest.mark.parametrize(
    ("members", "most", "wave"), [(10, 1, 1), (10, 3, 3), (10, 4, 3), (10, 5, 5), (10, 100, 5), (1, 100, 1), (0, 9, 0)]
)
def test_wave_is_an_equal_part_of_a_workers_share(board, members, most, wave):
    """Of two workers, each has five of ten members: in waves of five, or of three and two."""
    board.open(_batch(members))
    assert board.wave(most) == wave


def test_sums_are_kept_for_every_so_manyth_member(board):
    board.open(_batch(5, statistics_stride=2))
    assert [board.sums_of(member) is not None for member in range(5)] == [True, False, True, False, True]
    for member in range(5):
        board.claim(0)
        board.finish(0, member, (0.0, 10 + member, Status.OK))
    np.testing.assert_array_equal(board.collect().sum_lengths, [10, 12, 14])


def test_failed_members_count_no_observations(board):
    board.open(_batch(2, statistics_stride=1))
    for member, status in enumerate((Status.OK, Status.NOT_FINITE)):
        board.claim(0)
        board.finish(0, member, (0.0, 9, status))
    results = board.collect()
    np.testing.assert_array_equal(results.sum_lengths, [9, 0])
    assert results.failed == 1


def test_errors_are_one_line_a_worker_and_gone_with_the_next_batch(board):
    board.open(_batch(1))
    board.report(1, "a long story " + "x" * 5000)
    board.report(1, "short")
    assert board.errors() == ["short"]
    board.claim(0)
    board.finish(0, 0, (0.0, 1, Status.OK))
    board.open(_batch(1))
    assert board.errors() == []
