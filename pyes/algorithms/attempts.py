"""Attempts that are given up when they have come to nothing (``algorithm.restart``).

Owns the theta with which an attempt begins. Must not know what else an algorithm starts with.
"""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import Algorithm
from pyes.algorithms.population import Vector
from pyes.numerics import shaping
from pyes.numerics.noise import NoiseTable


class Attempts(Algorithm):
    """Base of the algorithms on the noise table whose search can begin again, with other noise."""

    config: Any  # with ``restart``

    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)
        self._start = self.theta.copy()

    @abstractmethod
    def _begin(self) -> None:
        """Begin an attempt: all that is learned, beside theta, is as at the start."""

    def _given_up(self, returns: NDArray[np.float64]) -> bool:
        """Return whether these returns end the attempt; then the next one has begun."""
        if not self.config.restart.gives_up(self.progress[0], shaping.mean(returns)):
            return False
        self.theta[:] = self._start if self.start_of is None else self.start_of(self.generation + 1)
        self._begin()
        self._restarted = True
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to go on; with restarts also the start, if they return to it."""
        returns = self.config.restart.after is not None and self.start_of is None
        start = {"start": self._start.copy()} if returns else {}
        return super().state_dict() | start

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self._start[:] = state.get("start", self._start)
