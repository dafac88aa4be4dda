"""A compiled network: the instructions that the C policy runs with the parameters in theta.

Owns the instruction set as values that can be sent, saved and compared; knows neither torch nor the C code.
Invariant: every Program can be run: its instructions fit each other and stay inside theta.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Added to variances over the reference batch, as for the Atari policies of Salimans et al. 2017; equal to C's.
NORMALIZE_EPSILON = 1e-3


class Op(IntEnum):
    """Operation of an instruction; the numbers are those of the C policy and never change."""

    LINEAR = 0  # y = activation(W x + b)
    RNN = 1  # h = activation(W x + b + W' h + b'), the cell of Elman 1990
    GRU = 2  # Cho et al. 2014
    LSTM = 3  # Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000
    CONV = 4  # y = activation(W * x + b) over an image, without padding
    SCALE = 5  # y = x * float32(1 / divisor)

    @property
    def blocks(self) -> int:
        """Blocks of rows in the weights and biases: one per gate, in torch's order."""
        return {Op.GRU: 3, Op.LSTM: 4}.get(self, 1)

    @property
    def recurrent(self) -> bool:
        """Whether it keeps its outputs from one timestep to the next."""
        return self in (Op.RNN, Op.GRU, Op.LSTM)


class Activation(IntEnum):
    """Function applied to an instruction's outputs; the numbers are those of the C policy."""

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
    """One row of a program; offsets are indices into theta, -1 for none.

    A recurrent instruction applies its weight and bias to its inputs, and its recurrent weight and bias to its own
    outputs of the previous timestep. A convolution applies a square kernel to an image (channels, height, width). The
    results of a linear or convolutional instruction with a scale are normalised by statistics over the reference batch,
    then multiplied by the scale; its bias is added last.
    """

    op: int
    inputs: int
    outputs: int
    weight_offset: int
    bias_offset: int
    activation: int
    recurrent_offset: int = -1
    recurrent_bias_offset: int = -1
    channels: int = 0
    height: int = 0
    width: int = 0
    kernel: int = 0
    stride: int = 0
    divisor: int = 0
    scale_offset: int = -1

    @property
    def normalized(self) -> bool:
        """Whether it uses virtual batch normalisation."""
        return self.scale_offset >= 0

    @property
    def image(self) -> tuple[int, int, int]:
        """Shape of a convolution's input: channels, height, width."""
        return self.channels, self.height, self.width

    @property
    def places(self) -> tuple[int, int]:
        """Rows and columns of a convolution's output."""
        return (self.height - self.kernel) // self.stride + 1, (self.width - self.kernel) // self.stride + 1

    @property
    def rows(self) -> int:
        """Rows of the weights, and length of each bias: for a convolution, its number of filters."""
        if self.op == Op.CONV:
            return self.outputs // math.prod(self.places)
        return Op(self.op).blocks * self.outputs

    @property
    def columns(self) -> int:
        """Columns of the weights: inputs, or for a convolution the values in a window."""
        return self.channels * self.kernel**2 if self.op == Op.CONV else self.inputs

    def weight(self, theta: NDArray[np.float32]) -> NDArray[np.float32]:
        """View of this instruction's weight matrix in theta: float32 (rows, columns)."""
        return _matrix(theta, self.weight_offset, self.rows, self.columns)

    def scale(self, theta: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """View of a normalised instruction's scale in theta: float32 (rows,), or None."""
        return _vector(theta, self.scale_offset, self.rows)

    def bias(self, theta: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """View of this instruction's bias in theta: float32 (rows,), or None."""
        return _vector(theta, self.bias_offset, self.rows)

    def recurrent_weight(self, theta: NDArray[np.float32]) -> NDArray[np.float32]:
        """View of a recurrent instruction's weight for its own outputs: float32 (rows, outputs)."""
        return _matrix(theta, self.recurrent_offset, self.rows, self.outputs)

    def recurrent_bias(self, theta: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """View of a recurrent instruction's second bias: float32 (rows,), or None."""
        return _vector(theta, self.recurrent_bias_offset, self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the row's fields as JSON values, without those of other operations."""
        fields = {
            name: value for name, value in self._asdict().items() if name in _fields(Op(self.op), self.normalized)
        }
        return {**fields, "op": Op(self.op).name.lower(), "activation": Activation(self.activation).name.lower()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Instruction":
        """Invert ``to_dict``; raises KeyError, TypeError or ValueError if the values are damaged."""
        op = Op[values["op"].upper()]
        known = {**values, "op": op, "activation": Activation[values["activation"].upper()]}
        return cls(**{field: int(known[field]) for field in _fields(op, "scale_offset" in values)})


def _fields(op: Op, normalized: bool) -> list[str]:
    """Return the names of an operation's fields."""
    fields = [field for field in Instruction._fields if field not in Instruction._field_defaults]
    if op.recurrent:
        fields += ["recurrent_offset", "recurrent_bias_offset"]
    if op is Op.CONV:
        fields += ["channels", "height", "width", "kernel", "stride"]
    if op is Op.SCALE:
        fields += ["divisor"]
    return [*fields, "scale_offset"] if normalized else fields


@dataclass(frozen=True)
class Program:
    """Instructions that turn an observation into the network's outputs.

    Parameters
    ----------
    instructions : tuple of Instruction
        In order; each takes the outputs of the previous one.
    observation_size : int
        Numbers in one observation.
    outputs : int
        Outputs of the last instruction.
    dim : int
        Length of theta.

    Raises
    ------
    ValueError
        The instructions do not fit each other, the observation or theta.
    """

    instructions: tuple[Instruction, ...]
    observation_size: int
    outputs: int
    dim: int

    def __post_init__(self) -> None:
        """Reject a program that cannot be run."""
        width = self.observation_size
        if width < 1 or not self.instructions:
            raise ValueError("a program needs an observation and at least one instruction")
        for index, instruction in enumerate(self.instructions):
            _check(instruction, index, width, self.dim)
            width = instruction.outputs
        recurrent = [index for index, row in enumerate(self.instructions) if Op(row.op).recurrent]
        if recurrent and any(row.normalized for row in self.instructions[recurrent[0] :]):
            raise ValueError("a normalised instruction comes behind one with a memory, expected before it")
        if width != self.outputs:
            raise ValueError(f"the last instruction gives {width} outputs, expected {self.outputs}")

    @property
    def normalized(self) -> bool:
        """Whether it needs a reference batch."""
        return any(row.normalized for row in self.instructions)

    def array(self) -> NDArray[np.int64]:
        """Return the rows for the C policy: a new int64 (instructions, 15)."""
        return np.array(self.instructions, np.int64).reshape(-1, len(Instruction._fields))

    def to_dict(self) -> dict[str, Any]:
        """Return the program as JSON values."""
        return {
            "observation_size": self.observation_size,
            "outputs": self.outputs,
            "dim": self.dim,
            "instructions": [row.to_dict() for row in self.instructions],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Program":
        """Invert ``to_dict``; raises KeyError, TypeError or ValueError if the values are damaged."""
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
    if op in (Op.GRU, Op.LSTM, Op.SCALE) and activation != Activation.IDENTITY:
        raise ValueError(f"{where} is a {op.name} with the activation {activation.name.lower()}, expected identity")
    if op is Op.SCALE:
        if row.outputs != row.inputs or row.divisor < 1:
            raise ValueError(f"{where} scales {row.inputs} numbers to {row.outputs} by {row.divisor}")
        return
    if op is Op.CONV:
        _check_image(row, where)
    _check_place(f"{where} has its weights", row.weight_offset, row.rows * row.columns, dim)
    _check_place(f"{where} has its bias", row.bias_offset, row.rows, dim, optional=True)
    if op.recurrent:
        _check_place(f"{where} has its recurrent weights", row.recurrent_offset, row.rows * row.outputs, dim)
        _check_place(f"{where} has its second bias", row.recurrent_bias_offset, row.rows, dim, optional=True)
    _check_place(f"{where} has its scale", row.scale_offset, row.rows, dim, optional=True)


def _check_image(row: Instruction, where: str) -> None:
    if min(row.image) < 1 or math.prod(row.image) != row.inputs:
        raise ValueError(f"{where} takes an image of {row.image}, but is given {row.inputs} numbers")
    if row.stride < 1 or not 1 <= row.kernel <= min(row.height, row.width):
        raise ValueError(f"{where} moves a kernel of {row.kernel} by {row.stride} over an image of {row.image}")
    if row.outputs % math.prod(row.places):
        raise ValueError(f"{where} gives {row.outputs} numbers, expected a multiple of {math.prod(row.places)}")


def _check_place(what: str, offset: int, size: int, dim: int, *, optional: bool = False) -> None:
    if not (-1 if optional else 0) <= offset <= dim - size:
        raise ValueError(f"{what} at {offset}, outside theta of length {dim}")


def _matrix(theta: NDArray[np.float32], offset: int, rows: int, columns: int) -> NDArray[np.float32]:
    return theta[offset : offset + rows * columns].reshape(rows, columns)


def _vector(theta: NDArray[np.float32], offset: int, size: int) -> NDArray[np.float32] | None:
    return None if offset < 0 else theta[offset : offset + size]
