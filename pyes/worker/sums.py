"""What a member's episodes have come to so far."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Sums:
    """Sums over the episodes of a member, in their order.

    Parameters
    ----------
    episodes : int          that it will have
    behaviour_size : int    numbers that characterise each

    Attributes
    ----------
    total : float                             return
    length : int                              timesteps
    behaviour : float64 (behaviour_size,)     what characterises the episodes
    """

    def __init__(self, episodes: int, behaviour_size: int) -> None:
        self.episodes = episodes
        self.total, self.length, self.behaviour = 0.0, 0, np.zeros(behaviour_size)
        self._first = episodes // 2  # episodes of the first half
        self._halves = [0.0, 0.0]
        self._added = 0

    def add(self, episode_return: float, length: int, behaviour: NDArray[Any] | None) -> None:
        """Add the next episode; its behaviour is None where none is wanted."""
        self.total += episode_return
        self.length += length
        if behaviour is not None:
            self.behaviour += behaviour
        self._halves[int(self._added >= self._first)] += episode_return
        self._added += 1

    @property
    def halves(self) -> NDArray[np.float64]:
        """Mean return over each half of the episodes, (2,); NaN where there are no two."""
        if not self._first:
            return np.full(2, np.nan)
        return np.array(self._halves) / (self._first, self.episodes - self._first)
