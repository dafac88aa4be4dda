import numpy as np
import pytest
from optima import check_solves, noisy_quadratic

import pyes
from pyes.errors import ConfigError
from pyes.tasks import functions


@pytest.mark.parametrize(("top", "count"), [(None, 10), (4, 4), ("half", 5)])
def test_equals_a_plain_numpy_implementation(table, top, count):
    """Twenty generations on a noisy quadratic against the paper's algorithm 2, with weight decay."""
    settings = {
        "population_size": 20,
        "sigma": 0.1,
        "learning_rate": "exponential 0.05 to 0.006630978 in 100 generations",
    }
    settings["weight_decay"] = 0.3
    ars, theta, rate = pyes.ARS(np.ones(12), table, seed=4, top=top, **settings), np.ones(12), 0.05
    function, same = noisy_quadratic(), noisy_quadratic()
    for _ in range(20):
        population = ars.ask()
        deltas = np.stack([table.slice(offset, 12) for offset in population.offsets[::2]]).astype(float)
        ars.tell([function(ars.member(i)) for i in range(20)])
        returns = np.array([[same(theta + 0.1 * delta), same(theta - 0.1 * delta)] for delta in deltas])
        best = sorted(range(10), key=lambda k: -max(returns[k]))[:count]
        step = sum((returns[k, 0] - returns[k, 1]) * deltas[k] for k in best) / (len(best) * np.std(returns[best]))
        theta = theta + rate * step - rate * 0.3 * theta
        rate *= 0.98
        np.testing.assert_allclose(ars.theta, theta, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "value"), [(functions.sphere, -1e-4), (functions.ellipsoid, -1e-3)])
def test_solves(table, function, value):
    settings = {
        "population_size": 16,
        "top": 4,
        "sigma": 0.05,
        "learning_rate": "exponential 0.1 to 0.01326196 in 100 generations",
    }
    check_solves(lambda seed: pyes.ARS(np.ones(5), table, seed=seed, **settings), function, value, generations=120)


def test_pairs_that_failed_count_as_the_worst(table):
    ars = pyes.ARS(np.zeros(5), table, population_size=6, top=2, sigma=1.0, learning_rate=1.0)
    first = ars.member(0)
    ars.tell([3.0, np.nan, np.nan, np.nan, 1.0, 2.0])
    assert np.isfinite(ars.theta).all()
    assert first @ ars.theta > 0


def test_an_attempt_that_has_come_to_nothing_begins_again(table):
    settings = {
        "population_size": 6,
        "learning_rate": "linear 0.5 to 0.1 in 4 generations",
        "restart": {"after": 2, "below": 10.0},
    }
    ars = pyes.ARS(np.ones(5), table, **settings)
    first = ars.ask().offsets
    for mean in (3, 4, 5):
        ars.tell(np.arange(6.0) - 2.5 + mean)
    np.testing.assert_array_equal(ars.theta, 1)
    assert (ars.learning_rate, ars.gradient_norm, ars.progress, ars.generation) == (0.5, 0.0, (0, 0), 3)
    assert not np.isin(ars.ask().offsets, first).any()
    resumed = pyes.ARS(np.zeros(5), table, **settings)
    resumed.load_state_dict(ars.state_dict())
    for search in (ars, resumed):
        for mean in (3, 4, 11):  # judged once, in its third generation: it goes on, however it does later
            search.tell(np.arange(6.0) - 2.5 + mean)
        search.tell(np.arange(6.0))
        assert (search.generation, search.progress[0]) == (7, 4)
    np.testing.assert_array_equal(resumed.theta, ars.theta)
    assert not np.array_equal(ars.theta, np.ones(5))


def test_theta_stays_when_all_returns_are_equal(table):
    ars = pyes.ARS(np.ones(5), table, population_size=6)
    ars.tell(np.full(6, 7.0))
    np.testing.assert_array_equal(ars.theta, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"population_size": 5},
            r"algorithm.population_size: got 5, expected an even number with algorithm.name=ars, whose",
        ),
        ({"population_size": 6, "top": 4}, "algorithm.top: got 4, expected at most 3, the mirrored pairs of algorithm"),
        ({"top": 0}, "algorithm.top: got 0, expected an integer >= 1 or 'half' or null"),
        ({"sigma": "linear 1 to 0 in 9 generations"}, "with all values > 0"),
    ],
)
def test_impossible_settings_are_refused(table, settings, message):
    with pytest.raises(ConfigError, match=message):
        pyes.ARS(np.zeros(2), table, **settings)
