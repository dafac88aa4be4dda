"""Episodes in environments in C, without Python per timestep.

Owns the choice between this and `pyes.episodes.rollout`. Invariant: both give the same bits, for returns, lengths, sums
of observations and behaviours.
"""

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes._core import PolicyRunner
from pyes.networks import Runner
from pyes.tasks import Task


def fits(task: Task, runner: Runner) -> bool:
    """Whether the episodes of a policy in a task can run in C alone: the environment and the network are in C."""
    return task.native is not None and isinstance(runner, PolicyRunner) and runner.compiled


class NativeRollout:
    """A compiled policy in a task whose environment is in C; as `pyes.episodes.rollout.Rollout`."""

    def __init__(self, task: Task, runner: PolicyRunner) -> None:
        self.task = task
        self.runner = runner
        self.reward_min = -math.inf  # smaller rewards of a timestep count as this one
        self._seen = _seen(task)
        self._observation: Any = None  # the last one of the environment

    def run(self, seed: int, limit: int | None) -> tuple[float, int]:
        """Run the episode of ``seed`` for at most ``limit`` timesteps; return (return, length).

        The runner must be loaded and its episode begun.
        """
        assert self.task.native is not None
        total, length, self._observation = self.runner.run(
            self.task.native, seed, limit or sys.maxsize, self._seen, self.reward_min
        )
        return total, length

    def behaviour(self) -> NDArray[Any]:
        """Return the behaviour of the last episode: (task.behaviour_size,)."""
        encoder = self.task.encoder
        return self.task.behaviour(self._observation if encoder is None else encoder(self._observation))


def _seen(task: Task) -> NDArray[np.int64] | None:
    """Return which number of the environment's observation each one that the policy sees is, -1 for zero; None: all."""
    encoder = task.encoder
    if encoder is None or encoder.plain:
        return None
    indices = np.arange(encoder.whole)
    if encoder.hide_by == "remove":
        return np.delete(indices, list(encoder.hidden))
    indices[list(encoder.hidden)] = -1
    return indices
