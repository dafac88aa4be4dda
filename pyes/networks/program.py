"""A compiled network: the list of instructions that the C policy runs over flat theta.

Owns the instruction set as values that can be sent, saved and compared; knows neither torch nor the C code.
Invariant: a Program that exists is one that can be run: its instructions fit each other and stay inside theta.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Op(IntEnum):
    """What an instruction does; numbers are those of the C policy, and are kept for ever."""

    LINEAR = 0  # y = activation(W x + b)


class Activation(IntEnum):
    """The function applied to an instruction's outputs; numbers are those of the C policy."""

    IDENTITY = 0
    TANH = 1
    RELU = 2
    SIGMOID = 3
    ELU = 4  # alpha 1
    LEAKY_RELU = 5  # slope 0.01
    SILU = 6
    GELU = 7  # tanh form
    SOFTSIGN = 8


ACTIVATIONS = tuple(activation.name.lower() for activation in Activation)


class Instruction(NamedTuple):
    """One row of a program; offsets count float32 entries of theta, and -1 means no bias."""

    op: int
    inputs: int
    outputs: int
    weight_offset: int
    bias_offset: int
    activation: int

    def weight(self, theta: NDArray[np.float32]) -> NDArray[np.float32]:
        """View of this instruction's weight matrix in theta: float32 (outputs, inputs)."""
        stop = self.weight_offset + self.inputs * self.outputs
        return theta[self.weight_offset : stop].reshape(self.outputs, self.inputs)

    def bias(self, theta: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """View of this instruction's bias in theta: float32 (outputs,), or None when it has none."""
        return None if self.bias_offset < 0 else theta[self.bias_offset : self.bias_offset + self.outputs]


@dataclass(frozen=True)
class Program:
    """Instructions that turn an observation into the network's outputs.

    Parameters
    ----------
    instructions        in the order they run; each takes what the one before gave
    observation_size    numbers in one observation
    outputs             numbers that the last instruction gives
    dim                 length of theta

    Raises
    ------
    ValueError    the instructions do not fit each other, the observation or theta
    """

    instructions: tuple[Instruction, ...]
    observation_size: int
    outputs: int
    dim: int

    def __post_init__(self) -> None:
        """Refuse what cannot be run; ValueError says why."""
        width = self.observation_size
        if width < 1 or not self.instructions:
            raise ValueError("a program needs an observation and at least one instruction")
        for index, instruction in enumerate(self.instructions):
            _check(instruction, index, width, self.dim)
            width = instruction.outputs
        if width != self.outputs:
            raise ValueError(f"the last instruction gives {width} outputs, expected {self.outputs}")

    def array(self) -> NDArray[np.int64]:
        """Return the rows as the C policy takes them: int64 (instructions, 6), newly allocated."""
        return np.array(self.instructions, np.int64).reshape(-1, len(Instruction._fields))

    def to_dict(self) -> dict[str, Any]:
        """Return the program as JSON values, with operations and activations by name."""
        return {
            "observation_size": self.observation_size,
            "outputs": self.outputs,
            "dim": self.dim,
            "instructions": [
                {**row._asdict(), "op": Op(row.op).name.lower(), "activation": Activation(row.activation).name.lower()}
                for row in self.instructions
            ],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Program":
        """Rebuild what ``to_dict`` gave; KeyError, TypeError or ValueError when the values are damaged."""
        rows = (
            {**row, "op": Op[row["op"].upper()], "activation": Activation[row["activation"].upper()]}
            for row in values["instructions"]
        )
        return cls(
            instructions=tuple(
                Instruction(**{field: int(row[field]) for field in Instruction._fields}) for row in rows
            ),
            observation_size=int(values["observation_size"]),
            outputs=int(values["outputs"]),
            dim=int(values["dim"]),
        )


def _check(row: Instruction, index: int, width: int, dim: int) -> None:
    where = f"instruction {index}"
    Op(row.op), Activation(row.activation)  # ValueError when unknown
    if row.inputs != width or row.outputs < 1:
        raise ValueError(f"{where} maps {row.inputs} to {row.outputs} numbers, but is given {width}")
    if not 0 <= row.weight_offset <= dim - row.inputs * row.outputs:
        raise ValueError(f"{where} has its weights at {row.weight_offset}, outside theta of length {dim}")
    if not -1 <= row.bias_offset <= dim - row.outputs:
        raise ValueError(f"{where} has its bias at {row.bias_offset}, outside theta of length {dim}")
