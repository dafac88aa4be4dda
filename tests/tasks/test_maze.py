"""The deceptive maze: its rules, and where a straight way ends."""

import numpy as np
from gymnasium.utils.env_checker import check_env

from pyes import tasks
from pyes.tasks.gymnasium import GymnasiumConfig
from pyes.tasks.maze import GOAL, Maze

CONFIG = GymnasiumConfig(env_id="pyes.tasks.maze:Maze-v0", behaviour="final_position")


def _episode(task, seed, steer):
    """Return the return and the places of an episode."""
    observation, total, places = task.reset(seed), 0.0, []
    for _ in range(task.max_timesteps):
        observation, reward, terminated, truncated, _ = task.step(steer(observation))
        total += reward
        places.append(observation * 5)
        if terminated or truncated:
            break
    return total, np.array(places)


def _straight(observation):
    return np.array([1.0, 0.0], np.float32)


def _around(observation):
    x, y = observation * 5
    if x < 4.2 and y < 1.8:
        return np.array([-1.0 if x > -0.3 else 0.0, 1.0], np.float32)
    return np.array([1.0, 0.0 if x < 4.2 else np.clip(-y, -1, 1)], np.float32)


def test_maze_is_an_environment_as_gymnasium_wants_it():
    check_env(Maze("rgb_array"), skip_render_check=True)


def test_maze_straight_way_ends_in_the_trap_and_the_way_around_at_the_goal():
    with tasks.make(CONFIG) as task:
        assert (task.observation_size, task.action_space.shape, task.max_timesteps, task.behaviour_size) == (
            2,
            (2,),
            60,
            2,
        )
        total, places = _episode(task, 0, _straight)
        assert 3.4 < total < 4.1
        assert places[:, 0].max() < 4
        np.testing.assert_allclose(task.behaviour(None), places[-1], atol=1e-6)
        total, places = _episode(task, 0, _around)
        assert total > 7.3
        assert np.hypot(*(places[-1] - GOAL)) < 0.5


def test_maze_walls_hold_whatever_the_actions():
    rng = np.random.default_rng(0)
    with tasks.make(CONFIG) as task:
        for seed in range(20):
            before = task.reset(seed) * 5
            for _ in range(60):
                place = task.step(rng.uniform(-1.5, 1.5, 2).astype(np.float32))[0] * 5
                if abs(before[1]) < 1.5 and 0 < before[0] < 4 and place[0] > 0:
                    assert abs(place[1]) < 1.5
                    assert place[0] < 4
                assert (np.abs(place) <= [10, 5]).all()
                before = place


def test_maze_frame_shows_goal_and_point():
    with tasks.make(CONFIG, "rgb_array") as task:
        task.reset(0)
        before = task.render()
        assert (before.shape, before.dtype) == ((400, 520, 3), np.uint8)
        task.step(np.array([1, 0], np.float32))
        assert (task.render() != before).any()
