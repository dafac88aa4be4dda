import json

import gymnasium
import numpy as np
import pytest

import pyes
from pyes.errors import ConfigError, RunDirectoryError, TaskError
from pyes.metrics import read_rows
from pyes.networks import ActionHead, Instruction, Policy, PolicySpec, Program
from pyes.replay import Evaluation, evaluate


def _config(run_dir, **task):
    return {
        "seed": 5,
        "generations": 2,
        "run_dir": str(run_dir),
        "algorithm": {"population_size": 4},
        "task": task,
        "network": {"name": "mlp", "hidden": [8], "init": "torch"},
        "noise": {"entries": 10_000},
        "cluster": {"name": "inline"},
        "evaluation": {"every": 1, "episodes": 4},
    }


def _policy(directory, size=4, task=None):
    program = Program((Instruction(0, size, 2, 0, -1, 0),), size, 2, 2 * size)
    theta = np.random.default_rng(0).normal(size=2 * size).astype(np.float32)
    task = {"env_id": "CartPole-v1", "max_timesteps": 200} if task is None else task
    directory.mkdir(parents=True, exist_ok=True)
    Policy(PolicySpec(program, ActionHead("argmax", outputs=2), 5.0), theta, task=task, seed=3).save(directory)
    return directory


@pytest.mark.parametrize(
    "task",
    [
        {"env_id": "CartPole-v1", "normalize_observations": True, "max_timesteps": 100},
        {
            "env_id": "Pendulum-v1",
            "action_noise": 0.5,
            "frame_skip": 2,
            "max_timesteps": 30,
            "reward_offset_per_step": 1.0,
        },
    ],
    ids=["normalized", "noisy"],
)
def test_evaluate_gives_what_the_run_reported(tmp_path, task):
    result = pyes.train(_config(tmp_path / "run", **task), display=False)
    evaluation = evaluate(result.run_dir, episodes=4)
    assert evaluation.return_mean == pytest.approx(result.objective, rel=1e-12)
    last = read_rows(result.run_dir / "metrics.csv")[-1]
    assert float(last["eval_return_mean"]) == pytest.approx(evaluation.return_mean, rel=1e-8)
    assert float(last["eval_return_std"]) == pytest.approx(evaluation.return_std, rel=1e-8)


def test_evaluate_is_the_same_every_time(tmp_path):
    run = _policy(tmp_path)
    first = evaluate(run, episodes=5)
    assert evaluate(run, episodes=5) == first
    assert evaluate(run, episodes=3).returns == first.returns[:3]
    assert evaluate(run, episodes=5, seed=3) == first
    assert evaluate(run, episodes=5, seed=4) != first


def test_evaluate_keeps_to_the_episode_limit(tmp_path):
    run = _policy(tmp_path, task={"env_id": "CartPole-v1", "max_timesteps": 30})
    evaluation = evaluate(run, episodes=5)
    assert max(evaluation.lengths) == 30
    assert evaluation.returns == tuple(float(length) for length in evaluation.lengths)  # CartPole pays 1 a timestep


def test_evaluation_sums_up_and_becomes_json():
    evaluation = Evaluation.of([(1.0, 10), (3.0, 20)])
    assert json.loads(json.dumps(evaluation.to_dict())) == {
        "return_mean": 2.0,
        "return_std": 1.0,
        "returns": [1.0, 3.0],
        "lengths": [10, 20],
    }


def _error(kind, *arguments, **options):
    with pytest.raises(kind) as error:
        evaluate(*arguments, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_evaluate_refuses_impossible_arguments(tmp_path):
    run = _policy(tmp_path)
    assert "episodes is 0" in _error(ConfigError, run, episodes=0)
    assert "seed is -1" in _error(ConfigError, run, episodes=1, seed=-1)
    assert "no policy at" in _error(RunDirectoryError, tmp_path / "none")


class _Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        raise OSError("out of\npaper")


def test_environment_that_raises_is_one_line(tmp_path):
    gymnasium.register("Broken-v0", lambda **_: _Broken(), max_episode_steps=5)
    try:
        message = _error(TaskError, _policy(tmp_path, task={"env_id": "Broken-v0"}), episodes=1)
    finally:
        del gymnasium.registry["Broken-v0"]
    assert "Broken-v0 raised" in message
    assert "OSError: out of paper" in message


def test_evaluate_refuses_a_policy_of_another_task(tmp_path):
    assert "observes 4 numbers, the policy expects 5" in _error(RunDirectoryError, _policy(tmp_path / "a", size=5))
    assert "names no task" in _error(RunDirectoryError, _policy(tmp_path / "b", task={}))
    assert "task.env_di" in _error(ConfigError, _policy(tmp_path / "c", task={"env_di": "CartPole-v1"}))
