"""What algorithms share that keep a sigma of each parameter."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import TableAlgorithm, Vector
from pyes.numerics import noise, shaping
from pyes.numerics.noise import NoiseTable


class DeviatingAlgorithm(TableAlgorithm):
    """An algorithm on the noise table whose perturbations have a standard deviation of each parameter.

    Parameters
    ----------
    sigma : float    of every parameter, at first

    Attributes
    ----------
    deviation : float32 (dim,)    the standard deviations
    """

    gradient_norm: float

    def __init__(self, theta: Vector, table: NoiseTable | None, sigma: float, *, seed: int, threads: int) -> None:
        super().__init__(theta, table, seed=seed, threads=threads)
        self.deviation = np.full_like(self.theta, sigma)
        self._gradient, self._deviation_gradient = np.empty_like(self.theta), np.empty_like(self.theta)
        self.gradient_norm = 0.0

    @property
    def sigma(self) -> float:  # type: ignore[override]
        """The mean of the standard deviations."""
        return shaping.ordered_sum(self.deviation.astype(np.float64)) / len(self.deviation)

    def _moments(
        self, offsets: NDArray[np.int64], weights: NDArray[np.float32], spread_weights: NDArray[np.float32]
    ) -> None:
        """Compute the gradients of mean and deviation, in units of the deviation."""
        noise.weighted_moments(
            self._table, offsets, weights, spread_weights, self._gradient, self._deviation_gradient, self._threads
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as arrays and numbers; a copy."""
        return super().state_dict() | {"sigma": self.deviation.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; a single sigma is that of every parameter."""
        super().load_state_dict(state)
        self.deviation[:] = state["sigma"]
