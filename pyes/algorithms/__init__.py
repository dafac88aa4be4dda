"""Algorithms: one file each, one interface."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.ars import ARS
from pyes.algorithms.base import Algorithm
from pyes.algorithms.cma_es import CMAES
from pyes.algorithms.ga import GA
from pyes.algorithms.nevergrad import Nevergrad
from pyes.algorithms.novelty import NSES, NSRAES, NSRES
from pyes.algorithms.openai_es import OpenAIES
from pyes.algorithms.pgpe import PGPE
from pyes.algorithms.snes import SNES
from pyes.config import AlgorithmConfig, OptimizerConfig
from pyes.numerics.noise import NoiseTable

__all__ = [
    "ARS",
    "CMAES",
    "GA",
    "NSES",
    "NSRAES",
    "NSRES",
    "PGPE",
    "SNES",
    "Algorithm",
    "Nevergrad",
    "OpenAIES",
    "make",
]

_ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "ars": ARS,
    "cma_es": CMAES,
    "ga": GA,
    "nevergrad": Nevergrad,
    "ns_es": NSES,
    "nsr_es": NSRES,
    "nsra_es": NSRAES,
    "openai_es": OpenAIES,
    "pgpe": PGPE,
    "snes": SNES,
}


def make(
    config: AlgorithmConfig,
    optimizer: OptimizerConfig | None,
    theta: NDArray[np.float32],
    table: NoiseTable,
    *,
    seed: int,
    threads: int = 1,
) -> Algorithm:
    """Make the algorithm that a configuration names; without an optimiser it takes its own, if it has one."""
    settings: dict[str, Any] = dict(vars(config))
    if config.optimized:
        settings["optimizer"] = optimizer
    if config.on_table:
        settings |= {"table": table, "threads": threads}
    return _ALGORITHMS[config.name](theta, seed=seed, **settings)
