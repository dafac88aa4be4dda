"""A network of the user's that torch runs: its name and its sizes, as values.

Owns what policy.json says of such a network; knows neither torch nor the class itself. Invariant: equal values name
equal networks wherever the same class can be imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NamedModule:
    """A torch module as ``network.module`` names it; theta are its parameters in ``module.parameters()`` order.

    Parameters
    ----------
    name                PACKAGE:CLASS
    kwargs              arguments behind observation_size and outputs; JSON values
    observation_size    numbers in one observation
    outputs             numbers that the module gives
    dim                 length of theta

    Raises
    ------
    ValueError    a size is not positive
    """

    name: str
    kwargs: dict[str, Any]
    observation_size: int
    outputs: int
    dim: int

    def __post_init__(self) -> None:
        """Refuse what cannot be run; ValueError says why."""
        if min(self.observation_size, self.outputs, self.dim) < 1:
            raise ValueError(
                f"module {self.name} with {self.observation_size} observed numbers, {self.outputs} outputs and "
                f"{self.dim} parameters, expected at least one of each"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the module as JSON values."""
        return dict(self.__dict__)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "NamedModule":
        """Rebuild what ``to_dict`` gave; KeyError, TypeError or ValueError when the values are damaged."""
        return cls(
            name=str(values["name"]),
            kwargs=dict(values["kwargs"]),
            observation_size=int(values["observation_size"]),
            outputs=int(values["outputs"]),
            dim=int(values["dim"]),
        )
