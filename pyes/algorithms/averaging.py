"""Episodes of a member that follow the noise, so that a ranking of returns stays one of members.

Where returns are noisier than members differ, a ranking is mostly luck; the mean over more episodes is less noisy, and
costs as much more. Hansen et al. 2009 (UH-CMA-ES, section III) measure the noise by how ranks change when members are
evaluated again, and spend more evaluations on each where it is large and less where it is not. Here nothing is
evaluated again: the two halves of a member's episodes are two evaluations of it.
"""

import numpy as np
from numpy.typing import NDArray

from pyes.config import AveragingConfig
from pyes.numerics import shaping

#: Members of which a correlation says something.
_FEWEST = 3


def agreement(halves: NDArray[np.float64]) -> float | None:
    """Return the rank correlation (Spearman 1904) between the two halves of the members' episodes, from -1 to 1.

    Parameters
    ----------
    halves : float64 (n, 2)    mean return over each half of a member's episodes; NaN: the member failed

    Returns
    -------
    float or None    None where there is nothing to compare: hardly any members, or all equal in one of the halves
    """
    known = halves[~np.isnan(halves).any(axis=1)]
    if len(known) < _FEWEST:
        return None
    first, second = (shaping.centered_ranks(np.ascontiguousarray(half)).astype(np.float64) for half in known.T)
    spread = shaping.ordered_sum(first * first) * shaping.ordered_sum(second * second)
    return float(shaping.ordered_sum(first * second) / np.sqrt(spread)) if spread > 0 else None


class Averaging:
    """How many episodes a member has in the current generation.

    Parameters
    ----------
    config : AveragingConfig    when it changes, by how much, and the most
    episodes : int              at first, and the fewest
    """

    def __init__(self, config: AveragingConfig, episodes: int) -> None:
        self._config = config
        self._fewest = episodes
        self.episodes = episodes

    def update(self, agreement: float | None) -> None:
        """Take the number of the next generation: more where the halves agreed too little, fewer where they did not.

        Without an agreement the number stays.
        """
        config = self._config
        if config.episodes_max is None or agreement is None:
            return
        if agreement < config.agreement:
            self.episodes = min(int(self.episodes * config.factor) + 1, config.episodes_max)
        else:
            self.episodes = max(int(self.episodes / config.factor), self._fewest)
