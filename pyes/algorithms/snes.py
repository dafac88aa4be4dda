"""Separable natural evolution strategies (Schaul, Glasmachers & Schmidhuber 2011; Wierstra et al. 2014)."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.algorithms.deviating import DeviatingAlgorithm
from pyes.algorithms.population import Population
from pyes.config import SNESConfig
from pyes.numerics import shaping
from pyes.numerics.noise import NoiseTable


class SNES(DeviatingAlgorithm):
    """Natural gradient ascent on mean and sigma of a normal distribution with independent parameters.

    With the utilities ``u`` of the members' ranks, ``theta += learning_rate * sigma * sum u * eps`` and
    ``sigma *= exp(sigma_learning_rate / 2 * sum u * (eps**2 - 1))``.

    Parameters
    ----------
    theta : float32 (dim,)           where to start; copied
    table : NoiseTable               where the perturbations come from; None builds a private one
    seed : int                       decides, with the returns, every number of the run
    threads : int                    for large sums; the result does not depend on it
    **settings                       keys of `pyes.config.SNESConfig`: population_size, sigma, learning_rate ...

    Raises
    ------
    ConfigError    an impossible setting, or a table smaller than theta
    """

    learning_rate: float

    def __init__(
        self,
        theta: NDArray[np.float32],
        table: NoiseTable | None = None,
        *,
        seed: int = 0,
        threads: int = 1,
        **settings: Any,
    ) -> None:
        self._config = SNESConfig(**settings)
        super().__init__(theta, table, self._config.sigma, seed=seed, threads=threads)
        self.learning_rate = self._config.learning_rate
        self._utilities = utilities(self._config.population_size)
        rate = self._config.sigma_learning_rate
        self._sigma_learning_rate = default_sigma_learning_rate(len(self.theta)) if rate is None else rate

    def _draw(self) -> Population:
        size = self._config.population_size
        offsets, scales = self._offsets(size), np.ones(size, np.float32)
        return Population.around(self.generation, self.theta, offsets, scales, self.deviation)

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        weights = shaping.by_rank(returns, self._utilities)
        self._moments(population.offsets, weights, weights)
        self.gradient_norm = float(np.linalg.norm(self._gradient))
        _core.snes_step(
            self.theta,
            self.deviation,
            self._gradient,
            self._deviation_gradient,
            self.learning_rate,
            self._sigma_learning_rate,
        )


def utilities(size: int) -> NDArray[np.float64]:
    """Return the utilities of the best, the second best, ... of ``size`` members: float64 (size,), of sum 0.

    Wierstra et al. 2014, section 3.1: ``max(0, ln(size / 2 + 1) - ln(rank))``, scaled to sum 1, less ``1 / size``.
    """
    ceiling = _log(size / 2 + 1)
    raw = np.array([max(0.0, ceiling - _log(rank)) for rank in range(1, size + 1)])
    return raw / shaping.ordered_sum(raw) - 1 / size


def default_sigma_learning_rate(dim: int) -> float:
    """Return (3 + ln dim) / (5 sqrt dim): Wierstra et al. 2014, table 1."""
    return (3 + _log(dim)) / (5 * math.sqrt(dim))


def _log(value: float) -> float:
    """Natural logarithm, rounded correctly: that of libm need not agree between machines."""
    return float(Decimal(value).ln())
