"""What every task offers to a rollout: seeded episodes, each on a clean slate."""

from typing import Any, Protocol, Self

import gymnasium

#: What ``step`` gives: observation, reward, terminated, truncated, and the environment's own extras.
Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class Task(Protocol):
    """One environment, made once and reseeded for every episode.

    An episode depends on its seed and its actions alone, never on the episodes before it.
    """

    observation_size: int
    action_space: gymnasium.Space[Any]
    max_timesteps: int | None
    render_fps: float  #: timesteps a second, in real time

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; returns the first observation."""

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""

    def close(self) -> None:
        """Release what the environment holds."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...
