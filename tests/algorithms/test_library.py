"""What the algorithms of other libraries share: state, random numbers, failures, and runs that repeat."""

import os
import random
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from heads import hashes_of

pytest.importorskip("nevergrad")

import pyes
from pyes import algorithms
from pyes.algorithms.cma_es import CMAES
from pyes.algorithms.library import LibraryAlgorithm, LibraryConfig
from pyes.config import OptimizerConfig, algorithm_config
from pyes.errors import ConfigError, JournalError
from pyes.numerics.noise import NoiseTable
from pyes.reports import replay
from pyes.run.journal import read

CASES = {
    "full": {"name": "cma_es"},
    "diagonal": {"name": "cma_es", "covariance": "diagonal"},
    "vd": {"name": "cma_es", "covariance": "vd"},
    "vkd": {"name": "cma_es", "covariance": "vkd"},
    "OldCMA": {"name": "nevergrad", "optimizer": "OldCMA"},
    "ES": {"name": "nevergrad", "optimizer": "ES"},
    "TwoPointsDE": {"name": "nevergrad", "optimizer": "TwoPointsDE"},
    "DiscreteLenglerOnePlusOne": {"name": "nevergrad", "optimizer": "DiscreteLenglerOnePlusOne"},
}


@pytest.fixture(scope="module")
def table():
    with NoiseTable(1_000, 0) as table:
        yield table


def _make(table, settings, dim=12, seed=4):
    config = algorithm_config({"population_size": 8, "sigma": 0.5, **settings})
    return algorithms.make(config, OptimizerConfig(), np.ones(dim, np.float32), table, seed=seed)


def _run(algorithm, generations):
    """Tell a function of the members, one of which fails now and then."""
    for _ in range(generations):
        returns = -((algorithm.ask().bases - 0.5) ** 2).sum(axis=1, dtype=np.float64)
        returns[algorithm.generation % 11 :][:1] = np.nan
        algorithm.tell(returns)
    return algorithm.theta.tobytes()


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_state_survives_a_save_and_a_load_in_the_middle_exactly(table, settings):
    whole, first = _make(table, settings), _make(table, settings)
    second = _make(table, settings, seed=99)
    _run(first, 7)
    first.ask()  # a population that is still out makes no difference
    second.load_state_dict(first.state_dict())
    assert second.generation == 7
    assert _run(second, 6) == _run(whole, 13)
    assert first.state_dict()["told"].shape == (7, 8)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_timesteps_are_those_that_were_told_after_a_load_and_another(table, settings):
    first, second = _make(table, settings), _make(table, settings)
    for _ in range(3):
        first.ask()
        first.tell(np.arange(8.0), timesteps=1000)
    for _ in range(2):
        second.load_state_dict(first.state_dict())
        assert second.progress == first.progress == (3, 3000)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_global_generators_decide_nothing_and_stay_as_they_are(table, settings):
    thetas = []
    for seed in (1, 2):
        np.random.seed(seed)
        random.seed(seed)
        numpy_state, state = np.random.get_state()[1].tolist(), random.getstate()
        thetas.append(_run(_make(table, settings), 5))
        assert np.random.get_state()[1].tolist() == numpy_state
        assert random.getstate() == state
    assert thetas[0] == thetas[1]


def test_cma_es_in_high_dimension_draws_from_no_global_generator(table):
    """With 300 parameters and more, pycma adapts its step by two points, for which it draws from NumPy's own."""
    thetas = []
    for seed in (1, 2):
        np.random.seed(seed)
        before = np.random.get_state()[1].tolist()
        thetas.append(_run(_make(table, {"name": "cma_es", "covariance": "diagonal"}, dim=300), 6))
        assert np.random.get_state()[1].tolist() == before
    assert thetas[0] == thetas[1]


@pytest.mark.parametrize("settings", [CASES["full"], CASES["ES"]], ids=["cma_es", "nevergrad"])
def test_a_failed_member_is_worse_than_all_before(table, settings):
    first, second = _make(table, settings), _make(table, settings)
    worst = 0.0
    for _ in range(5):
        returns = -(first.ask().bases ** 2).sum(axis=1, dtype=np.float64)
        worst = min(worst, np.nextafter(returns.min(), -np.inf))
        first.tell(np.where(returns == returns.max(), np.nan, returns))
        second.ask()
        second.tell(np.where(returns == returns.max(), worst, returns))
    np.testing.assert_array_equal(first.theta, second.theta)
    first.tell(np.full(8, np.nan))
    assert np.isfinite(first.theta).all()


def test_a_state_that_leads_elsewhere_is_refused_in_one_line(table):
    algorithm = _make(table, CASES["full"])
    _run(algorithm, 3)
    state = algorithm.state_dict()
    state["theta"][0] += 1
    with pytest.raises(ConfigError, match="returns of its 3 generations lead to another theta here than") as caught:
        algorithm.load_state_dict(state)
    assert "\n" not in str(caught.value)


class Fragile(LibraryAlgorithm):
    """A library that breaks when it is told."""

    @dataclass(frozen=True, kw_only=True)
    class Config(LibraryConfig):
        name: str = "fragile"

    def _open(self, start, generator):
        self._start64 = start

    def _points(self):
        return np.tile(self._start64, (4, 1))

    def _minimize(self, losses):
        raise RuntimeError("broken\nfor good")


def test_a_failure_while_told_is_said_when_members_are_asked_for():
    fragile = Fragile(np.ones(3, np.float32), population_size=4)
    fragile.tell(np.zeros(4))
    reason = r"\(RuntimeError: broken for good \(.* in _minimize\)\)"
    expected = rf"algorithm=fragile failed at generation 1 with 3 .*_size=4 {reason}; try"
    for _ in range(2):
        with pytest.raises(ConfigError, match=expected):
            fragile.ask()
    again = Fragile(np.ones(3, np.float32), population_size=4)
    again.load_state_dict(fragile.state_dict())
    with pytest.raises(ConfigError, match=expected):
        again.ask()


def _train(run_dir, settings, **changes):
    config = {
        "seed": 3,
        "run_dir": str(run_dir),
        "generations": 6,
        "algorithm": {"population_size": 6, "sigma": 0.5, **settings},
        "task": {"env_id": "CartPole-v1", "episodes": 2, "max_timesteps": 60, "common_random_numbers": "pair"},
        "cluster": {"workers": 1},
        "evaluation": {"every": 3, "episodes": 2},
        "snapshot": {"every": 2},
    }
    return pyes.train(config | changes, display=False)


def test_journal_names_the_libraries_versions(tmp_path):
    import cma

    _train(tmp_path / "run", CASES["diagonal"], generations=1)
    assert read(tmp_path / "run" / "journal.bin")[0].versions["cma"] == cma.__version__


@pytest.mark.slow
def test_a_library_that_decides_otherwise_is_noticed_in_one_line(tmp_path, monkeypatch):
    _train(tmp_path / "run", CASES["full"], generations=3)
    for snapshot in (tmp_path / "run" / "snapshots").iterdir():
        snapshot.unlink()
    monkeypatch.setattr(CMAES, "_minimize", lambda self, losses: self._start + 1)
    with pytest.raises(
        JournalError, match=r"generation 1: theta is .* here, the journal was written with .*same \(.*cma "
    ) as caught:
        pyes.train({"resume": str(tmp_path / "run"), "generations": 4}, display=False)
    assert "\n" not in str(caught.value)


def test_settings_of_a_librarys_algorithm_stay_as_they_are(tmp_path):
    _train(tmp_path / "run", CASES["full"], generations=2)
    with pytest.raises(ConfigError, match=r"algorithm.sigma \(was 0.5, got 1.0\); start a new run"):
        pyes.train({"resume": str(tmp_path / "run"), "force": True, "algorithm": {"sigma": 1.0}}, display=False)


@pytest.mark.slow
def test_a_run_goes_another_way_from_where_the_library_is(tmp_path):
    _train(tmp_path / "run", CASES["full"], generations=3)
    hashes = hashes_of(tmp_path / "run")
    changes = {"resume": str(tmp_path / "run"), "generations": 5, "force": True, "seed": 8}
    pyes.train(changes, display=False)
    assert hashes_of(tmp_path / "run")[:3] == hashes
    with replay.open(tmp_path / "run") as run:
        assert run.play(4, 0).exact


ON_THREADS = """
import numpy as np
import pyes
for name, optimizer in (("CMAES", {}), ("Nevergrad", {"optimizer": "OldCMA"})):
    algorithm = getattr(pyes, name)(np.ones(163), population_size=16, seed=1, **optimizer)
    for _ in range(8):
        algorithm.tell(-(algorithm.members() ** 2).sum(axis=1, dtype=np.float64))
    print(algorithm.theta.tobytes().hex())
"""


@pytest.mark.slow
def test_theta_does_not_depend_on_the_threads_of_linear_algebra():
    """At 163 parameters two threads of BLAS add in another order than one; on a single core there are none to show."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    found = [
        subprocess.run(
            [sys.executable, "-c", ON_THREADS],
            env=os.environ | dict.fromkeys(names, threads),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    ]
    assert found[0] == found[1] != ""
