"""The genetic algorithm: the paper's algorithm 1, lineages, elites, and runs that repeat."""

import numpy as np
import pytest
from optima import noisy_quadratic, run

import pyes
import pyes.reports.replay
from pyes.algorithms.ga import GA
from pyes.algorithms.lineage import Lineage, pack, unpack
from pyes.errors import ConfigError
from pyes.numerics import streams
from pyes.numerics.noise import NoiseTable

SETTINGS = {
    "population_size": 24,
    "sigma": "exponential 0.2 to 0.0732064682 in 100 generations",
    "parents": 5,
    "elites": 2,
}


def test_ga_equals_a_plain_numpy_implementation(table):
    """Twenty generations on a noisy quadratic against algorithm 1 of Such et al. (2017), individuals as vectors."""
    ga = GA(np.ones(12), table, seed=4, **SETTINGS)
    function, same = noisy_quadratic(), noisy_quadratic()
    parents, sigma = [np.ones(12)], 0.2
    for generation in range(20):
        eps = [table.slice(offset, 12) for offset in streams.offsets(4, generation, 24, table.offset_bound(12))]
        chosen = streams.parents(4, generation, 24, len(parents))
        members = [parents[k] + sigma * each for k, each in zip(chosen, eps, strict=True)]
        elites = parents[:2] if generation else []
        members[: len(elites)] = elites
        returns = np.array([same(member) for member in members])
        ga.tell([function(ga.member(i)) for i in range(24)])
        best = np.argsort(-returns)
        center = members[int(np.argmax(returns[:2]))] if generation else members[best[0]]
        parents, sigma = [members[k] for k in best[:5]], sigma * 0.99
        np.testing.assert_allclose(ga.theta, center, atol=1e-5)


def test_ga_first_generation_mutates_theta_and_later_ones_begin_with_the_elites(table):
    ga = GA(np.ones(12), table, **SETTINGS)
    assert (ga.ask().scales > 0).all()
    returns = np.arange(24.0)
    best = [ga.member(23), ga.member(22)]
    ga.tell(returns)
    np.testing.assert_array_equal(ga.theta, best[0])
    np.testing.assert_array_equal([ga.member(0), ga.member(1)], best)
    assert (ga.ask().scales[:2] == 0).all()
    assert (ga.ask().scales[2:] > 0).all()
    second = ga.member(1)
    ga.tell(returns)  # of the elites, the other one is the better now
    np.testing.assert_array_equal(ga.theta, second)


def test_ga_parents_are_drawn_evenly(table):
    ga = GA(np.zeros(3), table, population_size=4000, parents=4)
    ga.tell(np.arange(4000.0))
    counts = np.bincount(ga.ask().rows[1:], minlength=4)
    assert (abs(counts - 1000) < 5 * np.sqrt(750)).all()


def test_ga_failed_members_are_no_parents(table):
    ga = GA(np.zeros(5), table, population_size=6, parents=4, elites=2)
    ga.tell([np.nan, 1.0, np.nan, 2.0, np.nan, np.nan])
    assert len(ga.ask().bases) == 2
    before = ga.theta.copy()
    ga.tell([np.nan] * 6)
    assert ga.generation == 2
    np.testing.assert_array_equal(ga.theta, before)
    ga.tell([np.nan, -1.0, 3.0, np.nan, np.nan, np.nan])  # the first elite failed
    assert len(ga.ask().bases) == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_ga_state_survives_a_save_and_a_load_in_the_middle_exactly(dtype):
    with NoiseTable(50_000, 0, dtype) as table:
        whole, first = (GA(np.ones(700), table, seed=2, **SETTINGS) for _ in range(2))
        second = GA(np.zeros(700), table, seed=2, **SETTINGS)  # the state knows where it began
        expected = run(whole, lambda theta: -float(theta @ theta), 30).copy()
        run(first, lambda theta: -float(theta @ theta), 15)
        state = first.state_dict()
        assert [array.shape for array in state["lineages"].values() if array.ndim != 1] == []
        second.load_state_dict(state)
        np.testing.assert_array_equal(second.ask().bases, first.ask().bases)
        np.testing.assert_array_equal(run(second, lambda theta: -float(theta @ theta), 15), expected)


def test_ga_theta_does_not_depend_on_threads():
    dim = 300_000
    with NoiseTable(2 * dim, 0) as large:
        first = GA(np.zeros(dim), large, population_size=6, parents=2)
        for _ in range(16):
            first.tell(-(np.arange(6.0) ** 2) * (-1) ** first.generation)
        for threads in (1, 2, 3):
            again = GA(np.zeros(dim), large, population_size=6, parents=2, threads=threads)
            again.load_state_dict(first.state_dict())
            np.testing.assert_array_equal(again.theta, first.theta)
            np.testing.assert_array_equal(again.ask().bases, first.ask().bases)


def test_lineages_pack_and_unpack():
    lineages = [Lineage.none(), Lineage.none().mutated(5, 0.1).mutated(7, 0.0).mutated(3, 0.2), Lineage.none()]
    packed = pack(lineages)
    assert packed["starts"].tolist() == [0, 0, 2, 2]
    for ours, same in zip(unpack(packed), lineages, strict=True):
        np.testing.assert_array_equal(ours.offsets, same.offsets)
        np.testing.assert_array_equal(ours.scales, same.scales)


@pytest.mark.slow
def test_ga_solves_the_sphere_and_a_rotated_ellipsoid():
    """From 1 in five dimensions; 100 generations of 40 members; ten seeds."""
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    axes = np.linspace(1, 10, 5)
    functions = [
        lambda theta: -float(theta @ theta),
        lambda theta: -float(axes @ (rotation @ theta) ** 2),
    ]
    for seed in range(10):
        for function in functions:
            found = pyes.maximize(
                function,
                np.ones(5),
                "ga",
                generations=100,
                seed=seed,
                parents=8,
                sigma="exponential 0.4 to 0.00237 in 100 generations",
            )
            assert found.value > -0.02


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"parents": 50}, r"algorithm\.parents: got 50, expected at most algorithm\.population_size, which is 40"),
        ({"elites": 5}, r"algorithm\.elites: got 5, expected at most 4"),
        ({"population_size": 2, "parents": 2, "elites": 2}, r"algorithm\.elites: got 2, expected at most 1"),
        ({"elites": 0}, r"algorithm\.elites: got 0, expected an integer >= 1"),
        ({"sigma": "norm 0.1"}, r"algorithm\.sigma: got 'norm 0\.1', expected a finite number > 0, or a schedule"),
    ],
)
def test_ga_impossible_settings_are_refused(table, settings, match):
    with pytest.raises(ConfigError, match=match):
        GA(np.zeros(2), table, **settings)


def _config(path, **changes):
    return {
        "task": {"env_id": "CartPole-v1"}, "algorithm": {"name": "ga", "population_size": 8, "elites": 2},
        "noise": {"entries": 10_000}, "generations": 6, "evaluation": {"every": 2, "episodes": 2},
        "snapshot": {"every": 3}, "cluster": {"name": "inline"}, "run_dir": str(path), **changes,
    }  # fmt: skip


@pytest.mark.slow
def test_ga_run_goes_another_way_with_fewer_parents_and_another_seed(tmp_path):
    pyes.train(_config(tmp_path / "run"), display=False)
    changes = {"generations": 8, "seed": 9, "force": True, "algorithm": {"parents": 2, "elites": 1, "sigma": 0.05}}
    result = pyes.train({"resume": str(tmp_path / "run"), **changes}, display=False)
    assert result.generations == 8
    with pyes.reports.replay.open(tmp_path / "run") as replay:
        assert replay.play(7, 3).exact
