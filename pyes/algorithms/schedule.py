"""Numbers that shrink from generation to generation, such as sigma and the learning rate.

Owns the meaning of three settings with a common name: ``sigma``, ``sigma_decay`` and ``sigma_min``. The current number
itself is a part of the algorithm's state.
"""

from dataclasses import dataclass
from typing import Any, Self

from pyes.config import AlgorithmConfig, refusal


@dataclass(frozen=True)
class Schedule:
    """How a number goes on from one generation to the next.

    Attributes
    ----------
    start : float
        In the first generation.
    factor : float
        From each generation to the next.
    floor : float
        Lowest value.
    """

    start: float
    factor: float = 1.0
    floor: float = 0.0

    @classmethod
    def of(cls, config: Any, key: str) -> Self:
        """Return the schedule that the settings ``key``, ``key_decay`` and ``key_min`` describe."""
        return cls(getattr(config, key), getattr(config, f"{key}_decay"), getattr(config, f"{key}_min"))

    def next(self, value: float) -> float:
        """Return the number of the generation after the one with ``value``."""
        return max(value * self.factor, self.floor)


def check(config: AlgorithmConfig, *keys: str) -> None:
    """Refuse a floor above the start.

    Raises
    ------
    ConfigError
        It is above.
    """
    for key in keys:
        schedule = Schedule.of(config, key)
        if schedule.floor > schedule.start:
            expected = f"at most algorithm.{key}, which is {schedule.start}"
            raise refusal(f"algorithm.{key}_min", schedule.floor, expected)
