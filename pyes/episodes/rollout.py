"""Episodes: a policy in a task, or a plain function, evaluated for one parameter vector.

Owns the loop over timesteps. Knows nothing of populations or processes.
"""

import math
import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pyes import tasks
from pyes._core import PolicyRunner
from pyes.algorithms.population import Member
from pyes.config import TaskConfig
from pyes.episodes.batch import Batch, Plan
from pyes.episodes.native import NativeRollout, fits
from pyes.errors import TaskError
from pyes.networks import Runner
from pyes.system.text import no_number
from pyes.system.user_code import is_of_the_call
from pyes.tasks import Task
from pyes.tasks.function import value_of

Function = Callable[[NDArray[np.float32]], float]


class Rollout:
    """A policy in a task."""

    def __init__(self, task: Task, runner: Runner) -> None:
        self.task = task
        self.runner = runner
        self.reward_min = -math.inf  # smaller rewards of a timestep count as this one
        self._observation: Any = None  # the last one

    def run(self, seed: int, limit: int | None) -> tuple[float, int]:
        """Run the episode of ``seed`` for at most ``limit`` timesteps; return (return, length).

        The runner must be loaded and its episode begun.
        """
        observation, least = self.task.reset(seed), self.reward_min
        act, step = self.runner.act, self.task.step  # after the reset, which may have made a new environment
        reward: Any = 0.0
        terminated: Any = False
        truncated: Any = False
        total = 0.0
        length = 0
        try:
            for length in range(1, (limit or sys.maxsize) + 1):  # noqa: B007
                observation, reward, terminated, truncated, _ = step(act(observation))
                # With a float32 reward, NumPy's promotion would make the sum float32.
                value = float(reward)
                total += least if value < least else value  # NaN stays NaN
                if terminated or truncated:
                    break
        except (TypeError, ValueError) as error:
            _check_reward(reward)
            _check_flags(terminated, truncated)
            if "unpack" in str(error) and is_of_the_call(error):
                raise TaskError(
                    f"step: {error}, expected (observation, reward, terminated, truncated, info), which is Gymnasium's "
                    "interface; an environment of old gym is task=gym"
                ) from error
            raise
        self.runner.check(observation)  # the policy has not seen the last one
        self._observation = observation
        return total, length

    def behaviour(self) -> NDArray[Any]:
        """Return the behaviour of the last episode: (task.behaviour_size,)."""
        return self.task.behaviour(self._observation)


AnyRollout = Rollout | NativeRollout


def rollout_of(task: Task, runner: Runner) -> AnyRollout:
    """Return what runs a policy in a task: without Python per timestep where that is possible."""
    if fits(task, runner):
        assert isinstance(runner, PolicyRunner)
        return NativeRollout(task, runner)
    return Rollout(task, runner)


def _check_reward(reward: Any) -> None:
    """Refuse a reward that is no number.

    Raises
    ------
    TaskError
        It is an array, or nothing that `float` takes.
    """
    try:
        float(reward)
    except (TypeError, ValueError) as error:
        size = len(reward) if isinstance(reward, list | tuple) else math.prod(getattr(reward, "shape", ()))
        if size > 1:  # one for each agent or objective
            advice = "have step return one, such as their sum; a wrapper of the environment can do that"
        else:
            advice = f"return {'reward.item()' if hasattr(reward, 'item') else 'float(...)'} from step"
        what = f"the reward is {no_number(reward)}, expected a number; {advice}"
        raise TaskError(what) from error


def _check_flags(*flags: Any) -> None:
    """Refuse terminated and truncated of which Python cannot say whether they are true; raises TaskError."""
    for name, flag in zip(("terminated", "truncated"), flags, strict=True):
        try:
            bool(flag)
        except (TypeError, ValueError) as error:
            raise TaskError(f"{name} is {no_number(flag)}, expected True or False") from error


class Evaluator(Protocol):
    """Evaluates the members of a worker."""

    def begin(self, batch: Batch) -> None:
        """Apply the settings of a new batch."""

    def load(self, parameters: Member, sums: NDArray[np.float64] | None) -> None:
        """Load a member's parameters; its observations are added to ``sums``."""

    def episode(self, member: int, episode: int, seed: int) -> tuple[float, int]:
        """Run one episode of the loaded member; return (return, length)."""

    def behaviour(self) -> NDArray[Any]:
        """Return the behaviour of the last episode: (plan.behaviour_size,)."""

    def close(self) -> None:
        """Release all resources."""


class TaskEvaluator:
    """Evaluates members as policies in a task, which it owns."""

    def __init__(self, task: Task, plan: Plan) -> None:
        assert plan.policy is not None
        self._seed = plan.seed
        self._rollout = rollout_of(task, plan.policy.runner(reference_batch=plan.reference_batch))
        self._clip = plan.policy.observation_clip
        self._limit = 0
        self._generation = 0

    def begin(self, batch: Batch) -> None:
        """Set the normalisation, the episode limit, the least reward, and whether actions are noisy."""
        self._limit, self._generation = batch.limit, batch.generation
        self._rollout.reward_min = batch.reward_min
        runner = self._rollout.runner
        runner.normalize(batch.mean, batch.inverse_std, self._clip)
        runner.set_action_noise(not batch.evaluation)

    def load(self, parameters: Member, sums: NDArray[np.float64] | None) -> None:
        """Load a member's parameters into the policy."""
        self._rollout.runner.load(*parameters)
        self._rollout.runner.collect(sums)

    def episode(self, member: int, episode: int, seed: int) -> tuple[float, int]:
        """Run one episode of the loaded member."""
        self._rollout.runner.begin_episode(self._seed, self._generation, member, episode)
        return self._rollout.run(seed, self._limit)

    def behaviour(self) -> NDArray[Any]:
        """Return the behaviour of the last episode."""
        return self._rollout.behaviour()

    def close(self) -> None:
        """Close the environment."""
        self._rollout.task.close()


class FunctionEvaluator:
    """Evaluates members as arguments of a plain function."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._theta: NDArray[Any] = np.empty(0, np.float32)

    def begin(self, batch: Batch) -> None:
        """Do nothing: batches have no settings for a function."""

    def load(self, parameters: Member, sums: NDArray[np.float64] | None) -> None:
        """Load a copy of a member's parameters, which the function may change."""
        self._theta = parameters.write(np.empty_like(parameters.theta))

    def episode(self, member: int, episode: int, seed: int) -> tuple[float, int]:
        """Call the function once."""
        return value_of(self._function, self._theta), 1

    def behaviour(self) -> NDArray[Any]:
        """Return an empty array: a function has no behaviour."""
        return np.empty(0)

    def close(self) -> None:
        """Do nothing."""


#: What members are evaluated on: a task, or a function of theta.
Workload = TaskConfig | Function


def open_evaluator(workload: Workload, plan: Plan) -> Evaluator:
    """Make the evaluator of a workload."""
    if isinstance(workload, TaskConfig):
        return TaskEvaluator(tasks.make(workload), plan)
    return FunctionEvaluator(workload)
