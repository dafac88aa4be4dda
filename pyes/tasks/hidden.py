"""Tasks of which the policy sees a part.

Owns what is left of an observation. Must not know whose task it is. Invariant: nothing else of the task changes:
rewards, lengths, seeds and frames are those of the task behind it.
"""

from typing import Any, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pyes.config import TaskConfig
from pyes.errors import ConfigError
from pyes.tasks.base import Step, Task


class HiddenTask:
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
        size, hidden = task.observation_size, config.hide_observations
        if max(hidden) >= size:
            expected = f"expected at most {size - 1}: the task observes {size} numbers"
            raise ConfigError(f"task.hide_observations: got {max(hidden)}, {expected}")
        self._task = task
        self._hidden = np.array(hidden)
        self._kept = np.delete(np.arange(size), hidden)
        if not len(self._kept):
            raise ConfigError(f"task.hide_observations: got all {size} numbers, expected that the policy sees some")
        self._zero = config.hide_by == "zero"
        self.observation_size = size if self._zero else len(self._kept)
        self.observation_shape = task.observation_shape if self._zero else (self.observation_size,)
        self.action_space: spaces.Space[Any] = task.action_space
        self.max_timesteps = task.max_timesteps
        self.render_fps = task.render_fps

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; returns what is seen of the first observation."""
        return self._seen(self._task.reset(seed))

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        observation, *others = self._task.step(action)
        return (self._seen(observation), *others)

    def _seen(self, observation: Any) -> NDArray[Any]:
        if not self._zero:
            return np.ravel(observation)[self._kept]
        seen = np.array(observation).ravel()  # a copy: the environment may read its own again
        seen[self._hidden] = 0
        return seen

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""
        return self._task.render()

    def close(self) -> None:
        """Close the task behind this one."""
        self._task.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
