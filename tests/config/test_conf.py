"""conf/: every choice makes a valid configuration, the same as in Python; experiments are complete and extendable."""

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import task_options
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes.config import EnvironmentConfig, TrainConfig, algorithm_config, from_mapping, to_mapping
from pyes.config.space import Space
from pyes.training import loop

CONF = Path(__file__).parents[2] / "conf"
GROUPS = ("algorithm", "task", "network", "optimizer", "noise", "cluster", "logger")
EXPERIMENTS = [path.stem for path in sorted((CONF / "experiment").glob("*.yaml"))]
QUICK = ("maze", "quadratic")
#: What a choice cannot do without.
NEEDS = {
    "algorithm=ns_es": ["task.behaviour=final_observation"],
    "algorithm=nsr_es": ["task.behaviour=final_observation"],
    "algorithm=nsra_es": ["task.behaviour=final_observation"],
    "algorithm=plugin": ["algorithm.factory=pyes.algorithms.openai_es:OpenAIES"],
    "task=atari": ["task.env_id=ALE/Breakout-v5"],
    "task=environment": ["task.name=gymnasium"],
    "task=gymnasium": ["task.env_id=Acrobot-v1"],
    "task=gym": ["task.env_id=CartPole-v1"],
    "task=function": ["task.factory=pyes.tasks.functions:quadratic", "task.dim=3"],
    "task=envpool": ["task.env_id=CartPole-v1"],
    "task=native": ["task.env_id=CartPole-v1"],
    "task=python": ["task.factory=gymnasium:make", "++task.env_kwargs.id=Acrobot-v1"],
    "network=torch": ["network.module=torch.nn:Linear"],
}


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    with initialize_config_module("pyes.conf", version_base="1.3"):
        yield


def options(group: str) -> list[str]:
    # task=environment is what other files include; alone, it has no kind.
    return [path.stem for path in sorted((CONF / group).glob("*.yaml")) if path.stem != "environment"]


@functools.cache
def composed(*overrides: str) -> dict[str, Any]:
    more = [need for override in overrides for need in NEEDS.get(override, [])]
    values: Any = OmegaConf.to_container(compose("train", ["run_dir=x", *overrides, *more]), resolve=True)
    return values


@functools.cache
def config(*overrides: str) -> TrainConfig:
    return from_mapping(composed(*overrides))


def in_file(path: Path) -> dict[str, Any]:
    """Return what a file itself sets, without what it includes."""
    return {key: value for key, value in yaml.safe_load(path.read_text()).items() if key != "defaults"}


# Python and the command line


@pytest.mark.slow
def test_without_arguments_python_and_the_command_line_train_the_same():
    assert config() == from_mapping({"run_dir": "x"})
    assert config() == config("experiment=lunar_lander")
    assert config("task.episodes=3") == from_mapping({"task": {"episodes": 3}, "run_dir": "x"})


@pytest.mark.slow
def test_every_task_is_the_same_in_python_and_on_the_command_line():
    for name in options("task"):
        values = composed(f"task={name}")
        if name != "default":
            assert from_mapping(values) == from_mapping({"task": values["task"], "run_dir": "x"}), name


@pytest.mark.parametrize(
    "group",
    [
        "optimizer",
        "noise",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("algorithm", "network", "cluster", "logger")),
    ],
)
def test_every_option_is_the_same_in_python_and_on_the_command_line(group: str):
    for name in set(options(group)) - {"plugin", "torch"}:
        key, value = ("dtype" if group == "noise" else "name"), name
        if group == "logger":
            key, value = ("tensorboard", False) if name == "none" else (name, True)
        needs = {"task": {"behaviour": "final_observation"}} if f"algorithm={name}" in NEEDS else {}
        assert config(f"{group}={name}") == from_mapping({group: {key: value}, "run_dir": "x", **needs}), name


def test_several_loggers_are_one_choice():
    both = {"logger": {"tensorboard": True, "wandb": True}, "run_dir": "x"}
    assert config("logger=[tensorboard,wandb]") == from_mapping(both)


@pytest.mark.slow
def test_every_algorithm_of_conf_lists_all_of_its_keys():
    for name in set(options("algorithm")) - {"plugin"}:
        keys = composed(f"algorithm={name}")["algorithm"] | {"factory": None}
        assert keys == to_mapping(algorithm_config({"name": name})), name


def test_default_choices_list_every_key_but_those_of_other_choices():
    def keys(values: dict[str, Any], prefix: str = "") -> set[str]:
        nested = (keys(value, f"{prefix}{key}.") if isinstance(value, dict) else set() for key, value in values.items())
        return {f"{prefix}{key}" for key in values}.union(*nested)

    others = {"algorithm.factory", "optimizer.momentum", "optimizer.max_speed"}
    assert keys(composed()) == keys(to_mapping(from_mapping({}))) - others


# Options


@pytest.mark.slow
@pytest.mark.parametrize("group", [*GROUPS, "sweep"])
def test_every_option_makes_a_valid_configuration_and_goes_with_debug(group: str):
    for name in options(group):
        assert config(f"{group}={name}", "debug=default").algorithm.population_size == 64, name


def test_every_file_opens_with_a_comment_that_says_what_it_is():
    for path in sorted(CONF.rglob("*.yaml")):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("# @package")]
        assert lines[0].startswith("# "), path
        assert isinstance(yaml.safe_load("\n".join(lines)), dict), path


def test_a_task_is_only_a_task():
    """Choosing one changes neither seeds nor rewards nor episodes; task=default is the choice of an experiment."""
    plain = EnvironmentConfig()
    for name in set(options("task")) - {"default"}:
        task = task_options.option(name)
        if not isinstance(task, EnvironmentConfig):
            continue
        for key in ("episodes", "common_random_numbers", "reward_offset_per_step", "normalize_observations"):
            assert getattr(task, key) == getattr(plain, key), (name, key)
        if name != "function":  # theta itself is its policy, and one evaluation says all
            assert "@package" not in (CONF / "task" / f"{name}.yaml").read_text(), name


@pytest.mark.parametrize("choice", ["algorithm=pgpe", "experiment=lunar_lander-pgpe"])
def test_pgpe_takes_clipup_unless_an_optimizer_is_chosen(choice: str):
    assert config(choice).optimizer.name == "clipup"
    assert config(choice, "optimizer=adam").optimizer.name == "adam"


# Experiments


@pytest.mark.slow
def test_every_experiment_differs_from_the_default_run_runs_on_any_cluster_and_says_whose_keys_it_sets():
    """The keys of an algorithm come with its name: `pyes train` refuses to give them to another one."""
    for name in EXPERIMENTS:
        made = config(f"experiment={name}")
        assert (made == config()) is (name == "lunar_lander"), name
        assert made.cluster == config().cluster, name
        keys = in_file(CONF / "experiment" / f"{name}.yaml").get("algorithm", {})
        if keys.keys() - {"population_size"}:
            assert keys["name"] == made.algorithm.name, name
    for path in (CONF / "sweep").glob("*.yaml"):
        assert in_file(path).get("algorithm", {}).keys() <= {"population_size"}


@pytest.mark.slow
def test_an_extension_of_every_experiment_has_all_of_its_settings(tmp_path: Path):
    (tmp_path / "experiment").mkdir()
    for name in EXPERIMENTS:
        text = f"# @package _global_\ndefaults:\n  - {name}\n  - _self_\n\nseed: 7\n"
        (tmp_path / "experiment" / f"my_{name}.yaml").write_text(text)
    search = f"hydra.searchpath=[file://{tmp_path}]"
    for name in EXPERIMENTS:
        assert config(f"experiment=my_{name}", search) == replace(config(f"experiment={name}"), seed=7), name


def test_extension_may_choose_another_task(tmp_path: Path):
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\ndefaults:\n  - lunar_lander\n  - override /task: lunar_lander_discrete\n  - _self_\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    made = config("experiment=mine", f"hydra.searchpath=[file://{tmp_path}]").task
    assert made == replace(config("experiment=lunar_lander").task, env_id="LunarLander-v3")


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in EXPERIMENTS]
)
def test_experiment_runs_in_debug(name: str, tmp_path: Path):
    if "bullet" in name:
        pytest.importorskip("pybullet_envs_gymnasium")  # it has no wheels past Python 3.11
    made = config(f"experiment={name}", "debug=default", "target_return=null", f"run_dir={tmp_path}")
    result = loop.train(made, display=False)
    assert (result.generations, result.stopped_by) == (2, "generations")
    assert result.objective is not None


# Sweeps


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compare_lander", "compare_ant", "compare_pendulum"])
def test_sweeps_that_compare_are_on_equal_terms(name: str):
    sweep = OmegaConf.load(CONF / "sweep" / f"{name}.yaml").hydra
    assert sweep.mode == "MULTIRUN"
    (group, choices), *rest = sweep.sweeper.params.items()
    assert rest[-2:] == [("task.episodes", "1,5"), ("seed", "0,1,2,3,4")]
    assert all(not isinstance(value, str) or "," not in value for _, value in rest[:-2])  # the same for all
    made = [config(f"sweep={name}", f"{group}={choice}") for choice in choices.split(",")]
    assert [each.algorithm.name for each in made] == ["openai_es", "cma_es", "nevergrad"]
    assert len({each.algorithm.population_size for each in made}) == 1
    for each in made:
        assert (each.task, each.network, each.evaluation) == (made[0].task, made[0].network, made[0].evaluation)
        assert (each.generations, each.time_limit, each.target_return) == (None, None, None)
        assert each.timesteps == made[0].timesteps is not None  # the one budget, the same for all
        assert each.task.common_random_numbers != "pair"  # not every algorithm has pairs


def test_sweep_seeds_runs_several_seeds():
    sweep = OmegaConf.load(CONF / "sweep" / "seeds.yaml").hydra
    assert (sweep.mode, dict(sweep.sweeper.params)) == ("MULTIRUN", {"seed": "0,1,2,3,4"})


@pytest.mark.parametrize("algorithm", [path.stem for path in sorted((CONF / "tune").glob("*.yaml"))])
def test_what_is_searched_are_valid_values(algorithm: str):
    space = Space.read(CONF / "tune" / f"{algorithm}.yaml")
    for values in space.samples():
        made = config(f"algorithm={algorithm}", "task=hopper_mujoco", *space.overrides(values))
        assert made.algorithm.name == algorithm
