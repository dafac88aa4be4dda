import math

import numpy as np
import pytest

from pyes.numerics import shaping

RETURNS = np.array([3.0, np.nan, -1.0, 3.0, 10.0])


def test_centered_ranks_ties_share_and_failed_members_rank_lowest():
    np.testing.assert_allclose(shaping.centered_ranks(RETURNS), [0.125, -0.5, -0.25, 0.125, 0.5])


def test_z_score_matches_numpy():
    returns = np.array([1.0, 4.0, -2.0, 7.5])
    expected = (returns - returns.mean()) / returns.std()
    np.testing.assert_allclose(shaping.z_score(returns), expected, rtol=1e-6)


@pytest.mark.parametrize("value", [2.0, 0.1, 1 / 3, -99.9])
def test_z_score_of_equal_returns_is_zero(value):
    np.testing.assert_array_equal(shaping.z_score(np.full(40, value)), 0)


@pytest.mark.parametrize("name", shaping.SHAPINGS)
def test_failed_members_weigh_no_more_than_the_worst(name):
    weights = shaping.SHAPINGS[name](RETURNS)
    assert np.isfinite(weights).all()
    assert weights[1] == weights.min()


@pytest.mark.parametrize("name", shaping.SHAPINGS)
def test_all_failed_weigh_nothing(name):
    np.testing.assert_array_equal(shaping.SHAPINGS[name](np.full(4, np.nan)), 0)


@pytest.mark.parametrize("name", [*shaping.SHAPINGS, "by_rank", "fill_failed", "mean"])
@pytest.mark.parametrize("failed", [np.inf, -np.inf])
def test_infinite_returns_are_those_of_failed_members(name, failed):
    shape = shaping.SHAPINGS.get(name) or getattr(shaping, name)
    arguments = [np.linspace(1, -1, 6)] if name == "by_rank" else []
    returns = np.array([3.0, np.nan, -1.0, failed, 3.0, 10.0])
    expected = shape(np.where(np.isfinite(returns), returns, np.nan), *arguments)
    np.testing.assert_array_equal(shape(returns, *arguments), expected)


def test_norm_is_the_sum_of_squares_in_index_order():
    """So that it has the same bits on every machine, unlike that of a BLAS."""
    vector = np.random.default_rng(1).normal(size=1001).astype(np.float32)
    total = 0.0
    for value in vector.tolist():
        total += value * value
    assert shaping.norm(vector) == math.sqrt(total)
    assert shaping.norm(np.full(4, 1e30, np.float32)) == pytest.approx(2e30)  # its square is no float32


def test_differential_has_the_weight_of_the_return():
    """A member that moves and falls is ahead of those that stand for a bonus; by returns alone, it is not."""
    returns, lengths = np.array([1000.0, 1000.0, 400.0, 300.0]), np.array([1000, 1000, 150, 300])
    seen = shaping.with_differential(returns, lengths)
    assert np.argmax(returns) == 0
    assert np.argmax(seen) == 2
    rest = returns - returns.sum() / lengths.sum() * lengths
    np.testing.assert_allclose(seen, returns / returns.std() + rest / rest.std(), rtol=1e-12)


def test_differential_counts_at_most_twenty_times_as_much_as_in_the_return():
    """Where staying alive is all but the whole task, as for a pendulum, small costs decide nothing."""
    lengths = np.array([20.0, 60.0, 200.0, 400.0])
    returns = lengths * (1 - np.array([1e-5, 2e-5, 9e-5, 1e-4]))
    seen = shaping.with_differential(returns, lengths)
    rest = returns - returns.sum() / lengths.sum() * lengths
    np.testing.assert_allclose(seen, (returns + 20 * rest) / returns.std(), rtol=1e-9)
    assert np.argsort(seen).tolist() == [0, 1, 2, 3]
    assert np.argsort(rest).tolist() != [0, 1, 2, 3]


def test_differential_leaves_failed_members_out():
    returns, lengths = np.array([5.0, 9.0, np.nan, 8.0, -np.inf]), np.array([2, 7, 100, 3, 0])
    before, known = returns.copy(), np.isfinite(returns)
    seen = shaping.with_differential(returns, lengths)
    np.testing.assert_array_equal(np.isfinite(seen), known)
    np.testing.assert_array_equal(seen[known], shaping.with_differential(returns[known], lengths[known]))
    np.testing.assert_array_equal(returns, before)


@pytest.mark.parametrize(
    ("returns", "lengths"),
    [
        ([1.0, 2.0, 4.0], [10, 10, 10]),
        ([-1.0, -2.0, -4.0], [10, 20, 30]),
        ([5.0, -6.0, 1.0], [10, 20, 30]),  # nothing in the mean
        ([7.0, 21.0, 40.0], [7, 21, 40]),  # as CartPole
        ([0.1] * 16, range(10, 26)),  # the mean of which is rounded
        ([1e308, 1e308, 1e307], [10, 20, 30]),
        ([np.nan, np.nan], [0, 0]),
        ([np.nan, 2.0], [4, 5]),
    ],
)
def test_differential_changes_nothing_where_there_is_no_bonus_or_nothing_else(returns, lengths):
    returns = np.array(returns)
    np.testing.assert_array_equal(shaping.with_differential(returns, np.array(lengths)), returns)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_differential_keeps_the_order_of_sums_of_one_reward_whatever_their_rounding(dtype):
    lengths = np.random.default_rng(0).integers(5, 1000, 40)
    returns = np.add.accumulate(np.full(1000, 0.1, dtype))[lengths - 1].astype(np.float64)
    np.testing.assert_array_equal(np.argsort(shaping.with_differential(returns, lengths)), np.argsort(returns))


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1.7e308, 5e-324])
def test_z_score_does_not_depend_on_the_scale(scale):
    returns = np.array([1.0, -1.0, 0.0, np.nan])
    np.testing.assert_array_equal(shaping.z_score(returns * scale), shaping.z_score(returns))
