"""What a run's policies do, run again: the returns of the center on fixed seeds.

Owns the episodes that are run after training, in this process. Invariant: the same policy, seed and episode give the
return that the run itself reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyes import config as configuration
from pyes import streams, tasks
from pyes.errors import ConfigError, PyesError, RunDirectoryError, TaskError
from pyes.networks import Policy
from pyes.rollout import Rollout
from pyes.tasks import Task


@dataclass(frozen=True)
class Evaluation:
    """What episodes came to, in the order of their seeds.

    Attributes
    ----------
    return_mean, return_std    over the episodes; the standard deviation of all of them (not of a sample)
    returns                    undiscounted sum of rewards of each episode
    lengths                    timesteps of each episode
    """

    return_mean: float
    return_std: float
    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, episodes: Sequence[tuple[float, int]]) -> "Evaluation":
        """Sum up (return, length) pairs; there must be at least one."""
        returns, lengths = zip(*episodes, strict=True)
        return cls(float(np.mean(returns)), float(np.std(returns)), tuple(returns), tuple(lengths))

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        return {
            "return_mean": self.return_mean,
            "return_std": self.return_std,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
        }


def evaluate(run: str | Path, *, episodes: int = 100, seed: int | None = None) -> Evaluation:
    """Run the center policy of a run for some episodes, without action noise.

    Parameters
    ----------
    run         run directory, or an exported .safetensors file
    episodes    1 or more; the first ones are the same whatever their number
    seed        of the evaluation episodes; None takes the run's own, and so the episodes of its own evaluations

    Raises
    ------
    ConfigError         episodes or seed is impossible
    RunDirectoryError   the policy is missing, damaged, or does not fit its task
    TaskError           the environment failed
    """
    policy = Policy.load(run)
    with open_task(policy) as task:
        return run_episodes(policy, task, episodes, seed)


def open_task(policy: Policy, render_mode: str | None = None) -> Task:
    """Make the task that a policy was trained on.

    Raises
    ------
    ConfigError          the environment is not installed here, or its configuration is no longer valid
    RunDirectoryError    the policy names no task, or observes something else
    """
    if not policy.task:
        raise RunDirectoryError("the policy names no task; save it with task=..., or run it in an environment of yours")
    task = tasks.make(configuration.from_mapping({"task": policy.task}).task, render_mode)
    expected = policy.spec.program.observation_size
    if task.observation_size != expected:
        task.close()
        raise RunDirectoryError(
            f"task {policy.task.get('env_id', '')} observes {task.observation_size} numbers, "
            f"the policy expects {expected}; use the version of the environment that it was trained on"
        )
    return task


def run_episodes(policy: Policy, task: Task, episodes: int, seed: int | None) -> Evaluation:
    """Run the first ``episodes`` evaluation episodes of ``seed``, or of the run's own seed when that is None.

    Raises
    ------
    ConfigError    episodes or seed is impossible
    TaskError      the environment raised
    """
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}, expected 1 or more")
    if seed is not None and not 0 <= seed < 2**64:
        raise ConfigError(f"seed is {seed}, expected 0 or more and less than 2**64")
    rollout = Rollout(task, policy.runner)
    seeds = streams.evaluation_seeds(policy.seed if seed is None else seed, episodes)
    return Evaluation.of([_episode(policy, rollout, int(environment_seed)) for environment_seed in seeds])


def _episode(policy: Policy, rollout: Rollout, environment_seed: int) -> tuple[float, int]:
    policy.reset()
    try:
        return rollout.run(environment_seed, rollout.task.max_timesteps)
    except PyesError:
        raise
    except Exception as error:  # an environment may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        name = policy.task.get("env_id", "the environment")
        raise TaskError(f"{name} raised in the episode of environment seed {environment_seed}: {reason}") from error
