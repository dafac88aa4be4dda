"""Augmented random search (Mania, Guy & Recht 2018, algorithm 2), versions V1, V1-t, V2 and V2-t.

V2 is V1 with ``task.normalize_observations``; the -t versions are those with ``top`` other than None.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.attempts import Attempts
from pyes.algorithms.base import Common, accepts
from pyes.algorithms.population import Population, Vector
from pyes.config import AlgorithmConfig, AtLeastOne, NotNegative, Positive, Range, RestartConfig, Scheduled, refusal
from pyes.config.registry import ALGORITHMS
from pyes.numerics import noise, shaping
from pyes.numerics.noise import NoiseTable


@dataclass(frozen=True, kw_only=True)
class ARSConfig(AlgorithmConfig):
    """Settings of ARS."""

    grows = True
    pairs = True

    name: Literal["ars"] = "ars"
    population_size: Annotated[int | str, Scheduled(Range(minimum=2), whole=True)] = 16
    sigma: Annotated[float | str, Scheduled(Positive, norm=True)] = 0.1
    learning_rate: Annotated[float | str, Scheduled(Positive, norm=True)] = 0.05
    weight_decay: Annotated[float | str, Scheduled(NotNegative)] = 0.0
    #: Best pairs, of which the step is made; None: all.
    top: Annotated[int, AtLeastOne] | Literal["half"] | None = "half"
    restart: RestartConfig = field(default_factory=RestartConfig)

    @property
    def relative(self) -> bool:
        """Whether no attempt is given up for its returns."""
        return self.restart.after is None

    def check(self) -> None:
        """Refuse to keep more pairs than there are."""
        super().check()
        if isinstance(self.top, int) and self.top > self.population_min // 2:
            expected = f"at most {self.population_min // 2}, the mirrored pairs of algorithm.population_size"
            raise refusal("algorithm.top", self.top, expected)


@dataclass(frozen=True)
class _Arguments(ARSConfig, Common): ...


@ALGORITHMS.register("ars")
class ARS(Attempts):
    """Random search along the mirrored pairs whose better member is best.

    The step is ``learning_rate / (top * std) * sum (r+ - r-) * eps`` over those pairs, where std is the standard
    deviation of their returns; ``learning_rate * weight_decay * theta`` is subtracted. A member that failed has the
    worst return of the generation; with equal returns theta moves by weight decay alone.

    Parameters
    ----------
    theta, table, seed, threads
        As for `pyes.Algorithm`.
    **settings
        The fields of `ARSConfig`: population_size, sigma, learning_rate, top ...
    """

    Config = ARSConfig
    config: ARSConfig
    title = "ARS"
    sigma: float
    learning_rate: float
    weight_decay: float

    @accepts(_Arguments)
    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)
        self._gradient = np.empty_like(self.theta)
        self._begin()

    def _begin(self) -> None:
        self.gradient_norm = 0.0

    def _draw(self) -> Population:
        return self.perturbed(self.sigma, mirrored=True)

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        if self._given_up(returns):
            return
        pairs = shaping.of_unit_scale(shaping.fill_failed(returns)).reshape(-1, 2)
        top = max(1, len(pairs) // 2) if self.config.top == "half" else self.config.top
        kept = slice(None) if top is None else _best(pairs, top)
        used = pairs[kept]
        spread = shaping.standard_deviation(used.ravel())
        differences = used[:, 0] - used[:, 1]
        weights = differences / (len(used) * spread) if spread > 0 else np.zeros_like(differences)
        offsets = np.ascontiguousarray(population.offsets[::2][kept])
        noise.weighted_sum(self._table, offsets, weights.astype(np.float32), self._gradient, self._threads)
        self.gradient_norm = shaping.norm(self._gradient)
        self.theta *= np.float32(1 - self.learning_rate * self.weight_decay)
        self.theta += np.float32(self.learning_rate) * self._gradient


def _best(pairs: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the pairs whose better member is best, in their own order; of equal ones the first."""
    return np.sort(np.argsort(-pairs.max(axis=1), kind="stable")[:count])
