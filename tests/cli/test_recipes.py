"""Which tasks have a recipe, and how one is written."""

import re
import shlex
from importlib import resources
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes.cli import recipes, train
from pyes.config import from_mapping, to_mapping


@pytest.mark.parametrize(
    ("option", "env_id", "name"),
    [
        ("acrobot", "Acrobot-v1", "acrobot"),
        ("gymnasium", "Acrobot-v1", "acrobot"),
        ("native", "CartPole-v1", "cart_pole"),
        ("cart_pole", "Acrobot-v1", "acrobot"),
        ("lunar_lander", "LunarLander-v3", "lunar_lander_discrete"),
        ("half_cheetah_mujoco", "HalfCheetah-v4", None),
        ("pendulum_hidden_velocity", "Pendulum-v1", "pendulum_hidden_velocity"),
        ("pendulum_hidden_velocity", "BipedalWalker-v3", "bipedal_walker"),
        ("humanoid_bullet", "HumanoidBulletEnv-v0", None),
        ("gymnasium", "Acrobot-v", None),
        ("python", "", None),
    ],
)
def test_recipe_is_found_by_option_or_environment(option: str, env_id: str, name: str | None):
    line = recipes.advice(option, env_id)
    assert (
        line is None
        if name is None
        else line.startswith(f"there is a recipe for this task: pyes train experiment={name} (median return ")
    )


def test_recipes_say_what_they_take():
    files = sorted(resources.files("pyes.conf").joinpath("experiment").iterdir(), key=str)
    measured = [file for file in files if "# Measured: median" in file.read_text(encoding="utf-8")]
    assert len(measured) > 20
    for file in measured:
        text = recipes._measured(file.name.removesuffix(".yaml"))
        assert re.fullmatch(
            r"median return [-.\d]+ of \d+ seeds?, [-.,\d]+ million timesteps, \d+ seconds on 2 cores", text
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "task=cart_pole algorithm.sigma=0.123 timesteps=1e5",
        "task.env_id=Acrobot-v1 network=mlp network.hidden=[16,8] network.init=zero task.episodes=4 timesteps=2e6",
        "task=native task.env_id=Pendulum-v1 algorithm=pgpe optimizer.max_speed=0.6 task.hide_observations=[2]",
        "experiment=acrobot algorithm.population_size=20 evaluation.episodes=7",
        "task=hopper_mujoco algorithm=ars algorithm.top=8 noise=int8 timesteps=10",
        "task=gymnasium task.env_id=Hopper-v5 task.env_kwargs.forward_reward_weight=2.0 network.name=gru timesteps=10",
        "algorithm.factory=pyes.algorithms.openai_es:OpenAIES algorithm.sigma='linear 0.3 to 0.1 in 9 generations'",
        "experiment=maze timesteps=4000",
        "task=cart_pole network=mlp network.hidden=[8,8] network.hidden.0=32 timesteps=10",
        "task=cart_pole task.env_kwargs.on=1 task.env_kwargs.a=\"'1e3'\" task.env_kwargs.b=yes timesteps=10",
    ],
)
def test_written_recipe_makes_what_its_words_make(tmp_path: Path, words: str):
    overrides = shlex.split(words)
    wanted = train.settings(["generations=null", "target_return=null", *overrides])
    recipes.write(tmp_path / "experiment" / "mine.yaml", overrides, train.settings(overrides), ["One.", "Two."])
    assert (tmp_path / "experiment" / "mine.yaml").read_text().startswith("# @package _global_\n# One.\n# Two.\n")
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed = compose("train", ["experiment=mine", "run_dir=x", f"hydra.searchpath=[file://{tmp_path}]"])
    found = from_mapping(OmegaConf.to_container(composed, resolve=True))  # type: ignore[arg-type]
    assert found == from_mapping(to_mapping(wanted) | {"run_dir": "x"})
