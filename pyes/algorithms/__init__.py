"""Algorithms: one file each, one interface."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import Algorithm
from pyes.algorithms.episode_limit import EpisodeLimit
from pyes.algorithms.ga import GA
from pyes.algorithms.novelty import NSES, NSRAES, NSRES
from pyes.algorithms.openai_es import OpenAIES
from pyes.config import AlgorithmConfig, OptimizerConfig
from pyes.noise import NoiseTable

__all__ = ["GA", "NSES", "NSRAES", "NSRES", "Algorithm", "EpisodeLimit", "OpenAIES", "make"]

_ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "ga": GA,
    "ns_es": NSES,
    "nsr_es": NSRES,
    "nsra_es": NSRAES,
    "openai_es": OpenAIES,
}


def make(
    config: AlgorithmConfig,
    optimizer: OptimizerConfig,
    theta: NDArray[np.float32],
    table: NoiseTable,
    *,
    seed: int,
    threads: int = 1,
) -> Algorithm:
    """Make the algorithm that a configuration names."""
    settings: dict[str, Any] = vars(config)
    return _ALGORITHMS[config.name](theta, table, seed=seed, optimizer=optimizer, threads=threads, **settings)
