"""What the evolution strategies share that move a center along a weighted sum of its perturbations.

Owns sampling around a center, the step, and the schedules of sigma and learning rate. Must not know what the weights
come from.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import TableAlgorithm, Vector
from pyes.config import GradientConfig
from pyes.noise import NoiseTable
from pyes.optimizers import Optimizer


class GradientAlgorithm(TableAlgorithm):
    """Perturbations with one sigma, shaped returns and a first-order optimiser (Salimans et al. 2017, algorithm 2).

    Parameters
    ----------
    theta, table, seed, threads    as for `TableAlgorithm`
    config : GradientConfig        of which sampling, step and schedules are read here
    """

    sigma: float
    learning_rate: float
    gradient_norm: float

    def __init__(
        self, theta: Vector, table: NoiseTable | None, config: GradientConfig, *, seed: int, threads: int
    ) -> None:
        super().__init__(theta, table, seed=seed, threads=threads)
        self._sampling = config
        self._gradient = np.empty_like(self.theta)
        self.sigma = config.sigma
        self.learning_rate = config.learning_rate
        self.gradient_norm = 0.0

    def _perturbations(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Draw offsets and scales of this generation's perturbations, (population_size,) each."""
        config, size = self._sampling, self._sampling.population_size
        offsets = self._offsets(size // 2 if config.mirrored else size)
        scales = np.full(size, self.sigma, np.float32)
        if config.mirrored:
            offsets = np.repeat(offsets, 2)
            scales[1::2] *= -1
        return offsets, scales

    def _climb(
        self, center: Vector, optimizer: Optimizer, offsets: NDArray[np.int64], weights: NDArray[np.float32]
    ) -> None:
        """Move a center along its weighted perturbations, in place, and go on with the schedules.

        Parameters
        ----------
        offsets, weights : (population_size,)    of the members around the center, mirrored ones in pairs
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
        self.sigma = max(self.sigma * config.sigma_decay, config.sigma_min)
        self.learning_rate = max(self.learning_rate * config.learning_rate_decay, config.learning_rate_min)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as arrays and numbers; a copy."""
        return super().state_dict() | {"sigma": self.sigma, "learning_rate": self.learning_rate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self.sigma, self.learning_rate = float(state["sigma"]), float(state["learning_rate"])
