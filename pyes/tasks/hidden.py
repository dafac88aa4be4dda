"""Tasks of which the policy sees a part.

Owns what is left of an observation. Must not know whose task it is. Invariant: nothing else of the task changes:
rewards, lengths, seeds and frames are those of the task behind it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pyes.config import TaskConfig
from pyes.errors import ConfigError
from pyes.system.lifetime import Closing
from pyes.tasks.base import Step, Task, VectorStep, VectorTask


class HiddenTask(Closing):
    """A task without some numbers of its observations, counted in the flattened observation.

    Parameters
    ----------
    task : Task            the whole one; closed with this one
    config : TaskConfig    hide_observations: which; hide_by: whether they are left out, or zero

    Raises
    ------
    ConfigError    the task observes fewer numbers, or none would be left
    """

    def __init__(self, task: Task, config: TaskConfig) -> None:
        self._task = task
        self._mask = _Mask(task.observation_size, config)
        zero = config.hide_by == "zero"
        self.observation_size = task.observation_size if zero else self._mask.left
        self.observation_shape = task.observation_shape if zero else (self._mask.left,)
        self.action_space: spaces.Space[Any] = task.action_space
        self.max_timesteps = task.max_timesteps
        self.render_fps = task.render_fps
        self._observed = config.behaviour == "final_observation"
        self.behaviour_size = self.observation_size if self._observed else task.behaviour_size

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; returns what is seen of the first observation."""
        return self._mask.seen(np.ravel(self._task.reset(seed)))

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        observation, *others = self._task.step(action)
        return (self._mask.seen(np.ravel(observation)), *others)

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return what characterises the episode; of its last observation, what was seen."""
        return np.ravel(observation) if self._observed else self._task.behaviour(observation)

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""
        return self._task.render()

    def close(self) -> None:
        """Close the task behind this one."""
        self._task.close()


class HiddenVector:
    """Environments side by side without some numbers of their observations; see `HiddenTask`."""

    def __init__(self, vector: VectorTask, config: TaskConfig) -> None:
        self._vector = vector
        self._mask = _Mask(vector.observation_size, config)
        self.observation_size = self._mask.left if config.hide_by == "remove" else vector.observation_size

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Begin the episodes of ``seeds``; returns what is seen of the first observations, (n, size)."""
        return self._seen(self._vector.reset(seeds))

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> VectorStep:
        """Apply one action for one timestep in each of the environments ``slots``."""
        observations, rewards, ended = self._vector.step(slots, actions)
        return self._seen(observations), rewards, ended

    def _seen(self, observations: NDArray[Any]) -> NDArray[Any]:
        return self._mask.seen(observations.reshape(len(observations), -1))

    def close(self) -> None:
        """Close the environments."""
        self._vector.close()


class _Mask:
    """Which of ``size`` numbers are seen."""

    def __init__(self, size: int, config: TaskConfig) -> None:
        hidden = config.hide_observations
        if max(hidden) >= size:
            expected = f"expected at most {size - 1}: the task observes {size} numbers"
            raise ConfigError(f"task.hide_observations: got {max(hidden)}, {expected}")
        self._hidden = np.array(hidden)
        self._kept = np.delete(np.arange(size), hidden)
        self.left = len(self._kept)
        if not self.left:
            raise ConfigError(f"task.hide_observations: got all {size} numbers, expected that the policy sees some")
        self._zero = config.hide_by == "zero"

    def seen(self, whole: NDArray[Any]) -> NDArray[Any]:
        """Return what is seen of (..., size) numbers, newly allocated: the environment may read its own again."""
        if not self._zero:
            kept: NDArray[Any] = whole[..., self._kept]
            return kept
        seen = whole.copy()
        seen[..., self._hidden] = 0
        return seen
