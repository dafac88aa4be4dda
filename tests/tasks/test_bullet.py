"""Bullet tasks: the episodes of pybullet_envs_gymnasium, bit for bit, whatever went before."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes import networks, tasks
from pyes.config import from_mapping
from pyes.errors import ConfigError, TaskError
from pyes.networks import ActionDecoder
from pyes.tasks import Task
from pyes.tasks.gymnasium import GymnasiumConfig
from pyes.tasks.parity import first_difference
from tests.conformance.test_tasks import actions
from tests.task_options import NAMES, option

pytest.importorskip("pybullet_envs_gymnasium")

from pyes.tasks.bullet import BulletTask

OPTIONS = [name for name in NAMES if name.endswith("_bullet")]
#: Episodes and timesteps that are compared with a fresh environment's.
COMPARED = {"ant_bullet": (8, 150), "half_cheetah_bullet": (8, 150)}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name == "hopper_bullet" else pytest.mark.slow) for name in OPTIONS],
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def task(name: str) -> Iterator[Task]:
    with tasks.make(option(name)) as made:
        yield made


def played(task: Task, seed: int, length: int) -> list[tuple[Any, ...]]:
    """Return all that an episode gives; it goes on where the environment would end it, on the floor."""
    trace: list[tuple[Any, ...]] = [(task.reset(seed).tobytes(),)]
    for action in actions(task.action_space, seed, length):
        observation, reward, *_ = task.step(action)
        trace.append((observation.tobytes(), float(reward)))
    return trace


def test_every_timestep_is_a_fresh_environments(name: str, task: Task):
    """The task goes from one episode to the next, in which robots end in tangled heaps; the environment is new."""
    config = option(name)
    assert isinstance(config, GymnasiumConfig)
    episodes, length = COMPARED.get(name, (3, 100))
    for seed in range(episodes):
        env = BulletTask.original(config)
        assert first_difference(task, env, seed, actions(task.action_space, seed, length)) is None
        assert (task.max_timesteps, task.render_fps) == (1000 if "reacher" not in name else 150, 60)
        env.close()


@pytest.mark.slow
def test_robot_that_is_thrown_about_stays_equal_for_a_thousand_steps():
    config = GymnasiumConfig(env_id="AntBulletEnv-v0")
    env = BulletTask.original(config)
    with tasks.make(config) as task:
        assert first_difference(task, env, 5, actions(task.action_space, 5, 1000)) is None
    env.close()


@pytest.mark.slow
def test_restored_state_alone_is_no_clean_slate_for_a_humanoid(monkeypatch: pytest.MonkeyPatch):
    """The reason for making the engine forget pairs: drop it when this fails."""
    with tasks.make(option("humanoid_bullet")) as task:
        expected = {seed: played(task, seed, 250) for seed in range(5)}
        client = task._world._p  # type: ignore[attr-defined]
        monkeypatch.setattr(client, "setCollisionFilterPair", lambda *_: None, raising=False)
        again = {seed: played(task, seed, 250) for seed in range(5)}
    assert again != expected


def test_experiment_has_6536_parameters_and_11_torques():
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed: Any = OmegaConf.to_container(compose("train", ["experiment=ant_bullet", "run_dir=x"]), resolve=True)
    made = from_mapping(composed)
    assert (made.task.max_timesteps, made.task.episodes, made.algorithm.population_size) == (500, 1, 100)
    with tasks.make(made.task) as task, tasks.make(option("ant_bullet", max_timesteps=500)) as plain:
        head = ActionDecoder.for_space(task.action_space, made.task.action)
        spec, theta = networks.build(made.network, task.observation_size, head, seed=0, observation_clip=5.0)
        assert (theta.size, spec.dim) == (6536, 6536)
        given = np.linspace(-0.97, 0.97, 8, dtype=np.float32)
        levels = np.float32(-1) + np.float32(2) * (np.round(given * 5 + 5) / np.float32(10))
        task.reset(0)
        plain.reset(0)
        assert task.step(given)[0].tobytes() == plain.step(levels)[0].tobytes()


def test_id_may_name_its_module():
    with tasks.make(option("gymnasium", env_id="pybullet_envs_gymnasium:InvertedPendulumBulletEnv-v0")) as task:
        assert (type(task), task.max_timesteps) == (BulletTask, 1000)


def test_options_of_every_task_hold_here_too():
    held = np.full(6, 0.3, np.float32)
    with tasks.make(option("half_cheetah_bullet", frame_skip=4)) as task:
        task.reset(3)
        _, total, _, _, _ = task.step(held)
    with tasks.make(option("half_cheetah_bullet", remake=True)) as task:
        task.reset(3)
        assert sum(task.step(held)[1] for _ in range(4)) == total


def test_action_that_is_not_finite_is_refused_and_does_no_harm(name: str, task: Task):
    expected = played(task, 4, 20)
    for value in (np.nan, np.inf):
        task.reset(4)
        with pytest.raises(TaskError, match="expected finite numbers"):
            task.step(np.full(task.action_space.shape, value, np.float32))  # type: ignore[arg-type]
        assert played(task, 4, 20) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ant_bullet", "reacher_bullet"])  # one whose camera follows the robot, and one not
def test_frames_show_the_robot_and_change_nothing(name: str):
    with tasks.make(option(name)) as plain, tasks.make(option(name), "rgb_array") as filmed:
        plain.reset(3)
        filmed.reset(3)
        frames = []
        action = np.full(plain.action_space.shape, 0.5, np.float32)  # type: ignore[arg-type]
        for _ in range(5):
            ours, expected = filmed.step(action), plain.step(action)
            assert ours[0].tobytes() == expected[0].tobytes()
            assert ours[1] == expected[1]
            frames.append(filmed.render())
    for frame in frames:
        assert (frame.shape, frame.dtype) == ((240, 320, 3), np.uint8)
        assert frame.std() > 5
    assert (frames[0] != frames[-1]).any()
    if name == "reacher_bullet":  # its blue arm, of some pixels as the environment films it
        assert (frames[0][..., 2] > frames[0][..., 1]).sum() > 100


def test_missing_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pybullet_envs_gymnasium", None)
    with pytest.raises(ConfigError, match=r"AntBulletEnv-v0' needs the package .*pip install \"pyes-rl\[bullet\]\""):
        tasks.make(option("ant_bullet"))


@pytest.mark.parametrize("package", ["hopper_bullet", "PusherBulletEnv-v0"])
def test_worlds_are_made_without_a_word(package: str, capfd: pytest.CaptureFixture[str]):
    ours = package in OPTIONS
    config = option(package) if ours else GymnasiumConfig(env_id=f"{BulletTask.PACKAGE}:{package}", remake=True)
    with tasks.make(config) as made:
        for seed in range(2):
            played(made, seed, 2)
    printed = [line for line in capfd.readouterr().out.splitlines() if "build time" not in line]
    assert printed == []
