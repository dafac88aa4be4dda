"""Separable natural evolution strategies (Schaul, Glasmachers & Schmidhuber 2011; Wierstra et al. 2014)."""

import math
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.algorithms.base import Common, accepts
from pyes.algorithms.population import Population, Vector
from pyes.algorithms.separate_sigmas import SeparateSigmas
from pyes.config import AlgorithmConfig, NotNegative, Positive, RestartConfig, Scheduled
from pyes.config.registry import ALGORITHMS
from pyes.numerics import noise, shaping
from pyes.numerics.noise import NoiseTable


@dataclass(frozen=True, kw_only=True)
class SNESConfig(AlgorithmConfig):
    """Settings of SNES."""

    scaled = True

    name: Literal["snes"] = "snes"
    sigma: Annotated[float, Positive] = 0.3  # of every parameter, at first
    learning_rate: Annotated[float | str, Scheduled(Positive, norm=True)] = 1.0  # of theta, in units of sigma
    sigma_learning_rate: Annotated[float, NotNegative] | None = None  # None: (3 + ln dim) / (5 sqrt dim)
    restart: RestartConfig = field(default_factory=RestartConfig)

    @property
    def relative(self) -> bool:
        """Whether only the order of the returns counts: no attempt is given up for them."""
        return self.restart.after is None


@dataclass(frozen=True)
class _Arguments(SNESConfig, Common): ...


@ALGORITHMS.register("snes")
class SNES(SeparateSigmas):
    """Natural gradient ascent on mean and sigma of a normal distribution with independent parameters.

    With the utilities ``u`` of the members' ranks, ``theta += learning_rate * sigma * sum u * eps`` and
    ``sigma *= exp(sigma_learning_rate / 2 * sum u * (eps**2 - 1))``.

    Parameters
    ----------
    theta, table, seed, threads
        As for `pyes.Algorithm`.
    **settings
        The fields of `SNESConfig`: population_size, sigma, learning_rate ...

    Attributes
    ----------
    deviation : float32 (dim,)
        The sigma of each parameter; ``sigma`` is their mean.
    """

    Config = SNESConfig
    config: SNESConfig
    title = "SNES"
    learning_rate: float

    @accepts(_Arguments)
    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)
        self._utilities = np.empty(0)
        rate = self.config.sigma_learning_rate
        self._sigma_learning_rate = default_sigma_learning_rate(len(self.theta)) if rate is None else rate

    def _draw(self) -> Population:
        return self.perturbed(1.0, deviation=self.deviation)

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        if self._given_up(returns):
            return
        if len(self._utilities) != len(returns):  # at first, and after a state with another population
            self._utilities = utilities(len(returns))
        weights = shaping.by_rank(returns, self._utilities)
        noise.weighted_moments(
            self._table,
            population.offsets,
            weights,
            weights,
            self._gradient,
            self._deviation_gradient,
            self._threads,
        )
        self.gradient_norm = shaping.norm(self._gradient)
        _core.snes_step(
            self.theta,
            self.deviation,
            self._gradient,
            self._deviation_gradient,
            self.learning_rate,
            self._sigma_learning_rate,
        )


_DIGITS = Context(prec=28)  # whatever context the caller has


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
    return float(Decimal(value).ln(_DIGITS))
