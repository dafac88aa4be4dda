"""A compiled policy as a torch module: the same layers, parameters and statistics.

Owns the translation from instructions to torch's layers. Invariant: where no layer is used twice, the module's
``parameters()``, flattened in order, are the policy's theta; a layer that is used twice is there twice.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pyes.networks.program import Activation, Instruction, Op, Program
from pyes.networks.torch.layers import Recurrent, Scale, VirtualBatchNorm, observe

_ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    Activation.TANH: nn.Tanh,
    Activation.RELU: nn.ReLU,
    Activation.SIGMOID: nn.Sigmoid,
    Activation.ELU: nn.ELU,
    Activation.LEAKY_RELU: nn.LeakyReLU,
    Activation.SILU: nn.SiLU,
    Activation.GELU: lambda: nn.GELU(approximate="tanh"),
    Activation.SOFTSIGN: nn.Softsign,
}
_CELLS: dict[Op, Callable[..., nn.RNNCellBase]] = {Op.RNN: nn.RNNCell, Op.GRU: nn.GRUCell, Op.LSTM: nn.LSTMCell}


def module_of(program: Program) -> nn.Sequential:
    """Return the plain module that compiles to ``program``, with torch's default parameters."""
    modules: list[nn.Module] = []
    image = False
    for row in program.instructions:
        op = Op(row.op)
        if op is Op.SCALE:
            modules.append(Scale(row.divisor))
            continue
        if image != (op is Op.CONV):
            modules.append(nn.Flatten(-3) if image else nn.Unflatten(-1, row.image))
            image = not image
        if op.recurrent:
            modules.append(Recurrent(_cell(row)))
            continue
        modules.append(_mapping(row))
        if row.normalized:
            modules.append(VirtualBatchNorm(row.rows, image))
        if row.activation:
            modules.append(_ACTIVATIONS[Activation(row.activation)]())
    return nn.Sequential(*modules, *([nn.Flatten(-3)] if image else []))


class PolicyModule(nn.Sequential):
    """A network that first normalises and clips its observations, with the statistics in buffers.

    Its state dict has the keys of the plain network (``0.weight``, ``0.bias``, ``2.weight``, ...), and
    ``observation_mean`` and ``observation_inverse_std`` if the policy was trained on normalised observations.

    Parameters
    ----------
    network : Sequential
        The plain network; its layers become this module's.
    mean, inverse_std : float32 (observation_size,), or None
        Observation statistics; None for raw observations.
    observation_clip : float
        Largest absolute value of a normalised observation.
    """

    observation_mean: torch.Tensor | None
    observation_inverse_std: torch.Tensor | None

    def __init__(
        self,
        network: nn.Sequential,
        mean: NDArray[np.float32] | None,
        inverse_std: NDArray[np.float32] | None,
        observation_clip: float,
    ) -> None:
        super().__init__(*network)
        self.observation_clip = observation_clip
        self.register_buffer("observation_mean", None if mean is None else torch.tensor(mean))
        self.register_buffer("observation_inverse_std", None if inverse_std is None else torch.tensor(inverse_std))

    def reset(self) -> None:
        """Begin an episode: reset the state of every recurrent layer."""
        for layer in self:
            if isinstance(layer, Recurrent):
                layer.reset()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the network's outputs for float32 (..., observation_size): float32 (..., outputs)."""
        if self.observation_mean is not None and self.observation_inverse_std is not None:
            normalized = (input - self.observation_mean) * self.observation_inverse_std
            input = normalized.clamp(-self.observation_clip, self.observation_clip)
        for layer in self:
            input = layer(input)
        return input


def policy_module(
    program: Program,
    theta: NDArray[np.float32],
    mean: NDArray[np.float32] | None = None,
    inverse_std: NDArray[np.float32] | None = None,
    observation_clip: float = 0.0,
    reference_batch: NDArray[Any] | None = None,
) -> PolicyModule:
    """Return a compiled policy as a torch module, without the choice of the action.

    Its normalised layers have the statistics of ``reference_batch``, (count, observation_size).
    """
    network = module_of(program)
    rows = iter(row for row in program.instructions if row.op != Op.SCALE)
    row = program.instructions[0]
    with torch.no_grad():
        for layer in network:
            if isinstance(layer, VirtualBatchNorm):
                _fill([layer.weight, layer.bias], [row.scale(theta), row.bias(theta)])
            elif isinstance(layer, nn.Linear | nn.Conv2d | Recurrent):
                row = next(rows)
                arrays = [row.weight(theta), row.bias(theta)]
                if Op(row.op).recurrent:
                    arrays += [row.recurrent_weight(theta), row.recurrent_bias(theta)]
                _fill(_tensors(layer), arrays)
    if reference_batch is not None:
        observe(network, torch.tensor(reference_batch, dtype=torch.float32))
    return PolicyModule(network, mean, inverse_std, observation_clip)


def _fill(tensors: Iterable[torch.Tensor | None], arrays: Iterable[NDArray[np.float32] | None]) -> None:
    for tensor, array in zip(tensors, arrays, strict=True):
        if tensor is not None and array is not None:
            tensor.copy_(torch.tensor(array).reshape(tensor.shape))


def _tensors(layer: nn.Linear | nn.Conv2d | Recurrent) -> list[torch.Tensor | None]:
    """Return weight and bias, and for a cell also those of the hidden state."""
    if not isinstance(layer, Recurrent):
        return [layer.weight, layer.bias]
    cell = layer.cell
    return [cell.weight_ih, cell.bias_ih, cell.weight_hh, cell.bias_hh]


def _mapping(row: Instruction) -> nn.Module:
    """Return a linear or convolutional layer; the bias of a normalised one belongs to its normalisation."""
    bias = row.bias_offset >= 0 and not row.normalized
    if row.op == Op.CONV:
        return nn.Conv2d(row.channels, row.rows, row.kernel, row.stride, bias=bias, dtype=torch.float32)
    return nn.Linear(row.inputs, row.outputs, bias=bias, dtype=torch.float32)


def _cell(row: Instruction) -> nn.RNNCellBase:
    op = Op(row.op)
    options = {"nonlinearity": Activation(row.activation).name.lower()} if op is Op.RNN else {}
    cell = _CELLS[op](row.inputs, row.outputs, bias=row.bias_offset >= 0, dtype=torch.float32, **options)
    if row.recurrent_bias_offset < 0:
        # A second bias would only be added to the first. (In a GRU's new gate it acts differently; here it is zero.)
        cell.register_parameter("bias_hh", None)
    return cell
