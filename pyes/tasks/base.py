"""What every task offers to a rollout: seeded episodes, each on a clean slate."""

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pyes.config import TaskConfig
from pyes.errors import TaskError
from pyes.networks import ObservationEncoder
from pyes.system.lifetime import Closing

#: What ``step`` gives: observation, reward, terminated, truncated, and the environment's own extras.
Step = tuple[Any, Any, bool, bool, dict[str, Any]]
#: What ``step`` of a vector gives: observations (n, ...), rewards (n,), and which episodes ended there, bool (n,).
VectorStep = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]


class VectorTask(Protocol):
    """Environments side by side, made or reseeded for every wave of episodes.

    Each episode depends on its seed and its actions alone, as with `Task`: neither on its neighbours nor its slot.
    """

    observation_size: int

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Begin the episodes of ``seeds`` in as many environments; returns the first observations, (n, ...)."""

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> VectorStep:
        """Apply one action for one timestep in each of the environments ``slots``, whose episodes have not ended."""

    def close(self) -> None:
        """Release what the environments hold."""


class Task(Closing, abc.ABC):
    """One environment, made once as ``Kind(config, render_mode)`` and reseeded for every episode.

    An episode depends on its seed and its actions alone, never on the episodes before it. A subclass is a kind of task
    or belongs to one; it sets ``observation_shape`` and ``action_space`` when it is made, and the others where they
    differ.

    Attributes
    ----------
    observation_shape : tuple of int
    action_space : gymnasium.Space
    max_timesteps : int or None
        The environment's own limit of an episode; None without one. `pyes.tasks.make` lowers it to
        ``task.max_timesteps``.
    render_fps : float
        Timesteps a second, in real time.
    behaviour_size : int
        How many numbers characterise an episode, as ``task.behaviour`` says; 0 if none are wanted.
    observation_space : gymnasium.Space or None
        Of the environment's own observations; None: they are arrays of ``observation_shape``.
    parts : mapping of str to range
        Which numbers of the flattened observation belong to each named part of it, where ``observation_space`` has no
        named parts.
    encoder : ObservationEncoder or None
        How the environment's own observations become those of this task; set by `pyes.tasks.make`.
    """

    #: Settings of the kind.
    Config: ClassVar[type[TaskConfig]]
    #: Environments of the kind that are stepped in one call, made as ``Vector(config)``; None without them.
    Vector: ClassVar[type[Any] | None] = None
    #: Whether all episodes of a policy are the same, whatever their seeds.
    deterministic: ClassVar[bool] = False

    observation_shape: tuple[int, ...]
    action_space: gymnasium.Space[Any]
    max_timesteps: int | None = None
    render_fps: float = 30.0
    behaviour_size: int = 0
    observation_space: gymnasium.Space[Any] | None = None
    parts: Mapping[str, range] = {}
    encoder: ObservationEncoder | None = None

    @classmethod
    def suited(cls, config: Any) -> "type[Task]":
        """Return the class for a configuration of this kind; by default the kind's own."""
        return cls

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        return math.prod(self.observation_shape)

    @abc.abstractmethod
    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; returns the first observation."""

    @abc.abstractmethod
    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return what characterises the episode that ended with an observation: (behaviour_size,), any real dtype."""
        return np.empty(0)

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""
        raise TaskError("this task draws no frames")

    def close(self) -> None:
        """Release what the environment holds; a second call does nothing."""


_PASSED_ON = (
    *("observation_shape", "observation_space", "action_space", "max_timesteps"),
    *("render_fps", "behaviour_size", "parts", "encoder"),
)


class TaskAround(Task):
    """A task that passes everything on to the one that it holds; subclasses change some of it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        for name in _PASSED_ON:
            setattr(self, name, getattr(task, name))

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; returns the first observation."""
        return self._task.reset(seed)

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        return self._task.step(action)

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return what characterises the episode that ended with an observation."""
        return self._task.behaviour(observation)

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""
        return self._task.render()

    def close(self) -> None:
        """Close the task inside."""
        self._task.close()
