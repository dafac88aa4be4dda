"""What every algorithm must do; all registered algorithms are tested here."""

import dataclasses
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import pyes
import pyes.reports.replay
from pyes.algorithms import Algorithm
from pyes.algorithms.contract import Rehearsal
from pyes.config import AlgorithmConfig, algorithm_config, to_mapping
from pyes.config.registry import ALGORITHMS
from pyes.errors import ConfigError
from pyes.numerics.noise import NoiseTable
from pyes.run.journal import read

pytest.importorskip("nevergrad")

ROOT = Path(__file__).parents[2]
DIM = 12
ENTRIES = 100_000
NAMES = ALGORITHMS.names()
ON_TABLE = [name for name in NAMES if ALGORITHMS.get(name).Config.on_table]
each_algorithm = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def table():
    with NoiseTable(ENTRIES, 0) as table:
        yield table


def parameters(name: str) -> set[str]:
    """Return the names of an algorithm's settings."""
    return {each.name for each in dataclasses.fields(ALGORITHMS.get(name).Config)}


def make(name: str, table: NoiseTable, dim: int = DIM, **settings: Any) -> Algorithm:
    return ALGORITHMS.get(name)(np.ones(dim), table, **{"seed": 3, "population_size": 8, **settings})


def tell(algorithm: Algorithm, returns: Any) -> None:
    members = np.stack([algorithm.member(i) for i in range(len(algorithm.ask()))])
    algorithm.tell(returns(members) if callable(returns) else np.full(len(members), returns), members[:, :2])


def shrinking(name: str) -> dict[str, float]:
    """Return settings under which every schedule of an algorithm moves."""
    return {each.name: 0.9 for each in dataclasses.fields(ALGORITHMS.get(name).Config) if each.name.endswith("_decay")}


@each_algorithm
def test_contract_is_kept(name: str, table: NoiseTable):
    """Asking twice, sizes, dtypes, equal bits after equal returns, also when restored between generations."""
    Rehearsal(name, lambda: make(name, table, **shrinking(name)), DIM, ENTRIES, behaviour_size=2).run()


@each_algorithm
def test_population_size_is_a_number_and_may_change_where_it_grows(name: str, table: NoiseTable):
    algorithm = make(name, table)
    before = len(algorithm.ask())
    assert (algorithm.population_size, algorithm.config.capacity(8)) == (8, before)
    tell(algorithm, 0.0)
    if algorithm.config.grows:
        algorithm.population_size = 14
        assert 14 <= len(algorithm.ask()) <= 14 + before - 8
        for size in (0, 1, -2, 2.5):
            with pytest.raises(ConfigError, match=r"^algorithm\.population_size: got .*, expected an integer >= 2"):
                algorithm.population_size = size


@each_algorithm
def test_population_size_cannot_change_where_it_does_not_grow(name: str, table: NoiseTable):
    algorithm = make(name, table)
    if not algorithm.config.grows:
        with pytest.raises(ConfigError, match=r"algorithm\.population_size: got 14 after 8, expected one size"):
            algorithm.population_size = 14


@each_algorithm
def test_a_state_of_another_search_is_refused_in_one_line(name: str, table: NoiseTable):
    algorithm, state = make(name, table), make(name, table).state_dict()
    if algorithm.config.on_table:
        for key, value in (("seed", 5), ("origin" if "origin" in state else "theta", np.zeros(1, np.float32))):
            with pytest.raises(ConfigError, match=r"^(seed: got 3, expected 5|theta: got shape .*, expected \(1,\))"):
                algorithm.load_state_dict(state | {key: value})
    if "m" in state.get("optimizer", {}):
        with pytest.raises(ConfigError, match="optimizer: got a state of velocity, expected m, v, steps"):
            algorithm.load_state_dict(state | {"optimizer": {"velocity": state["theta"]}})


@each_algorithm
def test_a_state_that_is_refused_changes_nothing(name: str, table: NoiseTable):
    other = "ars" if name != "ars" else "ga"
    foreign, algorithm = make(other, table), make(name, table)
    tell(foreign, lambda members: members.sum(axis=1))
    states = [foreign.state_dict(), make(name, table, dim=DIM + 1).state_dict()]
    if "optimizer" in algorithm.state_dict():
        another = make(name, table, optimizer="sgd")
        tell(another, lambda members: members.sum(axis=1))
        states.append(another.state_dict())
    before = algorithm.members()
    for state in states:
        with pytest.raises(ConfigError):
            algorithm.load_state_dict(state)
        assert (algorithm.generation, algorithm.timesteps) == (0, 0)
        np.testing.assert_array_equal(algorithm.theta, 1)
        np.testing.assert_array_equal(algorithm.members(), before)


@each_algorithm
def test_a_population_stays_what_it_was_when_the_search_goes_on(name: str, table: NoiseTable):
    algorithm = make(name, table)
    population, members = algorithm.ask(), algorithm.members()
    tell(algorithm, lambda members: members.sum(axis=1))
    noise = table.array if algorithm.config.on_table else None
    kept = [population.member(i, noise).write(np.empty(DIM, "f4")) for i in range(len(population))]
    np.testing.assert_array_equal(kept, members)


@each_algorithm
def test_another_seed_gives_other_members(name: str, table: NoiseTable):
    assert (make(name, table).member(1) != make(name, table, seed=4).member(1)).any()


@each_algorithm
def test_members_are_arrays_of_their_own(name: str, table: NoiseTable):
    algorithm = make(name, table)
    before = algorithm.member(3)
    algorithm.member(3)[:] = 0
    np.testing.assert_array_equal(algorithm.member(3), before)


@each_algorithm
def test_wrong_number_of_returns_is_refused(name: str, table: NoiseTable):
    algorithm = make(name, table)
    size = len(algorithm.ask())
    with pytest.raises(ValueError, match=rf"^returns: got shape \(3,\), expected \({size},\), one a member$"):
        algorithm.tell([1.0, 2.0, 3.0], np.zeros((size, 2)))
    assert algorithm.generation == 0


@each_algorithm
@pytest.mark.parametrize("value", [np.nan, 7.0], ids=["failed", "equal"])
def test_theta_stays_finite_when_all_members_fail_or_are_equal(name: str, value: float, table: NoiseTable):
    algorithm = make(name, table)
    for _ in range(3):
        tell(algorithm, value)
    assert np.isfinite(algorithm.theta).all()
    assert np.isfinite(algorithm.member(0)).all()


@each_algorithm
def test_infinite_returns_are_those_of_failed_members(name: str, table: NoiseTable):
    infinite, failed = make(name, table), make(name, table)
    for _ in range(3):
        tell(infinite, lambda members: np.where(members[:, 0] > 1, np.inf, np.where(members[:, 1] > 1, -np.inf, 0.5)))
        tell(failed, lambda members: np.where((members[:, 0] > 1) | (members[:, 1] > 1), np.nan, 0.5))
    np.testing.assert_array_equal(infinite.theta, failed.theta)


@pytest.mark.parametrize("name", ON_TABLE)
def test_threads_change_nothing(name: str):
    dim = 150_000
    with NoiseTable(2 * dim, 0) as large:
        thetas = []
        for threads in (1, 3):
            algorithm = make(name, large, dim, threads=threads, population_size=60)
            tell(algorithm, lambda members: -members[:, 0].astype(float))
            thetas.append(algorithm.theta)
    np.testing.assert_array_equal(*thetas)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ns_es"])  # in which returns have no weight
def test_theta_moves_uphill_on_a_sphere(name: str, table: NoiseTable):
    for seed in range(3):
        algorithm = make(name, table, dim=5, seed=seed, sigma=0.1, population_size=20)
        for _ in range(30):
            tell(algorithm, lambda members: -(members.astype(float) ** 2).sum(axis=1))
        assert (algorithm.theta**2).sum() < 4.5  # from 5


@pytest.mark.parametrize("name", ON_TABLE)
def test_a_table_smaller_than_theta_is_refused(name: str):
    with (
        NoiseTable(10, 0) as small,
        pytest.raises(ConfigError, match=r"the table has 10 entries, theta has 12 parameters"),
    ):
        make(name, small)


# Settings


@each_algorithm
def test_settings_are_a_frozen_dataclass_with_the_registered_name(name: str):
    kind = ALGORITHMS.get(name)
    assert issubclass(kind.Config, AlgorithmConfig)
    assert kind.Config.__dataclass_params__.frozen
    assert (kind.kind, kind.Config().name, kind.Config.kind({})) == (name, name, kind.Config)
    assert kind.title
    assert algorithm_config(to_mapping(kind.Config())) == kind.Config()


@each_algorithm
def test_constructor_shows_its_settings_and_refuses_others(name: str, table: NoiseTable):
    kind = ALGORITHMS.get(name)
    shown = inspect.signature(kind).parameters
    hints = typing.get_type_hints(kind.Config)
    for field in dataclasses.fields(kind.Config):
        if field.name not in ("name", "factory"):
            assert shown[field.name].annotation == hints[field.name]
    assert {"theta", "table", "seed", "threads"} <= shown.keys()
    assert ("optimizer" in shown) == (kind.Config.optimized or hasattr(kind.Config(), "optimizer"))
    with pytest.raises(
        ConfigError, match=r"^unknown key 'algorithm\.population_sise': did you mean 'algorithm\.population_size'\?"
    ):
        kind(np.ones(2), table, population_sise=4)


@each_algorithm
@pytest.mark.parametrize("section", ["growth", "averaging", "episode_limit"])
def test_sections_of_a_run_are_refused_by_ask_and_tell(name: str, section: str, table: NoiseTable):
    message = rf"^unknown key 'algorithm\.{section}': it is a section of a run, .* not available to ask-and-tell"
    with pytest.raises(ConfigError, match=message):
        ALGORITHMS.get(name)(np.ones(2), table, **{section: {}})


@each_algorithm
def test_conf_has_its_keys_and_defaults(name: str):
    values = yaml.safe_load((ROOT / "conf" / "algorithm" / f"{name}.yaml").read_text(encoding="utf-8"))
    own = values.get("algorithm", values)  # @package _global_
    assert own | {"factory": None} == to_mapping(algorithm_config({"name": name}))


@each_algorithm
def test_docs_and_package_name_its_class(name: str):
    page = (ROOT / "docs" / "reference" / "algorithms.md").read_text(encoding="utf-8")
    (shown,) = re.findall(rf"^\| `{name}` \| `pyes\.(\w+)` \|", page, re.MULTILINE)
    assert getattr(pyes, shown) is ALGORITHMS.get(name)
    assert shown in dir(pyes)


def test_docs_name_no_algorithm_that_does_not_exist():
    page = (ROOT / "docs" / "reference" / "algorithms.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \| `pyes\.\w+` \|", page, re.MULTILINE)) == set(ALGORITHMS.names())


# Runs


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("pgpe", "nevergrad") else pytest.mark.slow) for name in NAMES]
)
def test_runs_agree_on_any_cluster_resumed_and_replayed(name: str, tmp_path: Path):
    config: dict[str, Any] = {"task": {}, "algorithm": {"name": name}}
    if ALGORITHMS.get(name).Config.needs_behaviours:
        config["task"] = {"behaviour": "final_observation"}
    check_runs_agree(config, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("ars", "cma_es") else pytest.mark.slow)
        for name in NAMES
        if "restart" in parameters(name)
    ],
)
def test_runs_agree_whose_attempts_begin_again(name: str, tmp_path: Path):
    """In generation 2, each with weights of its own."""
    check_runs_agree({"task": {}, "algorithm": {"name": name, "restart": {"after": 1, "below": 1e9}}}, tmp_path)


def check_runs_agree(config: dict[str, Any], folder: Path) -> None:
    """Run four generations in two workers, and in one process in two parts; replay the last and the second."""
    config = {
        "task": {"env_id": "CartPole-v1", "max_timesteps": 60, "normalize_observations": True} | config["task"],
        "algorithm": {"population_size": 6} | config["algorithm"],
        "generations": 4,
        "evaluation": {"every": 2, "episodes": 2},
        "snapshot": {"every": 1},
        "noise": {"entries": 10_000},
    }
    runs = {"two": ({"workers": 2}, 4), "parts": ({"name": "inline"}, 3)}
    for run, (cluster, generations) in runs.items():
        changes = {"run_dir": str(folder / run), "cluster": cluster, "generations": generations}
        pyes.train(config | changes, display=False)
    pyes.train({"resume": str(folder / "parts"), "generations": 4}, display=False)
    whole, parts = (read(folder / run / "journal.bin") for run in runs)
    assert whole.generations == 4
    assert whole.digest == parts.digest
    with pyes.reports.replay.open(folder / "two") as replay:
        for generation in (3, 1):
            assert all(replay.play(generation, member).exact for member in range(replay.population_size(generation)))
