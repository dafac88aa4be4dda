import numpy as np
import pytest
from optima import check_solves, noisy_quadratic, run

import pyes
from pyes.config import OptimizerConfig
from pyes.errors import ConfigError, DivergedError
from pyes.tasks import functions

SGD = OptimizerConfig(name="sgd", momentum=0.0)


@pytest.mark.parametrize("shaping", ["centered_ranks", "none"])
def test_equals_a_plain_numpy_implementation(table, shaping):
    """Twenty generations on a noisy quadratic: Sehnke et al. 2010 in the form of Toklu et al. 2020, algorithm 2."""
    rate = 0.5 if shaping == "centered_ranks" else 0.02
    pgpe = pyes.PGPE(
        np.ones(12), table, seed=4, optimizer=SGD, shaping=shaping, population_size=20, sigma=0.1, learning_rate=rate,
        sigma_learning_rate=1.0, sigma_max_change=0.02,
    )  # fmt: skip
    mean, sigma = np.ones(12), np.full(12, 0.1)
    function, same = noisy_quadratic(), noisy_quadratic()
    changes = []
    for _ in range(20):
        population = pgpe.ask()
        noises = sigma * np.stack([table.slice(offset, 12) for offset in population.offsets[::2]]).astype(float)
        pgpe.tell([function(pgpe.member(i)) for i in range(20)])
        returns = np.array([each for noise in noises for each in (same(mean + noise), same(mean - noise))])
        ranks = np.argsort(np.argsort(returns)) / 19 - 0.5
        plus, minus = (ranks if shaping == "centered_ranks" else returns - returns.mean()).reshape(-1, 2).T
        mean_gradient = ((plus - minus) / 2) @ noises / 10
        sigma_gradient = ((plus + minus) / 2) @ ((noises**2 - sigma**2) / sigma) / 10
        mean = mean + rate * mean_gradient
        changes.append(sigma_gradient / sigma)
        sigma = np.clip(sigma + sigma_gradient, 0.98 * sigma, 1.02 * sigma)
        np.testing.assert_allclose(pgpe.theta, mean, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(pgpe.deviation, sigma, rtol=1e-3)
    assert (np.abs(changes) > 0.02).any()  # the bound was reached ...
    assert (np.abs(changes) < 0.02).any()  # ... and not always


@pytest.mark.slow
@pytest.mark.parametrize(("function", "value"), [(functions.sphere, -0.01), (functions.ellipsoid, -0.2)])
def test_solves(table, function, value):
    settings = {
        "population_size": 30, "sigma": 0.3, "learning_rate": 0.02,
        "optimizer": OptimizerConfig(name="clipup", max_speed=0.04),
    }  # fmt: skip
    check_solves(lambda seed: pyes.PGPE(np.ones(5), table, seed=seed, **settings), function, value, generations=120)


def test_moves_by_clipup_unless_told_otherwise(table):
    def theta(**optimizer):
        return run(pyes.PGPE(np.ones(3), table, population_size=6, **optimizer), functions.sphere, 5)

    own = theta()
    np.testing.assert_array_equal(theta(optimizer=OptimizerConfig(name="clipup")), own)
    assert (theta(optimizer=OptimizerConfig(name="adam")) != own).any()
    found = pyes.maximize(functions.sphere, np.ones(3), "pgpe", population_size=6, generations=1)
    adam = pyes.maximize(
        functions.sphere, np.ones(3), "pgpe", population_size=6, generations=1, optimizer=OptimizerConfig()
    )
    assert (found.theta != adam.theta).any()


def test_sigma_follows_the_parameters_that_matter_not(table):
    """A parameter without effect keeps its sigma on average, one near its top loses it."""
    pgpe = pyes.PGPE(np.zeros(2), table, population_size=40, sigma=0.5)
    run(pgpe, lambda theta: -float(theta[0] ** 2), 100)
    assert pgpe.deviation[0] < 0.1 < pgpe.deviation[1]


def test_a_single_sigma_in_a_state_is_that_of_every_parameter(table):
    """So a resumed run may continue with another sigma."""
    pgpe = pyes.PGPE(np.ones(3), table, population_size=4)
    run(pgpe, functions.sphere, 2)
    pgpe.load_state_dict(pgpe.state_dict() | {"sigma": 0.7})
    offset = pgpe.ask().offsets[0]
    np.testing.assert_allclose(pgpe.member(0) - pgpe.theta, 0.7 * table.slice(offset, 3), rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"population_size": 5}, "algorithm.population_size: got 5, expected an even number"),
        ({"sigma_max_change": 1.0}, "algorithm.sigma_max_change: got 1.0, expected a finite number >= 0 and < 1"),
        ({"weight_decay": 1.0}, "weight_decay"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        pyes.maximize(functions.sphere, np.zeros(2), "pgpe", **settings)


def test_a_sigma_that_is_not_finite_any_more_ends_the_search(table):
    search = pyes.PGPE(np.zeros(6), table, population_size=8)
    search.deviation[2] = np.inf
    with pytest.raises(DivergedError, match="sigma has a value of inf"):
        search._check_finite()
