"""Compiles a torch module to a program for C, and copies parameters between the module and theta.

Owns the walk over a module's layers. Invariant: up to rounding, the program's outputs equal ``module(observation)``
with theta in ``module.parameters()`` order; its recurrent states are reset when an episode begins.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pyes.errors import ConfigError
from pyes.networks.program import Activation, Instruction, Op, Program
from pyes.networks.torch.layers import Recurrent, Scale, VirtualBatchNorm

_PLAIN_ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.Tanh: Activation.TANH,
    nn.ReLU: Activation.RELU,
    nn.Sigmoid: Activation.SIGMOID,
    nn.SiLU: Activation.SILU,
    nn.Softsign: Activation.SOFTSIGN,
}
_CELLS: dict[type[nn.Module], Op] = {nn.RNNCell: Op.RNN, nn.GRUCell: Op.GRU, nn.LSTMCell: Op.LSTM}
_OVERRIDES = {"forward", "reset", "observation_shape"}
_KNOWN = (
    "Linear, Conv2d(without padding, dilation and groups), Unflatten(-1, (channels, height, width)), Flatten, Scale, "
    "VirtualBatchNorm, Recurrent, Tanh, ReLU, Sigmoid, ELU(alpha=1), LeakyReLU(0.01), SiLU, GELU('tanh'), Softsign, "
    "Identity, Sequential"
)


def compile_module(module: nn.Module) -> Program:
    """Translate a chain of linear, convolutional and recurrent layers and activations into a program.

    Parameters
    ----------
    module : Module
        A possibly nested Sequential of linear layers, which may be used more than once, activations, cells in
        `pyes.networks.torch.Recurrent`, and convolutions between an Unflatten and a Flatten.

    Raises
    ------
    ConfigError
        A layer is unknown, has parameters that are not float32, or does not fit the previous one.
    """
    chain, layers = _Chain(_offsets(module)), list(_layers(module))
    for layer in layers:
        if isinstance(layer, Recurrent) and sum(layer is other for other in layers) > 1:
            raise ConfigError(f"network layer {layer.cell} has one memory but several places; give each its own layer")
        chain.add(layer)
    instructions = chain.sized()
    if not instructions:
        raise ConfigError("the network has no linear layer; give it one from the observation to the action")
    dim = sum(parameter.numel() for parameter in module.parameters())
    try:
        return Program(tuple(instructions), instructions[0].inputs, instructions[-1].outputs, dim)
    except ValueError as error:
        raise ConfigError(f"the network's layers do not fit each other: {error}") from error


class _Offsets(dict[int, int]):
    """Where each parameter is in theta, by its id."""

    def __missing__(self, key: int) -> int:
        raise ConfigError("the network has a weight that is no parameter, such as a buffer; it cannot be compiled")


class _Chain:
    """The instructions of the layers so far, and the shape of their output if it is an image."""

    def __init__(self, offsets: _Offsets) -> None:
        self.instructions: list[Instruction] = []
        self._offsets = offsets
        self._image: tuple[int, ...] = ()

    def add(self, layer: nn.Module) -> None:
        """Translate one layer."""
        if type(layer) is nn.Unflatten and layer.dim in (0, -1) and len(layer.unflattened_size) == 3:
            self._image = tuple(layer.unflattened_size)
        elif type(layer) is nn.Flatten:
            self._image = ()
        elif type(layer) is nn.Conv2d and _is_plain(layer):
            self._add_convolution(layer)
        elif type(layer) is Scale:
            row = Instruction(Op.SCALE, 0, 0, -1, -1, Activation.IDENTITY, divisor=layer.divisor)
            self.instructions.append(row)
        elif type(layer) is VirtualBatchNorm:
            self._normalize(layer)
        elif self._image and type(layer) in (nn.Linear, Recurrent):
            raise ConfigError(f"network layer {layer} is given an image; put a Flatten before it")
        elif type(layer) is nn.Linear:
            self.instructions.append(_linear(layer, self._offsets))
        elif type(layer) is Recurrent and type(layer.cell) in _CELLS:
            self.instructions.append(_recurrent(layer.cell, self._offsets))
        elif type(layer) is not nn.Identity:
            self.instructions[-1:] = [_activated(self.instructions, layer)]

    def sized(self) -> list[Instruction]:
        """Return the instructions; a scale gets the width of the next one."""
        rows = list(self.instructions)
        for k in range(len(rows) - 2, -1, -1):
            if rows[k].op == Op.SCALE:
                rows[k] = rows[k]._replace(inputs=rows[k + 1].inputs, outputs=rows[k + 1].inputs)
        return rows

    def _add_convolution(self, layer: nn.Conv2d) -> None:
        if len(self._image) != 3 or self._image[0] != layer.in_channels:
            raise ConfigError(
                f"network layer {layer} is given {self._image or 'no image'}; put an "
                f"Unflatten(-1, ({layer.in_channels}, height, width)) before the first one"
            )
        kernel, stride = layer.kernel_size[0], layer.stride[0]
        channels, height, width = self._image
        down, across = ((size - kernel) // stride + 1 for size in (height, width))
        if min(down, across) < 1:
            raise ConfigError(f"network layer {layer} does not fit into an image of {height} x {width}")
        self._image = layer.out_channels, down, across
        row = Instruction(
            op=Op.CONV,
            inputs=channels * height * width,
            outputs=layer.out_channels * down * across,
            weight_offset=self._offsets[id(layer.weight)],
            bias_offset=-1 if layer.bias is None else self._offsets[id(layer.bias)],
            activation=Activation.IDENTITY,
            channels=channels,
            height=height,
            width=width,
            kernel=kernel,
            stride=stride,
        )
        self.instructions.append(row)

    def _normalize(self, layer: VirtualBatchNorm) -> None:
        """Mark the last instruction as normalised."""
        last = self.instructions[-1] if self.instructions else None
        if last is None or last.op not in (Op.LINEAR, Op.CONV) or last.activation or last.bias_offset >= 0:
            raise ConfigError(f"network layer {layer} must come right after a Linear or Conv2d with bias=False")
        if (last.rows, last.op == Op.CONV) != (len(layer.weight), layer.image):
            raise ConfigError(f"network layer {layer} does not fit the {last.rows} channels before it")
        offsets = self._offsets[id(layer.bias)], self._offsets[id(layer.weight)]
        self.instructions[-1] = last._replace(bias_offset=offsets[0], scale_offset=offsets[1])


def _is_plain(layer: nn.Conv2d) -> bool:
    """Whether C supports a convolution: square kernel and stride, no padding, dilation or groups."""
    square = len({*layer.kernel_size, layer.kernel_size[0]}) == len({*layer.stride, layer.stride[0]}) == 1
    return square and layer.padding in (0, (0, 0)) and layer.dilation == (1, 1) and layer.groups == 1


def flatten(module: nn.Module) -> NDArray[np.float32]:
    """Return all parameters in ``module.parameters()`` order: a new float32 (dim,)."""
    parts = [parameter.detach().numpy().ravel() for parameter in module.parameters()]
    return np.concatenate(parts, dtype=np.float32) if parts else np.empty(0, np.float32)


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    # Only plain Sequentials are opened: the forward of any other module may do more than call its children in order.
    # Hooks or methods set on an instance may change any of them.
    for each in (module, module.cell) if type(module) is Recurrent else (module,):
        if each._forward_hooks or each._forward_pre_hooks or vars(each).keys() & _OVERRIDES:
            raise ConfigError(
                f"network layer {type(each).__name__} has hooks or methods of its own; it cannot be compiled"
            )
    if type(module) is not nn.Sequential:
        yield module
        return
    for child in module:
        yield from _layers(child)


def _offsets(module: nn.Module) -> _Offsets:
    offsets = _Offsets()
    start = 0
    for name, parameter in module.named_parameters():
        if parameter.dtype is not torch.float32:
            raise ConfigError(f"network parameter {name} is {parameter.dtype}, expected torch.float32")
        offsets[id(parameter)] = start
        start += parameter.numel()
    return offsets


def _linear(layer: nn.Linear, offsets: _Offsets) -> Instruction:
    return Instruction(
        op=Op.LINEAR,
        inputs=layer.in_features,
        outputs=layer.out_features,
        weight_offset=offsets[id(layer.weight)],
        bias_offset=-1 if layer.bias is None else offsets[id(layer.bias)],
        activation=Activation.IDENTITY,
    )


def _recurrent(cell: nn.RNNCellBase, offsets: _Offsets) -> Instruction:
    activation = Activation[cell.nonlinearity.upper()] if isinstance(cell, nn.RNNCell) else Activation.IDENTITY
    return Instruction(
        op=_CELLS[type(cell)],
        inputs=cell.input_size,
        outputs=cell.hidden_size,
        weight_offset=offsets[id(cell.weight_ih)],
        bias_offset=-1 if cell.bias_ih is None else offsets[id(cell.bias_ih)],
        activation=activation,
        recurrent_offset=offsets[id(cell.weight_hh)],
        recurrent_bias_offset=-1 if cell.bias_hh is None else offsets[id(cell.bias_hh)],
    )


def _activated(instructions: list[Instruction], layer: nn.Module) -> Instruction:
    """Return the last instruction with the activation of ``layer``."""
    activation = _activation(layer)
    if activation is None:
        raise ConfigError(f"network layer {_described(layer)} cannot be compiled; known layers: {_KNOWN}")
    last = instructions[-1] if instructions else None
    if last is None or last.op not in (Op.LINEAR, Op.CONV) or last.activation != Activation.IDENTITY:
        raise ConfigError(f"network layer {layer} must come right after a Linear or Conv2d layer")
    return last._replace(activation=activation)


def _described(layer: nn.Module) -> str:
    """Return torch's description of a layer, or only the class of one that contains other layers."""
    return str(layer) if next(layer.children(), None) is None else type(layer).__name__


def _activation(layer: nn.Module) -> Activation | None:
    if type(layer) is nn.ELU and layer.alpha == 1:
        return Activation.ELU
    if type(layer) is nn.LeakyReLU and layer.negative_slope == 0.01:
        return Activation.LEAKY_RELU
    if type(layer) is nn.GELU and layer.approximate == "tanh":
        return Activation.GELU
    return _PLAIN_ACTIVATIONS.get(type(layer))
