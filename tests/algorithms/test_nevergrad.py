"""Nevergrad's optimisers: their own ask and tell behind ours."""

import numpy as np
import pytest

pytest.importorskip("nevergrad")

import nevergrad
from nevergrad.optimization.differentialevolution import DifferentialEvolution
from nevergrad.optimization.es import EvolutionStrategy
from nevergrad.optimization.optimizerlib import ConfPSO, ParametrizedCMA
from optima import noisy_quadratic

import pyes
from pyes.algorithms.nevergrad import Nevergrad
from pyes.errors import ConfigError
from pyes.numerics import streams


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "configured"),
    [
        ("OldCMA", ParametrizedCMA(popsize=10)),
        ("TwoPointsDE", DifferentialEvolution(crossover="twopoints", popsize=10)),
        ("ES", EvolutionStrategy(recombination_ratio=0, only_offsprings=True, offsprings=10, popsize=6)),
        ("RealSpacePSO", ConfPSO(popsize=10)),
        ("TBPSA", nevergrad.optimizers.TBPSA),  # decides on its population by itself
        ("OnePlusOne", nevergrad.optimizers.OnePlusOne),  # has none
    ],
)
def test_nevergrad_equals_the_optimisers_own_ask_and_tell(name, configured):
    search = Nevergrad(np.ones(12, np.float32), optimizer=name, seed=4, population_size=10, sigma=0.5)
    function, same = noisy_quadratic(), noisy_quadratic()
    space = nevergrad.p.Array(init=np.ones(12)).set_mutation(sigma=0.5)
    space.random_state = np.random.RandomState(streams.library_seed(4, 0))
    own = configured(space, num_workers=10)
    for _ in range(20):
        search.tell([function(search.member(i)) for i in range(len(search.ask()))])
        candidates = [own.ask() for _ in range(10)]
        losses = [-same(np.float32(each.value)) for each in candidates]
        for candidate, loss in zip(candidates, losses, strict=True):
            own.tell(candidate, loss)
        np.testing.assert_array_equal(search.theta, own.provide_recommendation().value.astype(np.float32))
    assert (search.sigma, search.learning_rate, search.gradient_norm) == (None, None, None)


ROTATION = np.linalg.qr(np.random.RandomState(3).standard_normal((3, 3)))[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scales", "generations"), [([1, 1, 1], 20), ([1, 10, 100], 50)], ids=["sphere", "rotated ellipsoid"]
)
def test_nevergrad_solves_it_from_ten_seeds(scales, generations):
    for seed in range(10):
        search = Nevergrad(np.full(3, 2.0), optimizer="OldCMA", seed=seed, population_size=8, sigma=1.0)
        for _ in range(generations):
            search.tell(-((search.ask().bases @ ROTATION) ** 2 @ scales))
        assert ((search.theta @ ROTATION) ** 2 @ scales) < 1e-2


def test_nevergrad_is_among_the_algorithms_of_maximize():
    settings = {"generations": 4, "population_size": 8}
    first, second = (
        pyes.maximize(lambda theta: -float(theta @ theta), np.ones(3), "nevergrad", optimizer=name, **settings)
        for name in ("TwoPointsDE", "OldCMA")
    )
    assert first.history[-1] != second.history[-1]


def test_nevergrad_starts_from_theta_or_at_its_own_place():
    start = np.full(50, 3.0, np.float32)
    settings = {"optimizer": "OldCMA", "population_size": 40, "sigma": 0.1}  # ES varies its step at once
    ours, own = (Nevergrad(start, **settings, init=init).ask().bases for init in ("theta", "own"))
    assert (ours.mean(), ours.std()) == (pytest.approx(3, abs=0.01), pytest.approx(0.1, rel=0.1))
    assert (own.mean(), own.std()) == (pytest.approx(0, abs=0.1), pytest.approx(1, rel=0.1))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["TwoPointsDE", "PSO", "DE", "ES", "OldCMA"])
def test_a_failed_member_is_never_the_center_of_nevergrad(optimizer):
    for at in range(6):
        search = Nevergrad(np.ones(2, np.float32), optimizer=optimizer, population_size=6)
        search.tell([np.nan] * 6)
        for _ in range(3):
            search.tell(-10.0 - (search.ask().bases ** 2).sum(axis=1))
        returns = np.full(6, np.nan)
        returns[at] = 100.0
        members = search.members()
        search.tell(returns)
        failed = [k for k in range(6) if not np.array_equal(members[k], members[at])]
        assert not any(np.array_equal(search.theta, members[k]) for k in failed)


def test_nevergrad_that_breaks_is_said_in_one_line():
    """Its elitist CMA asks pycma twice before it tells, which pycma does not bear with 300 parameters and more."""
    search = Nevergrad(np.zeros(300, np.float32), optimizer="CMApara", population_size=8, seed=3)

    def run():
        for _ in range(30):
            search.tell(-((search.ask().bases - 1.0) ** 2).sum(axis=1))

    with pytest.raises(
        ConfigError, match=r"\(optimizer=CMApara\) failed at generation \d+ with 300 para.*; try"
    ) as caught:
        run()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"optimizer": "TwoPointDE"}, "algorithm.optimizer: got 'TwoPointDE', expected a name of .* 'TwoPointsDE'"),
        (
            {"optimizer": "SPSA"},
            r"algorithm=nevergrad \(optimizer=SPSA\) failed at generation 0 .*parallelization\); try",
        ),
        ({"init": "zero"}, "algorithm.init: got 'zero', expected one of 'theta', 'own'"),
        ({"budget": 0}, "algorithm.budget: got 0"),
    ],
)
def test_nevergrad_refuses_impossible_settings_in_one_line(settings, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        Nevergrad(np.zeros(5), **settings)
    assert "\n" not in str(caught.value)
