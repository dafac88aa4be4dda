"""Augmented random search (Mania, Guy & Recht 2018, algorithm 2), versions V1, V1-t, V2 and V2-t.

V2 is V1 with ``task.normalize_observations``; the -t versions are those with ``top``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.population import Population
from pyes.algorithms.scheduled import ScheduledAlgorithm
from pyes.config import ARSConfig
from pyes.numerics import shaping
from pyes.numerics.noise import NoiseTable


class ARS(ScheduledAlgorithm):
    """Random search along the mirrored pairs whose better member is best.

    The step is ``learning_rate / (top * std) * sum (r+ - r-) * eps`` over those pairs, where std is the standard
    deviation of their returns; ``learning_rate * weight_decay * theta`` comes off. A member that failed has the worst
    return of the generation; returns that are all equal say nothing of where to go.

    Parameters
    ----------
    theta : float32 (dim,)           where to start; copied
    table : NoiseTable               where the perturbations come from; None builds a private one
    seed : int                       decides, with the returns, every number of the run
    threads : int                    for large sums; the result does not depend on it
    **settings                       keys of `pyes.config.ARSConfig`: population_size, sigma, learning_rate, top ...

    Raises
    ------
    ConfigError    an impossible setting, or a table smaller than theta
    """

    def __init__(
        self,
        theta: NDArray[np.float32],
        table: NoiseTable | None = None,
        *,
        seed: int = 0,
        threads: int = 1,
        **settings: Any,
    ) -> None:
        self._config = ARSConfig(**settings)
        super().__init__(theta, table, self._config, seed=seed, threads=threads)
        self._gradient = np.empty_like(self.theta)

    def _draw(self) -> Population:
        return Population.around(self.generation, self.theta, *self._pairs(self.population_size, self.sigma))

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        pairs = shaping.fill_failed(returns).reshape(-1, 2)
        kept = slice(None) if self._config.top is None else self._best(pairs, self._config.top)
        used = pairs[kept]
        spread = shaping.standard_deviation(used.ravel())
        differences = used[:, 0] - used[:, 1]
        weights = differences / (len(used) * spread) if spread > 0 else np.zeros_like(differences)
        offsets = np.ascontiguousarray(population.offsets[::2][kept])
        self._weighted_sum(offsets, weights.astype(np.float32), self._gradient)
        self.gradient_norm = float(np.linalg.norm(self._gradient))
        self.theta *= np.float32(1 - self.learning_rate * self._config.weight_decay)
        self.theta += np.float32(self.learning_rate) * self._gradient
        self._go_on()

    @staticmethod
    def _best(pairs: NDArray[np.float64], count: int) -> NDArray[np.int64]:
        """Return the pairs whose better member is best, in their own order; of equal ones the first."""
        return np.sort(np.argsort(-pairs.max(axis=1), kind="stable")[:count])
