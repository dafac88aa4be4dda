"""Shared by the tests of all algorithms: noisy quadratics, known maxima, saved states, runs that must be equal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from heads import merge
from numpy.typing import NDArray

import pyes
import pyes.reports.replay
from pyes.algorithms import Algorithm
from pyes.run.metrics import read_rows

Vector = NDArray[np.float32]
Function = Callable[[Any], float]


def noisy_quadratic(seed: int = 1) -> Function:
    """Return a quadratic of twelve parameters whose noise is the same in every copy of one seed."""
    random, target = np.random.default_rng(seed), np.linspace(-1, 1, 12)
    return lambda theta: -float(((theta - target) ** 2).sum()) + 0.1 * random.standard_normal()


def run(algorithm: Algorithm, function: Function, generations: int) -> Vector:
    """Run generations by ask and tell; return theta."""
    for _ in range(generations):
        population = algorithm.ask()
        algorithm.tell([function(algorithm.member(i)) for i in range(len(population))])
    return algorithm.theta


def check_solves(
    make: Callable[[int], Algorithm], function: Function, value: float, *, generations: int, seeds: int = 10
) -> None:
    """Check that the algorithm of every seed reaches the value within the generations."""
    for seed in range(seeds):
        found = function(run(make(seed), function, generations))
        assert found >= value, f"seed {seed} came to {found}"


def check_goes_on_exactly(make: Callable[[], Algorithm]) -> None:
    """Check that a state that is saved and loaded in the middle leads where the whole way leads."""
    whole, first, second = make(), make(), make()
    function = lambda theta: -float(((theta - 1) ** 2).sum())  # noqa: E731
    run(whole, function, 8)
    run(first, function, 4)
    state = first.state_dict()
    run(first, function, 1)  # what was saved is a copy
    second.load_state_dict(state)
    np.testing.assert_array_equal(run(second, function, 4), whole.theta)


_TINY = {
    "task": {"env_id": "CartPole-v1", "max_timesteps": 100},
    "algorithm": {"population_size": 6},
    "generations": 4,
    "evaluation": {"every": 0},
    "snapshot": {"every": 1},
    "noise": {"entries": 10_000},
}


def check_runs_agree(path: Path, changes: dict[str, Any]) -> None:
    """Check that theta is the same for one and two workers, inline, and resumed, and that members play again."""
    clusters: dict[str, dict[str, Any]] = {"one": {"workers": 1}, "two": {"workers": 2}, "parts": {"name": "inline"}}
    config = merge(_TINY, changes)
    for name, cluster in clusters.items():
        generations = 2 if name == "parts" else 4
        pyes.train(
            config | {"run_dir": str(path / name), "cluster": cluster, "generations": generations}, display=False
        )
    pyes.train({"resume": str(path / "parts"), "generations": 4}, display=False)
    hashes = {name: [row["theta_hash"] for row in read_rows(path / name / "metrics.csv")] for name in clusters}
    assert len(set(hashes["one"])) == 4
    assert all(each == hashes["one"] for each in hashes.values())
    with pyes.reports.replay.open(path / "two") as replay:
        assert all(replay.play(3, member).exact for member in range(replay.population_size(3)))
