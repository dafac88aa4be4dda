"""What every task must do, tested for every choice of ``task=``, that is every file in conf/task.

A kind of task has at least one choice. ``gym`` needs packages of its own; tests/in_old_gym.py checks its tasks.
"""

import dataclasses
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import user_tasks
from gymnasium import spaces

import pyes
from pyes import networks, tasks
from pyes.config import EnvironmentConfig, TaskConfig, from_mapping, to_mapping
from pyes.config.registry import TASKS
from pyes.episodes.rollout import Rollout
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder, Policy
from pyes.networks.linear import LinearConfig
from pyes.tasks import Task
from tests import task_options

#: Choices beside those of conf/task: environments of EnvPool with other actions, and of a simulator.
MORE: dict[str, TaskConfig] = {
    f"envpool {env_id}": task_options.option("envpool", env_id=env_id) for env_id in ("Pendulum-v1", "HalfCheetah-v5")
}
MORE |= {
    f"native {env_id}": task_options.option("native", env_id=env_id, frame_skip=2)
    for env_id in ("Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
}
#: The environment of the tests whose observations have parts, and actions of another space each.
PARTS = {
    f"python {actions}": task_options.option(
        "python",
        factory="user_tasks:parts",
        env_kwargs={"actions": actions},
        frame_skip=2,
        hide_observations=["note", 1],
    )
    for actions in user_tasks.Parts.ACTIONS
}
CONFIGS = {name: task_options.option(name) for name in task_options.NAMES if name != "gym"} | MORE | PARTS
#: What `make test` runs: an environment of each kind and each simulator.
QUICK = {
    "cart_pole", "lunar_lander", "envpool Pendulum-v1", "function", "native", "python", "maze", "pong", "hopper_bullet",
    "hopper_mujoco", *PARTS,
}  # fmt: skip
#: Digests of the first episodes of those tasks that this process has made.
FIRST: dict[str, str] = {}
_SEED, _LENGTH = 77, 60
_PACKAGES = {"bullet": "pybullet_envs_gymnasium", "envpool": "envpool"}  # not on every platform, nor for every Python


def actions(space: spaces.Space[Any], seed: int, length: int) -> list[Any]:
    """Actions of random strength, some beyond the bounds, each held for a random while."""
    rng = np.random.default_rng(seed)
    hold = int(rng.integers(1, 6))
    if isinstance(space, spaces.Discrete):
        drawn = space.start + rng.integers(space.n, size=length // hold + 1)
        return [int(action) for action in np.repeat(drawn, hold)[:length]]
    if not isinstance(space, spaces.Box) or np.issubdtype(space.dtype, np.integer):
        space.seed(seed)
        return [space.sample() for _ in range(length)]
    high = np.where(np.isfinite(space.high), space.high, 1)
    drawn = rng.normal(0, rng.choice([0.3, 1.0, 3.0]), (length // hold + 1, *space.shape)) * high
    return list(np.repeat(drawn.astype(space.dtype), hold, axis=0)[:length])


def episode(task: Task, seed: int, length: int = _LENGTH) -> list[tuple[Any, ...]]:
    """Return all that an episode gives; the actions are always the same."""
    observation = np.array(task.reset(seed))
    trace: list[tuple[Any, ...]] = [(str(observation.dtype), observation.shape, observation.tobytes())]
    for action in actions(task.action_space, 1, min(length, task.max_timesteps or length)):
        observation, reward, terminated, truncated, _ = task.step(action)
        observation = np.array(observation)
        trace.append((str(observation.dtype), observation.shape, observation.tobytes(), float(reward), terminated))
        if terminated or truncated:
            break
    return trace


def digest(trace: list[tuple[Any, ...]]) -> str:
    return hashlib.sha256(repr(trace).encode()).hexdigest()


@dataclasses.dataclass
class Case:
    """A choice, its task, and the first episode that the task has played."""

    name: str
    config: TaskConfig
    task: Task
    first: list[tuple[Any, ...]]


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CONFIGS]
)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    name: str = request.param
    for part, package in _PACKAGES.items():
        if part in name and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    with tasks.make(CONFIGS[name]) as task:
        first = episode(task, _SEED)
        FIRST[name] = digest(first)
        yield Case(name, CONFIGS[name], task, first)


def test_every_kind_has_a_choice():
    assert CONFIGS.keys() >= QUICK
    assert {config.name for config in CONFIGS.values()} == set(TASKS.names()) - {"gym"}


def test_settings_are_the_same_after_a_round_trip(case: Case):
    network = {"network": {"bias": False}} if case.config.name == "function" else {}
    assert from_mapping({"task": to_mapping(case.config), **network}).task == case.config


def test_observations_rewards_and_ends_are_as_declared(case: Case):
    task = case.task
    assert isinstance(task.action_space, gymnasium.Space)
    assert task.render_fps > 0
    assert task.max_timesteps is not None
    assert task.max_timesteps > 0
    first, kind = np.asarray(task.reset(0)), case.first[0][0]
    assert (first.size, first.shape) == (task.observation_size, task.observation_shape)
    for action in actions(task.action_space, 1, 200):
        observation, reward, terminated, truncated, _ = task.step(action)
        assert (str(observation.dtype), observation.shape) == (kind, task.observation_shape)
        assert np.isfinite(observation).all()
        assert np.isfinite(reward)
        assert {type(terminated), type(truncated)} <= {bool, np.bool_}
        if terminated or truncated:
            task.reset(2)


def test_every_reset_is_a_clean_slate(case: Case):
    """An episode after others is, bit for bit, the first one: those others end at different times."""
    others = []
    for seed, length in ((0, 30), (1, 150), (2, 1)):
        others.append(episode(case.task, seed, length))
        assert episode(case.task, _SEED) == case.first
    differ = [trace[:_LENGTH] != case.first[: len(trace)] for trace in others]
    assert any(differ) != case.task.deterministic


@pytest.mark.slow
def test_settings_of_every_environment_hold(case: Case):
    """Fewer timesteps, a hidden number, and the last observation as the behaviour; afterwards all is given back."""
    changes: dict[str, Any] = {"max_timesteps": 7}
    if isinstance(case.config, EnvironmentConfig):
        changes |= {"hide_observations": (0, *case.config.hide_observations), "behaviour": "final_observation"}
    before = held()
    task = tasks.make(dataclasses.replace(case.config, **changes))
    assert task.max_timesteps == min(7, case.task.max_timesteps or 7)
    trace = episode(task, _SEED)
    dtype, shape, content, *_ = case.first[len(trace) - 1]
    whole = np.frombuffer(content, dtype).reshape(shape)
    if isinstance(case.config, EnvironmentConfig):
        whole = np.delete(whole.ravel(), 0)
        assert task.behaviour_size == task.observation_size == whole.size
        np.testing.assert_array_equal(task.behaviour(whole), whole)
    np.testing.assert_array_equal(np.frombuffer(trace[-1][2], trace[-1][0]), whole.ravel())
    task.close()
    task.close()  # a second time does no harm
    assert held() <= before


def test_loaded_policy_plays_the_same_episode_in_the_environment_itself(case: Case, tmp_path: Path):
    """The policy is given the environment's own observations, and gives its own actions."""
    config = dataclasses.replace(case.config, max_timesteps=min(case.config.max_timesteps or 40, 40))
    network = LinearConfig(bias=case.config.name != "function")
    decoder = ActionDecoder.for_space(case.task.action_space, config.action, bins=config.bins)
    spec, theta = networks.build(network, case.task.observation_size, decoder, 0, 5.0)
    theta += np.random.default_rng(0).normal(0, 0.1, spec.dim).astype(np.float32)
    values = {"network": to_mapping(network), "task": to_mapping(config)}
    Policy(spec, theta, encoder=case.task.encoder, **values).save(tmp_path)
    if not isinstance(config, EnvironmentConfig):
        with pytest.raises(ConfigError, match="is a function of theta and has no environment"):
            pyes.make_env(tmp_path)
        return
    policy, env = pyes.load(tmp_path), pyes.make_env(tmp_path)
    assert env.observation_space.contains(env.reset(seed=5)[0])
    observation, over, total, length = env.reset(seed=_SEED)[0], False, 0.0, 0
    policy.reset()
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        over, total, length = terminated or truncated, total + float(reward), length + 1
    env.close()
    policy.reset()
    with tasks.make(config) as task:
        assert Rollout(task, policy.runner).run(_SEED, task.max_timesteps) == (total, length)


def held() -> int:
    """Count threads, open files and connections to a physics engine."""
    engine: Any = sys.modules.get("pybullet")
    connections = 0 if engine is None else sum(bool(engine.isConnected(client)) for client in range(16))
    if sys.platform != "linux":
        return connections + threading.active_count()
    return connections + len(os.listdir("/proc/self/task")) + len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
def test_another_process_plays_the_same_episodes_and_says_nothing(tmp_path: Path):
    names = [name for name in CONFIGS if all(importlib.util.find_spec(p) for k, p in _PACKAGES.items() if k in name)]
    program = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]!r}\n"
        "import json\n"
        "from tests.conformance.test_tasks import played\n"
        f"print(json.dumps({{name: played(name) for name in {names!r}}}))\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100)
    # PyBullet prints when it is imported and for every world; MuJoCo complains of models, in a file, too.
    assert done.stderr == ""
    assert os.listdir(tmp_path) == []
    assert json.loads(done.stdout) == {name: FIRST.get(name) or played(name) for name in names}


def played(name: str) -> str:
    """Return a digest of an episode."""
    with tasks.make(CONFIGS[name]) as task:
        return digest(episode(task, _SEED))
