"""What algorithms share that have one sigma and one learning rate, which may shrink from generation to generation."""

from typing import Any

from pyes.algorithms.base import TableAlgorithm, Vector
from pyes.config import ScheduledConfig
from pyes.numerics.noise import NoiseTable


class ScheduledAlgorithm(TableAlgorithm):
    """An algorithm on the noise table with schedules for sigma and the learning rate.

    Parameters
    ----------
    config : ScheduledConfig    where they start, by which factor they shrink, and where they stop
    """

    population_size: int
    sigma: float
    learning_rate: float
    gradient_norm: float

    def __init__(
        self, theta: Vector, table: NoiseTable | None, config: ScheduledConfig, *, seed: int, threads: int
    ) -> None:
        super().__init__(theta, table, seed=seed, threads=threads)
        self._schedules = config
        self.population_size = config.population_size
        self._begin_schedules()
        self.gradient_norm = 0.0

    def _begin_schedules(self) -> None:
        """Take the sigma and the learning rate of the first generation."""
        self.sigma, self.learning_rate = self._schedules.sigma, self._schedules.learning_rate

    def _go_on(self) -> None:
        """Take the sigma and the learning rate of the next generation."""
        config = self._schedules
        self.sigma = max(self.sigma * config.sigma_decay, config.sigma_min)
        self.learning_rate = max(self.learning_rate * config.learning_rate_decay, config.learning_rate_min)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as arrays and numbers; a copy."""
        return super().state_dict() | {"sigma": self.sigma, "learning_rate": self.learning_rate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self.sigma, self.learning_rate = float(state["sigma"]), float(state["learning_rate"])
