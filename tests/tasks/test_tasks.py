import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from pyes import tasks
from pyes.episodes.rollout import Rollout
from pyes.errors import ConfigError, TaskError
from pyes.networks import ActionDecoder, build
from pyes.networks.linear import LinearConfig
from pyes.tasks.envpool import EnvPoolConfig
from pyes.tasks.gymnasium import GymnasiumConfig, GymnasiumTask
from pyes.tasks.parity import first_difference
from pyes.tasks.python import PythonConfig
from pyes.tasks.wrapped import _Levels
from tests.task_options import option


def _pendulum(**keys):
    return tasks.make(option("pendulum", **keys))


def test_bipedal_walker_as_it_comes_is_not_a_clean_slate():
    """The reason for the fresh world: drop the fix when this fails."""
    used = gymnasium.make("BipedalWalker-v3").unwrapped
    fresh = gymnasium.make("BipedalWalker-v3").unwrapped

    def episode(env, seed):
        rng = np.random.default_rng(seed)
        env.reset(seed=seed)
        return [env.step(rng.uniform(-1, 1, 4).astype(np.float32))[0].tolist() for _ in range(300)]

    for seed in range(6):
        episode(used, seed)
    differs = episode(used, 77) != episode(fresh, 77)
    used.close()
    fresh.close()
    assert differs


@pytest.mark.slow
@pytest.mark.parametrize("config", [option("bipedal_walker"), PythonConfig(factory="user_tasks:own_walker")], ids=str)
def test_an_episode_of_a_walker_does_not_depend_on_earlier_ones(config):
    with tasks.make(config) as used, tasks.make(config) as fresh:

        def episode(task, seed):
            rng = np.random.default_rng(seed)
            task.reset(seed)
            return [task.step(rng.uniform(-1, 1, 4).astype(np.float32))[0].tolist() for _ in range(300)]

        for seed in range(6):
            episode(used, seed)
        assert episode(used, 77) == episode(fresh, 77)


def test_arguments_that_pyes_gives_are_refused():
    expected = r"task.env_kwargs.max_episode_steps: got 9, expected no such argument, .* is task.max_timesteps"
    with pytest.raises(ConfigError, match=expected):
        tasks.make(GymnasiumConfig(env_id="CartPole-v1", env_kwargs={"max_episode_steps": 9}))


@pytest.mark.parametrize(
    "name", ["cart_pole", "lunar_lander", "lunar_lander_discrete", "bipedal_walker", "pendulum", "gymnasium"]
)
def test_task_equals_the_environment_as_gymnasium_makes_it(name):
    config = option(name)
    plain = gymnasium.make(config.env_id)
    with tasks.make(config) as task:
        assert task.max_timesteps == plain.spec.max_episode_steps
        assert first_difference(task, plain, 5) is None
    plain.close()


def test_frame_skip_holds_the_action_and_adds_the_rewards():
    with (
        _pendulum(frame_skip=3) as skipping,
        _pendulum() as plain,
    ):
        assert skipping.max_timesteps == 67
        skipping.reset(1)
        plain.reset(1)
        action = np.array([0.5], np.float32)
        rewards = [plain.step(action)[1] for _ in range(3)]
        assert skipping.step(action)[1] == pytest.approx(sum(rewards))


def test_action_levels_round_each_component_and_reach_both_bounds():
    given = [-7.0, -1.0, -0.76, -0.74, -0.2, 0.1, 0.3, 0.74, 0.76, 1.0, 7.0]
    expected = [-2.0, -2.0, -2.0, -1.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    with (
        _pendulum(action_levels=5) as rounding,
        _pendulum() as plain,
    ):
        for seed, (action, level) in enumerate(zip(given, expected, strict=True)):
            rounding.reset(seed)
            plain.reset(seed)
            ours, theirs = (
                rounding.step(np.array([2 * action], np.float32)),
                plain.step(np.array([level], np.float32)),
            )
            np.testing.assert_array_equal(ours[0], theirs[0])
            assert ours[1] == theirs[1]


def test_action_levels_leave_a_component_with_one_value_alone():
    space = spaces.Box(np.array([-1.0, 2.0], np.float32), np.array([1.0, 2.0], np.float32))
    np.testing.assert_array_equal(_Levels(space, 3).nearest(np.array([0.3, 5.0], np.float32)), [0.0, 2.0])


def test_action_levels_stay_within_bounds_that_are_not_round_numbers():
    tenths = np.arange(-20, 21, dtype=np.float32) / np.float32(10)
    low, high = (each.ravel() for each in np.meshgrid(tenths, tenths))
    space = spaces.Box(low[low < high], high[low < high])
    for action in (space.low, space.high):
        level = _Levels(space, 11).nearest(action)
        assert space.contains(level)
        np.testing.assert_allclose(level, action, atol=2e-7)


def test_action_levels_go_with_frame_skip():
    with (
        _pendulum(action_levels=3, frame_skip=2) as rounding,
        _pendulum(frame_skip=2) as plain,
    ):
        rounding.reset(1)
        plain.reset(1)
        ours = rounding.step(np.array([1.1], np.float32))
        assert ours[1] == plain.step(np.array([2.0], np.float32))[1]


def test_action_levels_need_bounds():
    with pytest.raises(ConfigError, match=r"task.action_levels=3 needs bounds, but the action space is Discrete\(2\)"):
        tasks.make(GymnasiumConfig(env_id="CartPole-v1", action_levels=3))
    with pytest.raises(
        ConfigError, match=r"task.action_levels=3 is for real numbers, but .* Box\(0, 5, \(2,\), int8\)"
    ):
        _Levels(spaces.Box(0, 5, (2,), np.int8), 3)
    with pytest.raises(ConfigError, match=r"task.action_levels: got 1, expected 0 \(any value\) or an integer >= 2"):
        GymnasiumConfig(action_levels=1)


def test_max_timesteps_lowers_the_limit_and_never_raises_it():
    for given, expected in [(None, 500), (50, 50), (900, 500)]:
        with tasks.make(GymnasiumConfig(env_id="CartPole-v1", max_timesteps=given)) as task:
            assert task.max_timesteps == expected


def test_discrete_observations_become_numbers():
    with tasks.make(GymnasiumConfig(env_id="FrozenLake-v1")) as task:
        assert task.observation_size == 16
        assert np.asarray(task.reset(0)).sum() == 1


def test_remade_environment_is_the_one_that_is_stepped():
    """A rollout takes the task's step anew after each reset."""
    with tasks.make(GymnasiumConfig(env_id="BipedalWalker-v3", remake=True)) as task:
        head = ActionDecoder.for_space(task.action_space)
        spec, theta = build(LinearConfig(), task.observation_size, head, seed=0, observation_clip=5.0)
        rollout = Rollout(task, spec.runner())
        rollout.runner.load(theta)
        results = []
        for seed in (1, 2, 1):
            rollout.runner.begin_episode(0, 0, 0, 0)
            results.append(rollout.run(seed, 200))
    assert results[0] == results[2] != results[1]


def test_remake_builds_the_environment_for_every_episode():
    with tasks.make(GymnasiumConfig(env_id="CartPole-v1", remake=True)) as task:
        first = task._env
        task.reset(0)
        assert task._env is not first
        assert len(task.step(0)) == 5


def test_unknown_environment_is_refused_with_similar_names():
    with pytest.raises(ConfigError, match=r"task.env_id: 'LunarLandr-v3' cannot be made.*LunarLander"):
        tasks.make(GymnasiumConfig(env_id="LunarLandr-v3"))


def test_environment_that_cannot_be_made_is_a_task_error():
    with pytest.raises(TaskError, match="'CartPole-v1' cannot be made: TypeError: "):
        tasks.make(GymnasiumConfig(env_id="CartPole-v1", env_kwargs={"no_such": 1}))


def test_rendering_gives_frames():
    with tasks.make(GymnasiumConfig(env_id="CartPole-v1"), "rgb_array") as task:
        task.reset(0)
        assert task.render().shape[-1] == 3
        assert task.render_fps == 50


def test_envpool_without_its_package_is_refused_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(
        ConfigError, match=r"'CartPole-v1' of task=envpool needs the package envpool: .*install \"pyes-rl\[envpool\]\""
    ):
        tasks.make(EnvPoolConfig(env_id="CartPole-v1"))


@pytest.mark.parametrize("env_id", ["ale_py:ALE/Pong-v5", "gymnasium:Hopper-v5", "gymnasium:LunarLander-v3"])
def test_an_id_with_its_package_is_the_same_task(env_id):
    """So that nobody trains another environment by naming where it is from."""
    _, plain = env_id.split(":")
    with tasks.make(GymnasiumConfig(env_id=env_id)) as task, tasks.make(GymnasiumConfig(env_id=plain)) as expected:
        assert type(task) is type(expected) is not GymnasiumTask
        assert task.max_timesteps == expected.max_timesteps
        np.testing.assert_array_equal(task.reset(3), expected.reset(3))
