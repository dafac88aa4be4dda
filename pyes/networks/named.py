"""The name and sizes of a user's own network that torch runs.

Owns the description of such a network in policy.json; knows neither torch nor the class itself. Invariant: equal values
name equal networks wherever the same class can be imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NamedModule:
    """The torch module named by ``network.module``; theta holds its parameters in ``module.parameters()`` order.

    Parameters
    ----------
    name : str
        MODULE:CLASS.
    kwargs : dict
        Arguments after observation_size and outputs; JSON values.
    observation_size : int
        Numbers in one observation.
    outputs : int
        Number of outputs.
    dim : int
        Length of theta.

    Raises
    ------
    ValueError
        A size is not positive.
    """

    name: str
    kwargs: dict[str, Any]
    observation_size: int
    outputs: int
    dim: int

    def __post_init__(self) -> None:
        """Reject sizes that are not positive."""
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
        """Invert ``to_dict``; raises KeyError, TypeError or ValueError if the values are damaged."""
        return cls(
            name=str(values["name"]),
            kwargs=dict(values["kwargs"]),
            observation_size=int(values["observation_size"]),
            outputs=int(values["outputs"]),
            dim=int(values["dim"]),
        )
