"""conf/: every choice of every group makes a valid configuration, and the defaults are those of pyes.config."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes.config import AlgorithmConfig, TrainConfig, algorithm_config, from_mapping, to_mapping
from pyes.training import loop

CONF = Path(__file__).parents[2] / "conf"
GROUPS = ("algorithm", "task", "network", "optimizer", "noise", "cluster", "logger", "sweep", "debug")
OPTIONS = [f"{group}={path.stem}" for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
EXPERIMENTS = [path.stem for path in sorted((CONF / "experiment").glob("*.yaml"))]
#: What a choice cannot do without.
NEEDS = {
    "algorithm=ns_es": ["task.behaviour=final_observation"],
    "algorithm=nsr_es": ["task.behaviour=final_observation"],
    "algorithm=nsra_es": ["task.behaviour=final_observation"],
    "task=atari": ["task.env_id=ALE/Breakout-v5"],
    "task=environment": ["task.name=gymnasium"],
    "task=gymnasium": ["task.env_id=Acrobot-v1"],
    "task=gym": ["task.env_id=CartPole-v1"],
    "task=function": ["task.factory=pyes.tasks.functions:quadratic", "task.dim=3"],
    "task=envpool": ["task.env_id=CartPole-v1"],
    "task=python": ["task.factory=gymnasium:make", "++task.env_kwargs.id=Acrobot-v1"],
    "network=torch": ["network.module=torch.nn:Linear"],
}


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    with initialize_config_module("pyes.conf", version_base="1.3"):
        yield


def composed(*overrides: str) -> dict[str, Any]:
    values: Any = OmegaConf.to_container(compose("train", ["run_dir=x", *overrides]), resolve=True)
    return values


def config(*overrides: str) -> TrainConfig:
    return from_mapping(composed(*overrides))


def test_defaults_of_conf_and_of_the_dataclasses_are_equal():
    made = config("task=gymnasium", "task.env_id=LunarLanderContinuous-v3")
    assert made == dataclasses.replace(TrainConfig(), run_dir="x")


@pytest.mark.parametrize("name", sorted(AlgorithmConfig.KINDS))
def test_algorithm_of_conf_has_all_keys_of_its_dataclass_and_their_defaults(name: str):
    values = composed(f"algorithm={name}", "task=gymnasium")
    assert values["algorithm"] == to_mapping(algorithm_config({"name": name}))


@pytest.mark.parametrize("name", [path.stem for path in sorted((CONF / "cluster").glob("*.yaml"))])
def test_cluster_of_conf_is_what_python_makes_of_its_name(name: str):
    made = from_mapping({"cluster": {"name": name}}).cluster
    assert made == config(f"cluster={name}").cluster
    assert made.name == name


def test_default_choices_have_every_key_but_those_of_other_choices():
    def keys(values: dict[str, Any], prefix: str = "") -> set[str]:
        nested = (keys(value, f"{prefix}{key}.") if isinstance(value, dict) else set() for key, value in values.items())
        return {f"{prefix}{key}" for key in values}.union(*nested)

    others = {
        "optimizer.momentum",
        "optimizer.max_speed",
        "task.factory",
        "task.dim",
        "network.double_bias",
        "network.module",
        "network.module_kwargs",
        "network.channels",
        "network.kernels",
        "network.strides",
        "network.divisor",
        "network.virtual_batch_norm",
        "cluster.listen",
        "cluster.key",
        "cluster.address",
        "cluster.sync",
    }
    assert keys(composed()) == keys(to_mapping(TrainConfig())) - others


@pytest.mark.parametrize("option", OPTIONS)
def test_option_composes_to_a_valid_configuration(option: str):
    assert config(option, *NEEDS.get(option, []), "debug=default").algorithm.population_size == 4


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if not option.startswith(("task=", "sweep=", "debug="))]
)
def test_option_says_its_own_name(option: str):
    group, name = option.split("=")
    values = composed(option)[group]
    assert name in (
        values.get("name"),
        values.get("dtype"),
        {True: "tensorboard", False: "none"}[bool(values.get("tensorboard"))],
    )


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_composes_to_a_valid_configuration(name: str):
    assert config(f"experiment={name}") != config()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_runs_in_debug(name: str, tmp_path: Path):
    if "bullet" in name:
        pytest.importorskip("pybullet_envs_gymnasium")  # it has no wheels past Python 3.11
    made = config(f"experiment={name}", "debug=default", "target_return=null", f"run_dir={tmp_path}")
    result = loop.train(made, display=False)
    assert (result.generations, result.stopped_by) == (2, "generations")
    assert result.objective is not None


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: path.relative_to(CONF).as_posix())
def test_file_opens_with_a_comment_that_says_what_it_is(path: Path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("# @package")]
    assert lines[0].startswith("# ")
    assert isinstance(yaml.safe_load("\n".join(lines)), dict)


@pytest.mark.parametrize("name", ["compare_lander", "compare_ant", "compare_pendulum"])
def test_sweeps_that_compare_are_on_equal_terms(name: str):
    sweep = OmegaConf.load(CONF / "sweep" / f"{name}.yaml")
    assert sweep.hydra.mode == "MULTIRUN"
    assert dict(sweep.hydra.sweeper.params) == {
        "algorithm": "openai_es,cma_es,nevergrad",
        "task.episodes": "1,5",
        "seed": "0,1,2,3,4",
    }
    made = config(f"sweep={name}")
    assert made.generations is made.time_limit is made.target_return is None
    assert made.timesteps is not None  # the one budget, the same for all
    assert made.task.common_random_numbers != "pair"  # not every algorithm has pairs


@pytest.mark.parametrize(
    "option",
    [
        *("sweep=compare_lander", "sweep=compare_ant", "sweep=compare_pendulum"),
        *(f"experiment={name}" for name in EXPERIMENTS),
    ],
)
def test_option_sets_nothing_that_another_algorithm_may_not_have(option: str, tmp_path: Path):
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "plain.yaml").write_text("name: plain\npopulation_size: 7\n")
    algorithm = composed(option, "algorithm=plain", f"hydra.searchpath=[file://{tmp_path}]")["algorithm"]
    assert algorithm.keys() <= {"name", "population_size", "episode_limit", "averaging"}
    assert algorithm["population_size"] >= 7


def test_settings_of_an_experiment_for_one_algorithm_are_its_own_with_that_algorithm():
    files = sorted((CONF / "experiment" / "tuned").glob("*.yaml"))
    assert files
    for path in files:
        experiment, algorithm = path.stem.split("-")
        made = composed(f"experiment={experiment}", f"algorithm={algorithm}")["algorithm"]
        assert made.items() >= yaml.safe_load(path.read_text()).items()


@pytest.mark.parametrize("experiment", ["bipedal_walker", "quadratic"])
def test_experiment_with_an_optimizer_goes_without_one_too(experiment: str):
    assert not config(f"experiment={experiment}", "algorithm=cma_es", "optimizer=adam").algorithm.optimized


@pytest.mark.parametrize("choice", ["algorithm=pgpe", "experiment=lander_pgpe"])
def test_pgpe_takes_clipup_unless_an_optimizer_is_chosen(choice: str):
    assert config(choice).optimizer.name == "clipup"
    assert config(choice, "optimizer=adam").optimizer.name == "adam"


def test_sweep_seeds_runs_several_seeds():
    sweep = OmegaConf.load(CONF / "sweep" / "seeds.yaml")
    assert sweep.hydra.mode == "MULTIRUN"
    assert sweep.hydra.sweeper.params.seed == "0,1,2,3,4"
