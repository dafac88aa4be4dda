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
    RNN = 1  # h = activation(W x + b + W' h + b'), the cell of Elman 1990
    GRU = 2  # Cho et al. 2014
    LSTM = 3  # Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000

    @property
    def blocks(self) -> int:
        """Blocks of rows in the weights and biases: one a gate, in torch's order."""
        return {Op.GRU: 3, Op.LSTM: 4}.get(self, 1)

    @property
    def recurrent(self) -> bool:
        """Whether it remembers its outputs from one timestep to the next."""
        return self is not Op.LINEAR


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
    """One row of a program; offsets count float32 entries of theta, and -1 means that there is none.

    A recurrent instruction maps the observation of a timestep by its weight and bias, and its own outputs of the
    timestep before by its recurrent weight and bias.
    """

    op: int
    inputs: int
    outputs: int
    weight_offset: int
    bias_offset: int
    activation: int
    recurrent_offset: int = -1
    recurrent_bias_offset: int = -1

    @property
    def rows(self) -> int:
        """Rows of the weights, and length of each bias."""
        return Op(self.op).blocks * self.outputs

    def weight(self, theta: NDArray[np.float32]) -> NDArray[np.float32]:
        """View of this instruction's weight matrix in theta: float32 (rows, inputs)."""
        return _matrix(theta, self.weight_offset, self.rows, self.inputs)

    def bias(self, theta: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """View of this instruction's bias in theta: float32 (rows,), or None when it has none."""
        return _vector(theta, self.bias_offset, self.rows)

    def recurrent_weight(self, theta: NDArray[np.float32]) -> NDArray[np.float32]:
        """View of a recurrent instruction's weight on its own outputs: float32 (rows, outputs)."""
        return _matrix(theta, self.recurrent_offset, self.rows, self.outputs)

    def recurrent_bias(self, theta: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """View of a recurrent instruction's second bias: float32 (rows,), or None when it has none."""
        return _vector(theta, self.recurrent_bias_offset, self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values, by name; a linear one without what only recurrent ones have."""
        fields = self._asdict()
        if not Op(self.op).recurrent:
            del fields["recurrent_offset"], fields["recurrent_bias_offset"]
        return {**fields, "op": Op(self.op).name.lower(), "activation": Activation(self.activation).name.lower()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Instruction":
        """Rebuild what ``to_dict`` gave; KeyError, TypeError or ValueError when the values are damaged."""
        op = Op[values["op"].upper()]
        known = {**values, "op": op, "activation": Activation[values["activation"].upper()]}
        fields = cls._fields if op.recurrent else (field for field in cls._fields if field not in cls._field_defaults)
        return cls(**{field: int(known[field]) for field in fields})


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
        """Return the rows as the C policy takes them: int64 (instructions, 8), newly allocated."""
        return np.array(self.instructions, np.int64).reshape(-1, len(Instruction._fields))

    def to_dict(self) -> dict[str, Any]:
        """Return the program as JSON values, with operations and activations by name."""
        return {
            "observation_size": self.observation_size,
            "outputs": self.outputs,
            "dim": self.dim,
            "instructions": [row.to_dict() for row in self.instructions],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Program":
        """Rebuild what ``to_dict`` gave; KeyError, TypeError or ValueError when the values are damaged."""
        return cls(
            instructions=tuple(Instruction.from_dict(row) for row in values["instructions"]),
            observation_size=int(values["observation_size"]),
            outputs=int(values["outputs"]),
            dim=int(values["dim"]),
        )


def _check(row: Instruction, index: int, width: int, dim: int) -> None:
    where = f"instruction {index}"
    op, activation = Op(row.op), Activation(row.activation)  # ValueError when unknown
    if row.inputs != width or row.outputs < 1:
        raise ValueError(f"{where} maps {row.inputs} to {row.outputs} numbers, but is given {width}")
    if op in (Op.GRU, Op.LSTM) and activation != Activation.IDENTITY:
        raise ValueError(f"{where} is a {op.name} with the activation {activation.name.lower()}, expected identity")
    _check_place(f"{where} has its weights", row.weight_offset, row.rows * row.inputs, dim)
    _check_place(f"{where} has its bias", row.bias_offset, row.rows, dim, optional=True)
    if op.recurrent:
        _check_place(f"{where} has its recurrent weights", row.recurrent_offset, row.rows * row.outputs, dim)
        _check_place(f"{where} has its second bias", row.recurrent_bias_offset, row.rows, dim, optional=True)


def _check_place(what: str, offset: int, size: int, dim: int, *, optional: bool = False) -> None:
    if not (-1 if optional else 0) <= offset <= dim - size:
        raise ValueError(f"{what} at {offset}, outside theta of length {dim}")


def _matrix(theta: NDArray[np.float32], offset: int, rows: int, columns: int) -> NDArray[np.float32]:
    return theta[offset : offset + rows * columns].reshape(rows, columns)


def _vector(theta: NDArray[np.float32], offset: int, size: int) -> NDArray[np.float32] | None:
    return None if offset < 0 else theta[offset : offset + size]
