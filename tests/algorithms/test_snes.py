import decimal
import math

import numpy as np
import pytest
from optima import check_solves, noisy_quadratic

import pyes
from pyes.algorithms import snes
from pyes.numerics import shaping
from pyes.tasks import functions


def test_equals_a_plain_numpy_implementation(table):
    """Twenty generations on a noisy quadratic against Schaul et al. 2011, algorithm 1."""
    es = pyes.SNES(np.ones(12), table, seed=4, population_size=15, sigma=0.1)
    mean, sigma = np.ones(12), np.full(12, 0.1)
    raw = np.array([max(0.0, math.log(15 / 2 + 1) - math.log(rank)) for rank in range(1, 16)])
    utilities = raw / raw.sum() - 1 / 15
    function, same = noisy_quadratic(), noisy_quadratic()
    for _ in range(20):
        population = es.ask()
        s = np.stack([table.slice(offset, 12) for offset in population.offsets]).astype(float)
        es.tell([function(es.member(i)) for i in range(15)])
        order = np.argsort([-same(mean + sigma * each) for each in s])
        mean = mean + sigma * (utilities @ s[order])
        sigma = sigma * np.exp((3 + math.log(12)) / (5 * math.sqrt(12)) / 2 * (utilities @ (s[order] ** 2 - 1)))
        np.testing.assert_allclose(es.theta, mean, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(es.deviation, sigma, rtol=1e-3)


@pytest.mark.parametrize(("saved", "made"), [(4, 8), (8, 4)])
def test_a_saved_state_of_another_population_goes_on_as_it_would_have(table, saved, made):
    es, other = (pyes.SNES(np.ones(5), table, seed=1, population_size=size) for size in (saved, made))
    other.load_state_dict(es.state_dict())
    for _ in range(3):
        for each in (es, other):
            each.tell(np.arange(float(len(each.ask()))))
        np.testing.assert_array_equal(es.theta, other.theta)
        np.testing.assert_array_equal(es.deviation, other.deviation)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "value"), [(functions.sphere, -1e-6), (functions.ellipsoid, -0.02)])
def test_solves(table, function, value):
    settings = {"population_size": 30, "sigma": 0.5}
    check_solves(lambda seed: pyes.SNES(np.ones(5), table, seed=seed, **settings), function, value, generations=120)


def test_learning_rates_can_be_set(table):
    es = pyes.SNES(np.ones(3), table, population_size=4, learning_rate=0.5, sigma_learning_rate=0.0)
    same = pyes.SNES(np.ones(3), table, population_size=4)
    for each in (es, same):
        each.tell([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(2 * (es.theta - 1), same.theta - 1, rtol=1e-5)
    np.testing.assert_array_equal(es.deviation, np.float32(0.3))
    assert (same.deviation != np.float32(0.3)).all()


def test_utilities_are_those_of_the_paper():
    utilities = snes.utilities(4)
    raw = np.array([math.log(3), math.log(1.5), 0, 0])
    np.testing.assert_allclose(utilities, raw / raw.sum() - 0.25, atol=1e-15)
    assert snes.default_sigma_learning_rate(100) == pytest.approx((3 + math.log(100)) / 50, rel=1e-15)


def test_equal_returns_share_their_utilities_and_failures_are_the_worst():
    utilities = np.array([8.0, 4.0, 2.0, 1.0, 0.0, -1.0])
    returns = np.array([5.0, np.nan, 7.0, 5.0, -9.0, np.nan])
    np.testing.assert_array_equal(shaping.by_rank(returns, utilities), [3.0, -0.5, 8.0, 3.0, 1.0, -0.5])
    np.testing.assert_array_equal(shaping.by_rank(np.full(6, 2.0), utilities), np.float32(14 / 6))


def test_utilities_do_not_depend_on_the_precision_that_a_caller_has_chosen():
    expected = snes.utilities(17)
    with decimal.localcontext(prec=6):
        np.testing.assert_array_equal(snes.utilities(17), expected)
