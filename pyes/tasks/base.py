"""The interface of tasks: seeded episodes that do not depend on earlier ones."""

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pyes._core import CompiledEnvironment
from pyes.config import TaskConfig
from pyes.errors import TaskError
from pyes.networks import ObservationEncoder
from pyes.system.lifetime import Closing

#: Result of ``step``: observation, reward, terminated, truncated, info.
Step = tuple[Any, Any, bool, bool, dict[str, Any]]
#: Result of a vector's ``step``: observations (n, ...), rewards (n,), and which episodes ended, bool (n,).
VectorStep = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]


class VectorTask(Protocol):
    """Several environments, made or reseeded together for each set of episodes.

    As with `Task`, an episode depends only on its seed and actions, not on the other episodes or its slot.
    """

    observation_size: int

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Begin the episodes of ``seeds`` in as many environments; returns the first observations, (n, ...)."""

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> VectorStep:
        """Apply one action for one timestep in each of the environments ``slots``, whose episodes have not ended."""

    def close(self) -> None:
        """Release the environments' resources."""


class Task(Closing, abc.ABC):
    """One environment, made once as ``Kind(config, render_mode)`` and reseeded for every episode.

    An episode depends only on its seed and actions, never on earlier episodes. A subclass is a kind of task or belongs
    to one. Its constructor sets ``observation_shape``, ``action_space``, and other attributes that differ from their
    defaults.

    Attributes
    ----------
    observation_shape : tuple of int
    action_space : gymnasium.Space
    max_timesteps : int or None
        The environment's own limit of an episode, or None. `pyes.tasks.make` lowers it to ``task.max_timesteps``; if
        there is neither, it sets one.
    limited : bool
        Whether the environment or the settings have a limit; set by `pyes.tasks.make`.
    render_fps : float
        Timesteps per second in real time.
    behaviour_size : int
        Size of the behaviour chosen by ``task.behaviour``; 0 for "none".
    observation_space : gymnasium.Space or None
        Space of the environment's own observations; None for arrays of ``observation_shape``.
    parts : mapping of str to range
        Indices in the flattened observation of each named part, if ``observation_space`` has no named parts.
    encoder : ObservationEncoder or None
        Turns the environment's own observations into those of this task; set by `pyes.tasks.make`.
    native : CompiledEnvironment or None
        The environment itself if it is in C, and a timestep of this task is one of it and ``encoder``, no more.
    """

    #: Settings of the kind.
    Config: ClassVar[type[TaskConfig]]
    #: `VectorTask` of the kind, made as ``Vector(config)``, or None.
    Vector: ClassVar[type[Any] | None] = None
    #: Distributions whose versions decide its episodes, beside gymnasium.
    packages: tuple[str, ...] = ()
    #: Whether all episodes of a policy are equal, independent of their seeds.
    deterministic: ClassVar[bool] = False

    observation_shape: tuple[int, ...]
    action_space: gymnasium.Space[Any]
    max_timesteps: int | None = None
    limited: bool = True
    render_fps: float = 30.0
    behaviour_size: int = 0
    observation_space: gymnasium.Space[Any] | None = None
    parts: Mapping[str, range] = {}
    encoder: ObservationEncoder | None = None
    native: CompiledEnvironment | None = None

    @classmethod
    def suited(cls, config: Any) -> "type[Task]":
        """Return the class for a configuration of this kind (default: this one)."""
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
        """Return the behaviour of the episode that ended with ``observation``: (behaviour_size,), any real dtype."""
        return np.empty(0)

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""
        raise TaskError("this task draws no frames")

    def close(self) -> None:
        """Release the environment's resources; a second call does nothing."""


_PASSED_ON = (
    *("observation_shape", "observation_space", "action_space", "max_timesteps", "limited"),
    *("render_fps", "behaviour_size", "parts", "encoder", "packages"),
)


class TaskAround(Task):
    """Base of wrappers: passes all calls on to another task."""

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

    def explain(self, seed: int, actions: Sequence[Any]) -> BaseException | None:
        """Return what the episode of these actions raises in Python, if the task inside can tell."""
        explain = getattr(self._task, "explain", None)
        return None if explain is None else explain(seed, actions)

    def close(self) -> None:
        """Close the task inside."""
        self._task.close()
