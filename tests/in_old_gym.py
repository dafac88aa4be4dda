"""Tasks of Gym; tasks/test_gym.py runs this file in the separate virtual environment that Gym needs."""

import json
from pathlib import Path
from typing import Any

import gym
import numpy as np
import old_gym_envs
import pytest
from gymnasium import spaces

import pyes
import pyes.reports.replay
from pyes import cli, tasks
from pyes.errors import ConfigError
from pyes.numerics import streams
from pyes.reports import video
from pyes.reports.replay import evaluate
from pyes.run.metrics import read_rows
from pyes.tasks import Task
from pyes.tasks.gym import GymConfig

OLD = "old_gym_envs:Corridor-v0"


def make(env_id: str, render_mode: str | None = None, **settings: Any) -> Task:
    return tasks.make(GymConfig(env_id=env_id, **settings), render_mode)


def action_of(task: Task, rng: np.random.Generator) -> Any:
    space = task.action_space
    if isinstance(space, spaces.Discrete):
        return int(space.start + rng.integers(space.n))
    assert isinstance(space, spaces.Box)
    return rng.uniform(-1, 1, space.shape).astype(np.float32)


def episode(task: Task, seed: int, timesteps: int = 200) -> list[Any]:
    """Return all that an episode of random actions shows."""
    rng = np.random.default_rng(seed)
    seen: list[Any] = [np.ravel(task.reset(seed)).tolist()]
    for _ in range(timesteps):
        observation, reward, terminated, truncated, _ = task.step(action_of(task, rng))
        seen.append((np.ravel(observation).tolist(), float(reward), bool(terminated), bool(truncated)))
        if terminated or truncated:
            break
    return seen


def test_it_runs_with_the_numpy_that_gym_was_written_for():
    assert np.__version__.startswith("1.")
    assert gym.__version__ == "0.26.2"


@pytest.mark.parametrize(
    ("env_id", "size", "actions", "limit"),
    [
        ("CartPole-v1", 4, spaces.Discrete(2), 500),
        ("Pendulum-v1", 3, spaces.Box(-2, 2, (1,), np.float32), 200),
        ("FrozenLake-v1", 16, spaces.Discrete(4), 100),
        (OLD, 2, spaces.Box(-1, 1, (1,), np.float32), 30),
        ("old_gym_envs:Counting-v0", 5, spaces.Discrete(2, start=3), 10),
    ],
)
def test_spaces_and_limits_are_those_of_the_environment(env_id: str, size: int, actions: Any, limit: int):
    with make(env_id) as task:
        assert (task.observation_size, task.action_space, task.max_timesteps) == (size, actions, limit)
        assert len(episode(task, 3, limit)[0]) == size


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0"])
def test_a_thousand_timesteps_are_those_of_gym(env_id: str):
    bare = gym.make(env_id, disable_env_checker=True).unwrapped
    rng = np.random.default_rng(0)
    with make(env_id) as task:
        ended = True
        for timestep in range(1000):
            if ended:
                np.testing.assert_array_equal(task.reset(timestep), bare.reset(seed=timestep)[0])
            action = action_of(task, rng)
            ours, theirs = task.step(action), bare.step(action)
            np.testing.assert_array_equal(ours[0], theirs[0])
            assert ours[1:4] == theirs[1:4]
            ended = theirs[2]
    bare.close()


def test_four_things_of_an_old_step_become_five():
    bare = old_gym_envs.Corridor()
    bare.seed(5)
    expected = [bare.reset().tolist()]
    rng = np.random.default_rng(5)
    with make(OLD) as task:
        for _ in range(100):
            observation, reward, done, _ = bare.step(action_of(task, rng))
            expected.append((observation.tolist(), reward, done, False))
            if done:
                break
        assert episode(task, 5, 100) == expected
        assert episode(task, 6, 100) != expected


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "LunarLander-v2", "BipedalWalker-v3", OLD])
def test_reset_is_a_clean_slate(env_id: str):
    with make(env_id) as used, make(env_id) as fresh:
        for seed in range(5):
            episode(used, seed, 300)
        assert episode(used, 77, 300) == episode(fresh, 77, 300)


def test_remake_is_for_environments_that_remember():
    with make("old_gym_envs:Tired-v0") as task:
        assert episode(task, 1) != episode(task, 1)
    with make("old_gym_envs:Tired-v0", remake=True) as task:
        assert episode(task, 1) == episode(task, 1)


def test_close_closes_the_environment():
    before = old_gym_envs.Corridor.closed
    with make(OLD, env_kwargs={"length": 1.0}) as task:
        assert abs(task.reset(0)[0]) <= 1
        assert old_gym_envs.Corridor.closed == before
    assert old_gym_envs.Corridor.closed == before + 1


@pytest.mark.parametrize(("env_id", "shape", "fps"), [("CartPole-v1", (400, 600, 3), 50), (OLD, (16, 16, 3), 12)])
def test_frames_come_from_either_api(env_id: str, shape: tuple[int, ...], fps: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with make(env_id, "rgb_array") as task:
        task.reset(0)
        assert (task.render().shape, task.render_fps) == (shape, fps)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPole-v9", "task.env_id: 'CartPole-v9' cannot be made: Environment version `v9` for environment"),
        ("no_such_module:CartPole-v1", "cannot be made: No module named 'no_such_module'"),
        ("old_gym_envs:Unseeded-v0", "cannot be seeded: it has neither reset(seed=...) nor seed(); give it one of"),
        ("old_gym_envs:Between-v0", "has the reset of Gym 0.22 to 0.25 (return_info), expected that of 0.26 or 0.21"),
    ],
)
def test_environment_that_cannot_be_used_is_refused_in_one_line(env_id: str, message: str):
    with pytest.raises(ConfigError) as caught:
        make(env_id)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def config(run_dir: Path, env_id: str, **changes: Any) -> dict[str, Any]:
    return {
        "run_dir": str(run_dir),
        "generations": 2,
        "algorithm": {"population_size": 6},
        "task": {"name": "gym", "env_id": env_id},
        "noise": {"entries": 10_000},
        "evaluation": {"every": 2, "episodes": 3},
        **changes,
    }


@pytest.mark.parametrize("env_id", ["Pendulum-v1", OLD])
def test_run_is_the_same_on_any_cluster_and_is_replayed(env_id: str, tmp_path: Path):
    for name, cluster in {"inline": {"name": "inline"}, "two": {"workers": 2}}.items():
        result = pyes.train(config(tmp_path / name, env_id, cluster=cluster), display=False)
    rows = [read_rows(tmp_path / name / "metrics.csv") for name in ("inline", "two")]
    assert [row["theta_hash"] for row in rows[0]] == [row["theta_hash"] for row in rows[1]]
    assert evaluate(tmp_path / "two", episodes=3).return_mean == pytest.approx(result.objective, rel=1e-12)
    with pyes.reports.replay.open(tmp_path / "two") as replay:
        assert all(replay.play(generation, 4).exact for generation in (0, 1))


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Pendulum-v1", OLD])
def test_a_trained_policy_acts_in_its_environment(env_id: str, tmp_path: Path):
    run = pyes.train(config(tmp_path / "run", env_id), display=False).run_dir
    policy = pyes.load(run)
    env = pyes.make_env(run)
    returns = []
    for seed in streams.evaluation_seeds(policy.seed, 3).tolist():
        observation, _ = env.reset(seed=seed)
        policy.reset()
        rewards, ended = [], False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            rewards.append(float(reward))
            ended = terminated or truncated
        returns.append(sum(rewards))
    env.close()
    assert tuple(returns) == evaluate(run, episodes=3).returns


def test_command_line_trains_and_films_an_old_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = str(tmp_path / "run")
    arguments = ["task=gym", f"task.env_id={OLD}", "task.env_kwargs.length=2", "debug=default", f"run_dir={run}"]
    assert cli.main(["train", *arguments]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert cli.main(["evaluate", run, "--episodes", "2", "--json"]) == 0
    lengths = json.loads(capsys.readouterr().out)["lengths"]
    assert max(lengths) <= 30
    pytest.importorskip("imageio_ffmpeg")
    assert video.record(run, tmp_path / "film.mp4").lengths == (lengths[0],)
