"""What the evolution strategies share that move a center along a weighted sum of its perturbations.

Owns sampling around a center, and the step. Must not know what the weights come from.
"""

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import Vector
from pyes.algorithms.optimizers import Optimizer
from pyes.algorithms.scheduled import ScheduledAlgorithm
from pyes.config import GradientConfig
from pyes.numerics.noise import NoiseTable


class GradientAlgorithm(ScheduledAlgorithm):
    """Perturbations with one sigma, shaped returns and a first-order optimiser (Salimans et al. 2017, algorithm 2).

    Parameters
    ----------
    theta, table, seed, threads    as for `TableAlgorithm`
    config : GradientConfig        of which sampling and step are read here
    """

    def __init__(
        self, theta: Vector, table: NoiseTable | None, config: GradientConfig, *, seed: int, threads: int
    ) -> None:
        super().__init__(theta, table, config, seed=seed, threads=threads)
        self._sampling = config
        self._gradient = np.empty_like(self.theta)

    def _perturbations(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Draw offsets and scales of this generation's perturbations, (population_size,) each."""
        if self._sampling.mirrored:
            return self._pairs(self.population_size, self.sigma)
        return self._offsets(self.population_size), np.full(self.population_size, self.sigma, np.float32)

    def _climb(
        self, center: Vector, optimizer: Optimizer, offsets: NDArray[np.int64], weights: NDArray[np.float32]
    ) -> None:
        """Move a center along its weighted perturbations, in place, and go on with the schedules.

        Parameters
        ----------
        offsets, weights : (n,)    of the members around the center, mirrored ones in pairs
        """
        config, size = self._sampling, np.float32(len(weights))
        if config.mirrored:
            weights, offsets = weights[::2] - weights[1::2], np.ascontiguousarray(offsets[::2])
        self._weighted_sum(offsets, weights / size, self._gradient)
        self.gradient_norm = float(np.linalg.norm(self._gradient))
        decay = config.weight_decay
        if config.weight_decay_mode == "classic":
            self._gradient -= np.float32(decay) * center
            decay = 0.0
        optimizer.step(center, self._gradient, self.learning_rate, decay)
        self._go_on()
