"""The state of algorithms that learn a sigma for every parameter.

Must not know how they are learned.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pyes.algorithms.attempts import Attempts
from pyes.algorithms.base import standard_deviations
from pyes.algorithms.population import Vector
from pyes.numerics import shaping
from pyes.numerics.noise import NoiseTable


class SeparateSigmas(Attempts):
    """Base of the algorithms with ``deviation``, float32 (dim,): the sigma of each parameter, ``sigma`` at first."""

    config: Any  # with ``sigma`` and ``restart``

    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)
        self.deviation = np.empty_like(self.theta)
        self._gradient, self._deviation_gradient = np.empty_like(self.theta), np.empty_like(self.theta)
        self._begin()

    def _begin(self) -> None:
        self.deviation[:] = standard_deviations(self.config.sigma)
        self.gradient_norm = 0.0

    @property
    def sigma(self) -> float:  # type: ignore[override]
        """The mean of the standard deviations."""
        return shaping.ordered_sum(self.deviation.astype(np.float64)) / len(self.deviation)

    def _learned(self) -> Iterator[tuple[str, Vector]]:
        yield from super()._learned()
        yield "sigma", self.deviation

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to go on, as arrays and numbers; a copy."""
        return super().state_dict() | {"sigma": self.deviation.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; a single sigma is that of every parameter."""
        self._check_saved(state, "sigma")
        super().load_state_dict(state)
        self.deviation[:] = state["sigma"]
