"""Composes a program from layers and assigns their parameters places in theta.

Owns the order of parameters in theta, which is that of ``module.parameters()`` for the same layers in torch. Knows no
kind of network.
"""

from typing import Annotated, Any, Literal

from pyes.config.section import AtLeastOne, parse, refusal
from pyes.errors import ConfigError
from pyes.networks.program import ACTIVATIONS, Activation, Instruction, Op, Program


class Composer:
    """Adds layers to a chain.

    Parameters
    ----------
    observation_size : int
        Numbers in one observation.
    shape : tuple of int
        Shape of one observation; for an image (channels, height, width).
    """

    def __init__(self, observation_size: int, shape: tuple[int, ...] = ()) -> None:
        self._observation_size = self._width = observation_size
        self._shape = shape or (observation_size,)
        self._rows: list[Instruction] = []
        self._dim = 0

    def scale(self, divisor: int) -> None:
        """Divide by an integer, such as 255 for images."""
        width, divisor = self._width, _count("divisor", divisor)
        self._rows.append(Instruction(Op.SCALE, width, width, -1, -1, Activation.IDENTITY, divisor=divisor))

    def linear(
        self, outputs: int, activation: str = "identity", *, bias: bool = True, normalized: bool = False
    ) -> None:
        """Add a linear layer; ``normalized`` adds virtual batch normalisation with a scale and a bias."""
        outputs = _count("outputs", outputs)
        weight = self._place(self._width * outputs)
        self._rows.append(self._mapping(Op.LINEAR, outputs, outputs, weight, activation, bias, normalized))
        self._width, self._shape = outputs, (outputs,)

    def convolution(
        self,
        filters: int,
        kernel: int,
        stride: int,
        activation: str = "identity",
        *,
        bias: bool = True,
        normalized: bool = False,
    ) -> None:
        """Add a convolution of square kernels, without padding.

        Raises
        ------
        ConfigError
            The input is not an image, or smaller than the kernel, or a size is impossible.
        """
        filters, kernel, stride = _count("filters", filters), _count("kernel", kernel), _count("stride", stride)
        if len(self._shape) != 3:
            given = " x ".join(map(str, self._shape))
            raise ConfigError(
                f"network: a convolution needs an image of channels x height x width, got observations of {given}"
            )
        channels, height, width = self._shape
        if kernel > min(height, width):
            text = f"network: got a kernel of {kernel}, larger than its image of {height} x {width}"
            if not self._rows and width in (1, 3, 4):
                text += f"; images are channels x height x width: transpose those of {channels} x {height} x {width}"
            raise ConfigError(text)
        weight = self._place(filters * channels * kernel**2)
        down, across = ((size - kernel) // stride + 1 for size in (height, width))
        row = self._mapping(Op.CONV, filters, filters * down * across, weight, activation, bias, normalized)
        self._rows.append(row._replace(channels=channels, height=height, width=width, kernel=kernel, stride=stride))
        self._width, self._shape = row.outputs, (filters, down, across)

    def recurrent(
        self, op: Op, units: int, activation: Literal["identity", "tanh", "relu"] = "identity", *, biases: int = 1
    ) -> None:
        """Add a recurrent layer: ``Op.RNN``, which has an activation, ``Op.GRU`` or ``Op.LSTM``.

        With two biases per gate, as in torch, the second one belongs to the recurrent weights.

        Raises
        ------
        ConfigError
            An argument is none of those.
        """
        if not isinstance(op, Op) or not op.recurrent:
            raise refusal("op", str(op), "Op.RNN, Op.GRU or Op.LSTM")
        if activation not in (known := ("identity", "tanh", "relu") if op == Op.RNN else ("identity",)):
            raise refusal("activation", activation, f"one of {', '.join(known)} with {op.name}")
        if biases not in (0, 1, 2):
            raise refusal("biases", biases, "0, 1 or 2")
        units = _count("units", units)
        rows = op.blocks * units
        row = Instruction(
            op,
            self._width,
            units,
            weight_offset=self._place(rows * self._width),
            recurrent_offset=self._place(rows * units),
            bias_offset=self._place(rows) if biases else -1,
            recurrent_bias_offset=self._place(rows) if biases == 2 else -1,
            activation=_activation(activation),
        )
        self._rows.append(row)
        self._width, self._shape = units, (units,)

    def program(self) -> Program:
        """Return the layers as a program.

        Raises
        ------
        ValueError
            There are none, or a normalised layer follows a recurrent one.
        """
        return Program(tuple(self._rows), self._observation_size, self._width, self._dim)

    def _mapping(
        self, op: Op, rows: int, outputs: int, weight: int, activation: str, bias: bool, normalized: bool
    ) -> Instruction:
        """Return the instruction of a linear or convolutional layer with ``rows`` biases."""
        scale = self._place(rows) if normalized else -1
        return Instruction(
            op,
            self._width,
            outputs,
            weight_offset=weight,
            bias_offset=self._place(rows) if bias or normalized else -1,
            activation=_activation(activation),
            scale_offset=scale,
        )

    def _place(self, size: int) -> int:
        """Return the offset of the next ``size`` parameters."""
        self._dim += size
        return self._dim - size


def _count(name: str, value: Any) -> int:
    count: int = parse(Annotated[int, AtLeastOne], value, name)
    return count


def _activation(name: str) -> Activation:
    try:
        return Activation[name.upper()]
    except KeyError:
        raise refusal("activation", name, f"one of {', '.join(ACTIVATIONS)}") from None
