import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import pyes
import pyes.reports.replay
from pyes import tasks
from pyes.config import TaskConfig
from pyes.errors import ConfigError
from pyes.reports.replay import evaluate
from pyes.run.metrics import read_rows

PENDULUM = {"env_id": "Pendulum-v1", "hide_observations": [2]}


def _whole_and_hidden(**settings):
    """Yield one episode as the whole task and the one with hidden numbers give it: observation and the rest of each."""
    config = {"env_id": "Pendulum-v1", **settings}
    with (
        tasks.make(TaskConfig(**{**config, "hide_observations": ()})) as whole,
        tasks.make(TaskConfig(**config)) as hidden,
    ):
        assert hidden.max_timesteps == whole.max_timesteps
        yield whole.reset(3), hidden.reset(3), (), ()
        for action in np.linspace(-2, 2, 20, dtype=np.float32):
            ours, theirs = hidden.step(action.reshape(1)), whole.step(action.reshape(1))
            yield theirs[0], ours[0], ours[1:], theirs[1:]


@pytest.mark.parametrize("remake", [False, True])
def test_removed_numbers_are_left_out_and_nothing_else_changes(remake):
    for whole, seen, ours, theirs in _whole_and_hidden(hide_observations=(2,), remake=remake):
        np.testing.assert_array_equal(seen, whole[:2])
        assert ours == theirs


def test_zeroed_numbers_are_zero_and_nothing_else_changes():
    for whole, seen, ours, theirs in _whole_and_hidden(hide_observations=(0, 2), hide_by="zero"):
        np.testing.assert_array_equal(seen, [0, whole[1], 0])
        assert ours == theirs


def test_indices_count_in_the_flattened_observation():
    with tasks.make(TaskConfig(env_id="FrozenLake-v1", hide_observations=(1, 15))) as task:
        assert task.observation_size == 14
        np.testing.assert_array_equal(task.reset(0), np.eye(14)[0])


class _Shared(gymnasium.Env):
    """Gives out the array in which it keeps its own state."""

    observation_space = spaces.Box(-np.inf, np.inf, (2, 2))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.state = np.ones((2, 2), np.float32)
        return self.state, {}

    def step(self, action):
        self.state += 1
        return self.state, float(self.state.sum()), False, False, {}


gymnasium.register("Shared-v0", entry_point=_Shared)


def test_zeros_do_not_reach_the_environment():
    with tasks.make(TaskConfig(env_id="Shared-v0", hide_observations=(1,), hide_by="zero")) as task:
        np.testing.assert_array_equal(task.reset(0), [1, 0, 1, 1])
        observation, reward, *_ = task.step(0)
        np.testing.assert_array_equal(observation, [2, 0, 2, 2])
        assert reward == 8


def test_frames_are_those_of_the_whole_task():
    with tasks.make(TaskConfig(env_id="CartPole-v1", hide_observations=(1, 3)), "rgb_array") as task:
        task.reset(0)
        assert task.render().shape[-1] == 3
        assert task.render_fps == 50


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ((3,), "task.hide_observations: got 3, expected at most 2: the task observes 3 numbers"),
        ((0, 1, 2), "task.hide_observations: got all 3 numbers, expected that the policy sees some"),
    ],
)
def test_what_cannot_be_hidden_is_refused(hidden, message):
    with pytest.raises(ConfigError, match=message):
        tasks.make(TaskConfig(env_id="Pendulum-v1", hide_observations=hidden))


# In a run


def _config(run_dir, **changes):
    return {
        "run_dir": str(run_dir),
        "generations": 3,
        "algorithm": {"population_size": 6},
        "task": {**PENDULUM, "episodes": 2, "max_timesteps": 30, "normalize_observations": True},
        "network": {"name": "lstm", "hidden": [4]},
        "noise": {"entries": 10_000},
        "cluster": {"name": "inline"},
        "evaluation": {"every": 3, "episodes": 3},
        **changes,
    }


def test_run_is_replayed_and_evaluated_without_the_hidden_numbers(tmp_path):
    result = pyes.train(_config(tmp_path / "run"), display=False)
    policy = pyes.load(tmp_path / "run")
    assert policy.spec.program.observation_size == 2
    assert policy.task["hide_observations"] == [2]
    assert evaluate(tmp_path / "run", episodes=3).return_mean == pytest.approx(result.objective, rel=1e-12)
    with pyes.reports.replay.open(tmp_path / "run") as replay:
        assert all(replay.play(generation, member).exact for generation in (2, 0) for member in (5, 0))


def test_theta_does_not_depend_on_the_workers(tmp_path):
    for name, cluster in (("inline", {"name": "inline"}), ("two", {"workers": 2})):
        pyes.train(_config(tmp_path / name, cluster=cluster), display=False)
    one, two = ([row["theta_hash"] for row in read_rows(tmp_path / name / "metrics.csv")] for name in ("inline", "two"))
    assert one == two


def test_zeroed_velocity_with_double_bias_has_the_published_number_of_parameters(tmp_path):
    """GoodAI's experiment: three numbers observed, one of them zero, and 16 LSTM units with torch's two biases."""
    task = {**PENDULUM, "hide_by": "zero", "max_timesteps": 5}
    network = {"name": "lstm", "hidden": [16], "double_bias": True}
    pyes.train(_config(tmp_path / "run", task=task, network=network, generations=1), display=False)
    assert len(pyes.load(tmp_path / "run").theta) == 1361
