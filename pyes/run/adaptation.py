"""What a run adapts: the length of training episodes, their number per member, and the population.

Owns three rules, each enabled by its section of the configuration, and the schedules of the first two, which have
rule or schedule, not both. A rule uses only data of the journal, as integers or in sums of a fixed order, so it gives
the same results on every machine and after every resume.
"""

import numpy as np
from numpy.typing import NDArray

from pyes.config import AlgorithmConfig, AveragingConfig, EpisodeLimitConfig, GrowthConfig
from pyes.config.schedule import Schedule, nearest
from pyes.numerics import shaping

#: Fewer members than this have no meaningful correlation.
_FEWEST = 3


class EpisodeLimit:
    """A limit on the timesteps of training episodes, which grows when enough members reach it.

    Early on, policies that merely survive take most of the time; a short limit saves it (Salimans et al. 2017, section
    2.1: "we cap episode length at a constant m steps ..., which we dynamically adjust").

    Parameters
    ----------
    config : EpisodeLimitConfig
        The initial limit, and when and by how much it grows.
    max_timesteps : int
        The task's own limit, which is never exceeded.
    scheduled : int, str or None
        ``task.max_timesteps``; a schedule is followed.
    """

    def __init__(self, config: EpisodeLimitConfig, max_timesteps: int, scheduled: int | str | None = None) -> None:
        self._config = config
        self._max_timesteps = max_timesteps
        self._schedule = _schedule(scheduled)
        self.value = min(config.initial or max_timesteps, max_timesteps)

    def follow(self, progress: tuple[int, int]) -> None:
        """Take the value of the schedule, if there is one, after so many generations and timesteps."""
        if self._schedule is not None:
            self.value = min(nearest(self._schedule.at(*progress)), self._max_timesteps)

    def update(self, lengths: NDArray[np.int64], episodes: int) -> None:
        """Grow if enough members reached the limit in every one of their episodes.

        Parameters
        ----------
        lengths : int64 (n,)
            Timesteps of all episodes of each member that did not fail; there are some.
        episodes : int
            Episodes per member.
        """
        reached = np.count_nonzero(lengths >= self.value * episodes) / len(lengths)
        if reached >= self._config.threshold:
            self.value = min(int(self.value * self._config.growth) + 1, self._max_timesteps)


class Averaging:
    """Adapts the number of episodes per member to the noise in the returns.

    If the noise exceeds the differences between members, their ranking is mostly random; a mean over more episodes is
    less noisy but costs more. Hansen et al. 2009 (UH-CMA-ES, section III) measure the noise by the change of ranks when
    members are evaluated again. Here the two halves of a member's episodes serve as two evaluations, see `agreement`.

    Parameters
    ----------
    config : AveragingConfig
        When the number changes, by how much, and its maximum.
    episodes : int or str
        The number in the first generation, which is also the minimum; a schedule is followed.
    """

    def __init__(self, config: AveragingConfig, episodes: int | str) -> None:
        self._config = config
        self._schedule = _schedule(episodes)
        self._fewest = self.episodes = nearest(Schedule.parse(episodes).at(0, 0))

    def follow(self, progress: tuple[int, int]) -> None:
        """Take the number of the schedule, if there is one, after so many generations and timesteps."""
        if self._schedule is not None:
            self.episodes = nearest(self._schedule.at(*progress))

    def update(self, agreement: float | None) -> None:
        """Set the number for the next generation: higher if the halves agreed too little, else lower.

        Without an agreement the number stays.
        """
        config = self._config
        if config.episodes_max is None or agreement is None:
            return
        if agreement < config.agreement:
            self.episodes = min(int(self.episodes * config.factor) + 1, config.episodes_max)
        else:
            self.episodes = max(int(self.episodes / config.factor), self._fewest)


def _schedule(value: int | str | None) -> Schedule | None:
    return Schedule.parse(value) if isinstance(value, str) else None


def agreement(halves: NDArray[np.float64]) -> float | None:
    """Return the rank correlation (Spearman 1904) between the two halves of the members' episodes, from -1 to 1.

    Parameters
    ----------
    halves : float64 (n, 2)
        Mean return over each half of a member's episodes; NaN where the member failed.

    Returns
    -------
    float or None
        None if there is nothing to compare: too few members, or all of them equal in one of the halves.
    """
    known = halves[~np.isnan(halves).any(axis=1)]
    if len(known) < _FEWEST:
        return None
    first, second = (shaping.centered_ranks(np.ascontiguousarray(half)).astype(np.float64) for half in known.T)
    spread = shaping.ordered_sum(first * first) * shaping.ordered_sum(second * second)
    return float(shaping.ordered_sum(first * second) / np.sqrt(spread)) if spread > 0 else None


def next_population_size(growth: GrowthConfig, algorithm: AlgorithmConfig, lengths: NDArray[np.int64]) -> int:
    """Return how many members the next generation has, so that each generation learns from enough timesteps.

    As many as ``growth.timesteps`` needs at the mean length of this generation's episodes, in whole pairs where members
    are mirrored, but at least ``algorithm.population_size`` and at most ``growth.population_max``. The published code
    of Salimans et al. 2017 collects at least 100,000 timesteps; so do Toklu et al. 2020, with a largest population.

    Parameters
    ----------
    lengths : int64 (n,)
        Timesteps of all episodes of each member of this generation that did not fail; there are some.
    """
    assert growth.timesteps is not None
    assert growth.population_max is not None
    needed = -(-growth.timesteps * len(lengths) // max(1, int(lengths.sum())))
    if algorithm.pairs:
        needed += needed % 2
    return min(max(needed, algorithm.population_min), growth.population_max)
