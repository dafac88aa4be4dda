"""A task as an environment with Gymnasium's interface, for those who step it themselves.

Owns the limit of the episode and seeds that nobody gave. Invariant: an episode is the one that the task plays under the
same seed and actions, with the environment's own observations.
"""

from typing import Any

import gymnasium

from pyes.tasks.base import Step, Task
from pyes.tasks.encoded import array_space


class TaskEnvironment(gymnasium.Env[Any, Any]):
    """The environment of a task, as policies are trained in it.

    Parameters
    ----------
    task : Task
        One that gives the environment's own observations; closed with this environment.
    render_mode : str or None
        The one that the task was made with.

    Attributes
    ----------
    task : Task
    """

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        self.task = task
        self.render_mode = render_mode
        self.observation_space = task.observation_space or array_space(task.observation_shape)
        self.action_space = task.action_space
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": task.render_fps}
        self._timesteps, self._closed = 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the episode of ``seed``, or one at random; returns the first observation.

        Raises
        ------
        ValueError
            Options are given: an episode follows from its seed.
        """
        if options:
            raise ValueError(f"options: got {options!r}, expected none: an episode follows from its seed")
        super().reset(seed=seed)
        self._timesteps = 0
        return self.task.reset(int(self.np_random.integers(2**31)) if seed is None else seed), {}

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep of the task; the episode is truncated at the task's limit."""
        observation, reward, terminated, truncated, info = self.task.step(action)
        self._timesteps += 1
        limit = self.task.max_timesteps
        return observation, reward, terminated, truncated or (limit is not None and self._timesteps >= limit), info

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""
        return self.task.render()

    def close(self) -> None:
        """Release what the environment holds; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self.task.close()
