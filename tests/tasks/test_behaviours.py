"""Behaviours of episodes: the source of each kind, its way to the journal, and what is refused."""

import importlib.util

import numpy as np
import pytest

import pyes
import pyes.reports.replay
from pyes import tasks
from pyes.config import from_mapping
from pyes.errors import ConfigError, TaskError
from pyes.networks import Policy
from pyes.run.journal import Generation, read
from pyes.tasks.gymnasium import GymnasiumConfig

MAZE = "pyes.tasks.maze:Maze-v0"


def _needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"needs {package}")


def _after(config, steps):
    """Return the behaviour after some steps of one action, the last observation, and the environment."""
    task = tasks.make(config)
    observation = task.reset(3)
    for _ in range(steps):
        action = np.zeros_like(task.action_space.sample())
        observation = task.step(action if action.shape else int(action))[0]
    return np.array(task.behaviour(observation), float), np.ravel(observation), task


def test_behaviour_is_the_last_observation_as_the_policy_sees_it():
    behaviour, observation, task = _after(GymnasiumConfig(env_id="CartPole-v1", behaviour="final_observation"), 4)
    with task:
        assert task.behaviour_size == 4
        np.testing.assert_array_equal(behaviour, observation)
    hidden = GymnasiumConfig(env_id="CartPole-v1", behaviour="final_observation", hide_observations=(1, 3))
    part, _, task = _after(hidden, 4)
    with task:
        assert task.behaviour_size == 2
        np.testing.assert_array_equal(part, observation[[0, 2]])


def test_behaviour_of_a_hidden_task_is_where_the_whole_one_ended():
    behaviour, _, task = _after(GymnasiumConfig(env_id=MAZE, behaviour="final_position", hide_observations=(0,)), 1)
    with task:
        assert (task.observation_size, task.behaviour_size, behaviour.shape) == (1, 2, (2,))


@_needs("mujoco")
def test_behaviour_of_a_mujoco_walker_is_where_its_torso_is():
    behaviour, _, task = _after(GymnasiumConfig(env_id="Ant-v5", behaviour="final_position"), 5)
    with task:
        np.testing.assert_array_equal(behaviour, task._innermost().get_body_com("torso")[:2])
    with pytest.raises(ConfigError, match="expected one of 'none', 'final_observation' for InvertedPendulum-v5"):
        tasks.make(GymnasiumConfig(env_id="InvertedPendulum-v5", behaviour="final_position"))


@_needs("pybullet_envs_gymnasium")
def test_behaviour_of_a_bullet_walker_is_where_its_torso_is():
    behaviour, _, task = _after(GymnasiumConfig(env_id="HopperBulletEnv-v0", behaviour="final_position"), 5)
    with task:
        np.testing.assert_array_equal(behaviour, task._innermost().robot.robot_body.pose().xyz()[:2])
    with pytest.raises(ConfigError, match=r"task\.behaviour: got 'final_position'"):
        tasks.make(GymnasiumConfig(env_id="InvertedPendulumBulletEnv-v0", behaviour="final_position"))


@_needs("ale_py")
def test_behaviour_of_an_atari_game_is_its_memory():
    behaviour, _, task = _after(GymnasiumConfig(env_id="ALE/Pong-v5", behaviour="ram"), 3)
    with task:
        np.testing.assert_array_equal(behaviour, task._innermost()._ale.getRAM())
        assert (task.behaviour_size, behaviour.max() > 0) == (128, True)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"env_id": "CartPole-v1", "behaviour": "ram"}, r"expected one of 'none', 'final_observation' for CartPole-v1"),
        ({"env_id": "CartPole-v1", "behaviour": "walk"}, r"task\.behaviour: got 'walk', expected one of 'none'"),
        ({"name": "envpool", "env_id": "CartPole-v1", "behaviour": "ram"}, r"expected one of 'none', 'final_obs"),
    ],
)
def test_behaviour_that_a_task_does_not_have_is_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        tasks.make(from_mapping({"task": settings}).task)


@pytest.mark.slow
def test_position_that_is_not_x_and_y_is_refused_in_one_line(tmp_path):
    task = {"name": "python", "factory": "user_tasks:placed", "behaviour": "final_position"}
    expected = r"task\.factory=user_tasks:placed has a position of shape \(3,\), expected \(2,\), which is x and y"
    with pytest.raises(TaskError, match=expected):
        _train(tmp_path / "run", task=task)


def _train(path, **changes):
    task = {
        "env_id": MAZE,
        "behaviour": "final_position",
        "episodes": 2,
        "max_timesteps": 20,
        "normalize_observations": False,
    }
    config = {
        "task": task, "algorithm": {"population_size": 8}, "noise": {"entries": 10_000}, "generations": 2,
        "evaluation": {"every": 0}, "cluster": {"name": "inline"}, "run_dir": str(path),
    }  # fmt: skip
    pyes.train(config | changes, display=False)
    return [record for record in read(path / "journal.bin") if isinstance(record, Generation)]


def test_behaviours_are_in_the_journal_mean_over_episodes(tmp_path):
    records = _train(tmp_path / "run")
    with pyes.reports.replay.open(tmp_path / "run") as replay, tasks.make(replay.config.task) as task:
        ends = []
        for seed in replay.play(1, 5).seeds:
            member = Policy(replay.policy(1).spec, replay.member(1, 5))
            member.reset()
            observation = task.reset(seed)
            for _ in range(20):
                observation = task.step(member(observation))[0]
            ends.append(task.behaviour(observation))
    behaviours = records[1].behaviours.reshape(8, 2)
    assert behaviours.dtype == np.float32
    np.testing.assert_array_equal(behaviours[5], np.mean(ends, axis=0).astype(np.float32))


def test_behaviours_that_are_not_asked_for_are_not_recorded(tmp_path):
    records = _train(tmp_path / "run", task={"env_id": MAZE, "max_timesteps": 5})
    assert [record.behaviours for record in records] == [None, None]


@pytest.mark.slow
def test_behaviours_of_failed_members_are_not_numbers(tmp_path):
    records = _train(
        tmp_path / "run",
        task={"name": "python", "factory": "user_tasks:half_broken", "behaviour": "final_observation"},
        network={"init": "zero"},  # so that one of each mirrored pair pushes to the right
    )
    failed = np.isnan(records[0].returns)
    assert 0 < failed.sum() < 8
    np.testing.assert_array_equal(np.isnan(records[0].behaviours), failed)


@pytest.mark.slow
@_needs("envpool")
def test_behaviours_of_many_members_at_once_are_those_of_each_alone(tmp_path):
    task = {"name": "envpool", "env_id": "CartPole-v1", "behaviour": "final_observation", "episodes": 2}
    together, alone = (
        _train(tmp_path / str(vector), task=task, cluster={"name": "inline", "vector": vector}) for vector in (8, 1)
    )
    for ours, same in zip(together, alone, strict=True):
        assert ours.behaviours.shape == (32,)
        np.testing.assert_array_equal(ours.behaviours, same.behaviours)
