"""Algorithms: one file each, one interface."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import Algorithm
from pyes.algorithms.cma_es import CMAES
from pyes.algorithms.episode_limit import EpisodeLimit
from pyes.algorithms.nevergrad import Nevergrad
from pyes.algorithms.openai_es import OpenAIES
from pyes.config import AlgorithmConfig, OptimizerConfig
from pyes.noise import NoiseTable

__all__ = ["CMAES", "Algorithm", "EpisodeLimit", "Nevergrad", "OpenAIES", "make"]

_ALGORITHMS: dict[str, Callable[..., Algorithm]] = {"openai_es": OpenAIES}
#: These do not perturb theta by slices of the noise table, and move no theta by an optimiser of ours.
_LIBRARIES: dict[str, Callable[..., Algorithm]] = {"cma_es": CMAES, "nevergrad": Nevergrad}


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
    if config.name in _LIBRARIES:
        return _LIBRARIES[config.name](theta, seed=seed, **settings)
    return _ALGORITHMS[config.name](theta, table, seed=seed, optimizer=optimizer, threads=threads, **settings)
