"""Bullet tasks: the episodes of pybullet_envs_gymnasium, bit for bit, whatever went before."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes import networks, tasks
from pyes.config import TaskConfig, from_mapping
from pyes.errors import ConfigError, TaskError
from pyes.networks import ActionDecoder
from pyes.networks.mlp import MLPConfig
from pyes.run.metrics import read_rows
from pyes.tasks import Task
from pyes.training import loop

pytest.importorskip("pybullet_envs_gymnasium")

NAMES = [
    "ant",
    "half_cheetah",
    "hopper",
    "humanoid",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "inverted_pendulum_swingup",
    "reacher",
    "walker2d",
]
LONG = ("ant", "half_cheetah")

Act = Callable[[Any], Any]


def config(name: str, **keys: Any) -> TaskConfig:
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed = OmegaConf.to_container(compose("train", [f"task={name}_bullet"]).task, resolve=True)
    assert isinstance(composed, dict)
    return TaskConfig(**{**composed, **keys})


def fresh(name: str) -> Any:
    return gymnasium.make(config(name).env_id, disable_env_checker=True).unwrapped


def random_actions(space: Any, seed: int) -> Act:
    """Actions of random strength, each held for a random while: robots that lie still would prove little."""
    rng = np.random.default_rng(seed)
    scale, hold = rng.choice([0.3, 1.0, 3.0]), int(rng.integers(1, 20))
    drawn = rng.normal(0, scale, (1000 // hold + 1, *space.shape)).astype(np.float32)
    count = iter(range(1000))
    return lambda observation: drawn[next(count) // hold]


def policy_actions(task: Task, seed: int) -> Act:
    head = ActionDecoder.for_space(task.action_space)
    network = MLPConfig()
    spec, theta = networks.build(network, task.observation_size, head, seed=seed, observation_clip=5.0)
    runner = spec.runner()
    runner.load(theta * 3)
    runner.begin_episode(0, 0, 0, 0)
    return lambda observation: runner.act(observation).copy()


def episode(reset: Callable[[], Any], step: Callable[[Any], Any], act: Act, length: int) -> list[tuple[Any, ...]]:
    """Return all that an episode gives; it goes on where the environment would end it, on the floor."""
    observation = reset()
    trace: list[tuple[Any, ...]] = [(observation.dtype, observation.tobytes())]
    for _ in range(length):
        observation, reward, terminated, truncated, _ = step(act(observation))
        trace.append((observation.dtype, observation.tobytes(), float(reward), terminated, truncated))
    return trace


def played(task: Task, seed: int, length: int) -> list[tuple[Any, ...]]:
    return episode(lambda: task.reset(seed), task.step, random_actions(task.action_space, seed), length)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def task(name: str) -> Iterator[Task]:
    with tasks.make(config(name)) as made:
        yield made


# The same as the environment


@pytest.mark.parametrize("kind", ["random", "policy"])
def test_every_timestep_equals_a_fresh_environments(name: str, task: Task, kind: str):
    for seed in range(20 if name in LONG else 3):
        env = fresh(name)
        acts = [
            random_actions(task.action_space, seed) if kind == "random" else policy_actions(task, seed)
            for _ in range(2)
        ]
        length = 100
        ours = episode(lambda seed=seed: task.reset(seed), task.step, acts[0], length)  # type: ignore[misc]
        theirs = episode(lambda env=env, seed=seed: env.reset(seed=seed)[0], env.step, acts[1], length)  # type: ignore[misc]
        env.close()
        assert ours == theirs


def test_spaces_and_limits_are_the_environments(name: str, task: Task):
    env = gymnasium.make(config(name).env_id, disable_env_checker=True)
    assert task.observation_size == env.observation_space.shape[0]
    assert task.action_space == env.action_space
    assert env.spec is not None
    assert task.max_timesteps == env.spec.max_episode_steps
    assert task.render_fps == 60
    env.close()


def test_robot_that_is_thrown_about_stays_equal_for_a_thousand_steps():
    env = fresh("ant")
    with tasks.make(config("ant")) as task:
        ours = episode(lambda: task.reset(5), task.step, random_actions(task.action_space, 5), 1000)
    theirs = episode(lambda: env.reset(seed=5)[0], env.step, random_actions(env.action_space, 5), 1000)
    env.close()
    assert ours == theirs


def test_thousand_steps_with_the_resets_that_they_need(name: str, task: Task):
    rng = np.random.default_rng(0)
    observation = task.reset(0)
    for seed in range(1, 1001):
        assert observation.shape == (task.observation_size,)
        assert observation.dtype == np.float32
        action = rng.uniform(-1, 1, task.action_space.shape).astype(np.float32)  # type: ignore[arg-type]
        observation, reward, terminated, truncated, _ = task.step(action)
        assert np.isfinite(observation).all()
        assert np.isfinite(reward)
        assert (type(terminated), truncated) == (bool, False)
        if terminated:
            observation = task.reset(seed)


# A clean slate


def test_every_reset_is_a_clean_slate(name: str, task: Task):
    """An episode after others is, bit for bit, what it is in a fresh task: those others end in tangled heaps."""
    with tasks.make(config(name)) as other:
        expected = played(other, 77, 150)
    for seed in range(4):
        played(task, seed, 100 + 50 * seed)
        assert played(task, 77, 150) == expected


def test_restored_state_alone_is_no_clean_slate_for_a_humanoid(monkeypatch: pytest.MonkeyPatch):
    """The reason for making the engine forget pairs: drop it when this fails."""
    with tasks.make(config("humanoid")) as task:
        expected = {seed: played(task, seed, 250) for seed in range(5)}
        client = task._world._p  # type: ignore[attr-defined]
        monkeypatch.setattr(client, "setCollisionFilterPair", lambda *_: None, raising=False)
        again = {seed: played(task, seed, 250) for seed in range(5)}
    assert again != expected


def test_seeds_differ(name: str, task: Task):
    assert len({task.reset(seed).tobytes() for seed in range(5)}) == 5


def test_another_process_plays_the_same_episodes(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys\n"
        "from tests.tasks.test_bullet import NAMES, digest\n"
        "print(json.dumps({name: digest(name) for name in NAMES}))\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({root!r}); exec(open({str(program)!r}).read())"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    # PyBullet prints when it is imported and whenever it connects; nothing but the digests may be there.
    assert done.stderr == ""
    assert json.loads(done.stdout) == {name: digest(name) for name in NAMES}


def digest(name: str) -> str:
    with tasks.make(config(name)) as task:
        played(task, 1, 50)
        trace = played(task, 2, 100)
    return hashlib.sha256(repr(trace).encode()).hexdigest()


def test_workers_change_nothing(tmp_path: Path):
    def hashes(run: str, **cluster: Any) -> list[str]:
        settings = {
            "run_dir": str(tmp_path / run),
            "generations": 2,
            "task": {"env_id": config("humanoid").env_id, "max_timesteps": 40},
            "algorithm": {"population_size": 8},
            "noise": {"entries": 100_000},
            "evaluation": {"every": 2, "episodes": 2},
            "cluster": cluster,
        }
        loop.train(settings, display=False)
        return [row["theta_hash"] for row in read_rows(tmp_path / run / "metrics.csv")]

    assert hashes("inline", name="inline") == hashes("local", name="local", workers=3)


# Use


def test_experiment_has_6536_parameters_and_11_torques():
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed: Any = OmegaConf.to_container(compose("train", ["experiment=ant_bullet", "run_dir=x"]), resolve=True)
    made = from_mapping(composed)
    assert (made.task.max_timesteps, made.task.episodes, made.algorithm.population_size) == (500, 1, 100)
    with tasks.make(made.task) as task, tasks.make(config("ant", max_timesteps=500)) as plain:
        head = ActionDecoder.for_space(task.action_space, made.task.action)
        spec, theta = networks.build(made.network, task.observation_size, head, seed=0, observation_clip=5.0)
        assert (theta.size, spec.dim) == (6536, 6536)
        given = np.linspace(-0.97, 0.97, 8, dtype=np.float32)
        levels = np.float32(-1) + np.float32(2) * (np.round(given * 5 + 5) / np.float32(10))
        task.reset(0)
        plain.reset(0)
        assert task.step(given)[0].tobytes() == plain.step(levels)[0].tobytes()


def test_id_may_name_its_module():
    with tasks.make(TaskConfig(env_id="pybullet_envs_gymnasium:InvertedPendulumBulletEnv-v0")) as task:
        assert type(task).__name__ == "BulletTask"
        assert task.max_timesteps == 1000


def test_options_of_every_task_hold_here_too():
    with tasks.make(config("half_cheetah", frame_skip=4, max_timesteps=100)) as task:
        assert task.max_timesteps == 100
        task.reset(3)
        held = np.full(6, 0.3, np.float32)
        _, total, _, _, _ = task.step(held)
    with tasks.make(config("half_cheetah", remake=True)) as task:
        task.reset(3)
        assert sum(task.step(held)[1] for _ in range(4)) == total


def test_action_that_is_not_finite_is_refused_and_does_no_harm(name: str, task: Task):
    expected = played(task, 4, 20)
    for value in (np.nan, np.inf):
        task.reset(4)
        with pytest.raises(TaskError, match="expected finite numbers"):
            task.step(np.full(task.action_space.shape, value, np.float32))  # type: ignore[arg-type]
        assert played(task, 4, 20) == expected


def test_closing_disconnects_the_engine(name: str):
    import pybullet

    def connections() -> int:
        return sum(bool(pybullet.isConnected(client)) for client in range(64))

    before = connections()
    task = tasks.make(config(name))
    task.reset(0)
    assert connections() == before + 1
    task.close()
    task.close()  # twice does no harm
    assert connections() == before


def test_frames_show_the_robot_and_change_nothing(name: str):
    with tasks.make(config(name)) as plain, tasks.make(config(name), "rgb_array") as filmed:
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


def test_missing_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pybullet_envs_gymnasium", None)
    with pytest.raises(ConfigError, match=r"AntBulletEnv-v0' needs the package .*pip install 'pyes-rl\[bullet\]'"):
        tasks.make(TaskConfig(env_id="AntBulletEnv-v0"))
