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
    assert weights.dtype == np.float32
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
