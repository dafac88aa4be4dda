"""A limit on the timesteps of training episodes that grows when members come to reach it.

Early on, policies that merely survive waste most of the time; a short limit that follows them saves it (Salimans et
al. 2017, section 2.1, "we cap episode length at a constant m steps ..., which we dynamically adjust").
"""

import numpy as np
from numpy.typing import NDArray

from pyes.config import EpisodeLimitConfig


class EpisodeLimit:
    """The current limit, in timesteps.

    Parameters
    ----------
    config : EpisodeLimitConfig
        Initial limit, and when and by how much it grows.
    max_timesteps : int
        The task's own limit, never exceeded.
    """

    def __init__(self, config: EpisodeLimitConfig, max_timesteps: int) -> None:
        self._config = config
        self._max_timesteps = max_timesteps
        self.value = min(config.initial or max_timesteps, max_timesteps)

    def update(self, lengths: NDArray[np.int64], episodes: int) -> None:
        """Grow when a large enough share of the members reached the limit in every one of their episodes."""
        reached = np.count_nonzero(lengths >= self.value * episodes) / len(lengths)
        if reached >= self._config.threshold:
            self.value = min(int(self.value * self._config.growth) + 1, self._max_timesteps)
