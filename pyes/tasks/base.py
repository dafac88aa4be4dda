"""What every task offers to a rollout: seeded episodes, each on a clean slate."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import gymnasium
import numpy as np
from numpy.typing import NDArray

#: What ``step`` gives: observation, reward, terminated, truncated, and the environment's own extras.
Step = tuple[Any, Any, bool, bool, dict[str, Any]]
#: What ``step`` of a vector gives: observations (n, ...), rewards (n,), and which episodes ended there, bool (n,).
VectorStep = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]


class Task(Protocol):
    """One environment, made once and reseeded for every episode.

    An episode depends on its seed and its actions alone, never on the episodes before it.
    """

    observation_size: int
    observation_shape: tuple[int, ...]
    action_space: gymnasium.Space[Any]
    max_timesteps: int | None
    render_fps: float  #: timesteps a second, in real time
    behaviour_size: int  #: numbers that characterise an episode, as task.behaviour says; 0: none are wanted

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; returns the first observation."""

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return what characterises the episode that ended with an observation: (behaviour_size,), any real dtype."""

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""

    def close(self) -> None:
        """Release what the environment holds."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


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
