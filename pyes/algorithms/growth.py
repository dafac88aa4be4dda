"""A population that follows the lengths of episodes, so that each generation learns from enough timesteps.

While policies are bad their episodes are short, and a generation of fixed size sees little. The published code of
Salimans et al. 2017 collects at least 100,000 timesteps; so do Toklu et al. 2020, with a largest population.
"""

import numpy as np
from numpy.typing import NDArray

from pyes.config import AlgorithmConfig, GrowingConfig


def next_population_size(config: AlgorithmConfig, lengths: NDArray[np.int64]) -> int:
    """Return how many members the next generation has.

    As many as ``growth.timesteps`` would have taken at the mean length of this generation, in whole pairs where members
    are mirrored, but no less than ``population_size`` and no more than ``growth.population_max``. In whole numbers, so
    that every machine comes to the same.

    Parameters
    ----------
    lengths : int64 (n,)    timesteps of all episodes of each member of this generation
    """
    if not isinstance(config, GrowingConfig) or config.growth.timesteps is None:
        return config.population_size
    assert config.growth.population_max is not None
    needed = -(-config.growth.timesteps * len(lengths) // max(1, int(lengths.sum())))
    if config.pairs:
        needed += needed % 2
    return min(max(needed, config.population_size), config.growth.population_max)
