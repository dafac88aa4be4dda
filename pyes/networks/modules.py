"""The networks as torch modules: what `network.name` means, and what their parameters start from.

Owns the definition of each network. Imports torch, so it is imported only where a network is made, never by a worker.
Invariant: a network's theta is its ``module.parameters()``, flattened in that order.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pyes.errors import ConfigError
from pyes.networks.images import Scale, VirtualBatchNorm, observe
from pyes.networks.program import ACTIVATIONS, Op, Program
from pyes.networks.recurrent import Recurrent
from pyes.networks.torch_network import make_module

if TYPE_CHECKING:
    from pyes.config import NetworkConfig
    from pyes.networks.spec import PolicySpec

_ACTIVATION_MODULES: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "leaky_relu": nn.LeakyReLU,
    "silu": nn.SiLU,
    "gelu": lambda: nn.GELU(approximate="tanh"),
    "softsign": nn.Softsign,
}


_CELLS: dict[Op, Callable[..., nn.RNNCellBase]] = {Op.RNN: nn.RNNCell, Op.GRU: nn.GRUCell, Op.LSTM: nn.LSTMCell}


class Layer(NamedTuple):
    """A linear map and the activation after it, a recurrent cell, or what else an instruction stands for."""

    op: Op
    inputs: int  # numbers, or of a convolution channels
    outputs: int
    biases: int  # 0, 1, or for a cell 2: one from the input and one from the hidden state
    activation: str
    image: tuple[int, ...] = ()  # what a convolution takes: channels, height, width
    kernel: int = 0
    stride: int = 0
    divisor: int = 0  # of a scale
    normalized: bool = False


def build_module(
    config: "NetworkConfig", observation_size: int, outputs: int, shape: tuple[int, ...] = ()
) -> nn.Module:
    """Return the network that a configuration names: a plain ``nn.Sequential``, initialised by torch's defaults.

    With ``network.name=torch`` it is the module of the user's own.

    Parameters
    ----------
    config              the section `network` of a configuration
    observation_size    numbers in one observation
    outputs             numbers that the action head takes
    shape               of one observation, where the network takes images: (channels, height, width)

    Raises
    ------
    ConfigError    the module of the user's own cannot be made, or the observation is no image that fits
    """
    if config.module is not None:
        return make_module(config.module, config.module_kwargs, observation_size, outputs)
    if config.name == "dqn":
        return _sequential(_dqn(config, shape, outputs))
    return _sequential(_NETWORKS[config.name](config, observation_size, outputs))


def module_of(program: Program) -> nn.Sequential:
    """Return the plain module that compiles to ``program``; its parameters are torch's default ones."""
    return _sequential(
        Layer(
            Op(row.op),
            row.channels or row.inputs,
            row.rows if row.op == Op.CONV else row.outputs,
            int(row.bias_offset >= 0) + int(row.recurrent_bias_offset >= 0),
            ACTIVATIONS[row.activation],
            row.image if row.op == Op.CONV else (),
            row.kernel,
            row.stride,
            row.divisor,
            row.normalized,
        )
        for row in program.instructions
    )


def initial_theta(
    config: "NetworkConfig", observation_size: int, outputs: int, seed: int, shape: tuple[int, ...] = ()
) -> NDArray[np.float32]:
    """Return the parameters that a run starts from: float32 (dim,).

    ``config.init`` torch takes the defaults of torch's layers under ``seed`` (and 1 for the scales of virtual batch
    normalisation); zero takes zeros. Torch's global generator is left as it was.
    """
    from pyes.networks.compiler import flatten

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        theta = flatten(build_module(config, observation_size, outputs, shape))
    return np.zeros_like(theta) if config.init == "zero" else theta


class PolicyModule(nn.Sequential):
    """A network that normalises and clips its observations first, by statistics that it holds as buffers.

    Its state dict has the keys of the plain network (``0.weight``, ``0.bias``, ``2.weight``, ...), and also
    ``observation_mean`` and ``observation_inverse_std`` where the policy was trained on normalised observations.

    Parameters
    ----------
    network                   the plain network; its layers become this module's
    mean, inverse_std         float32 (observation_size,), or None for raw observations
    observation_clip          largest absolute value of a normalised observation
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
        """Begin an episode: layers that remember forget the last one."""
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
    spec: "PolicySpec",
    theta: NDArray[np.float32],
    mean: NDArray[np.float32] | None,
    inverse_std: NDArray[np.float32] | None,
    reference: NDArray[Any] | None = None,
) -> PolicyModule:
    """Return a compiled policy as a torch module again, with its parameters and statistics, up to the action head.

    Its normalised layers have taken their statistics over ``reference``, the batch (count, observation_size).
    """
    assert isinstance(spec.program, Program)
    network = module_of(spec.program)
    rows = iter(row for row in spec.program.instructions if row.op != Op.SCALE)
    row = spec.program.instructions[0]
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
    if reference is not None:
        observe(network, torch.tensor(reference, dtype=torch.float32))
    return PolicyModule(network, mean, inverse_std, spec.observation_clip)


def _fill(tensors: Iterable[torch.Tensor | None], arrays: Iterable[NDArray[np.float32] | None]) -> None:
    for tensor, array in zip(tensors, arrays, strict=True):
        if tensor is not None and array is not None:
            tensor.copy_(torch.tensor(array).reshape(tensor.shape))


def _tensors(layer: nn.Linear | nn.Conv2d | Recurrent) -> list[torch.Tensor | None]:
    """Return weight and bias, and of a cell those for the hidden state."""
    if not isinstance(layer, Recurrent):
        return [layer.weight, layer.bias]
    cell = layer.cell
    return [cell.weight_ih, cell.bias_ih, cell.weight_hh, cell.bias_hh]


def _linear(config: "NetworkConfig", observation_size: int, outputs: int) -> list[Layer]:
    return [Layer(Op.LINEAR, observation_size, outputs, int(config.bias), config.output_activation)]


def _mlp(config: "NetworkConfig", observation_size: int, outputs: int) -> list[Layer]:
    sizes = [observation_size, *config.hidden]
    hidden = [Layer(Op.LINEAR, a, b, int(config.bias), config.activation) for a, b in itertools.pairwise(sizes)]
    return [*hidden, *_linear(config, sizes[-1], outputs)]


def _recurrent(config: "NetworkConfig", observation_size: int, outputs: int) -> list[Layer]:
    sizes, op = [observation_size, *config.hidden], Op[config.name.upper()]
    activation = config.activation if op is Op.RNN else "identity"
    biases = int(config.bias) + int(config.double_bias)
    return [
        *(Layer(op, a, b, biases, activation) for a, b in itertools.pairwise(sizes)),
        *_linear(config, sizes[-1], outputs),
    ]


def _dqn(config: "NetworkConfig", shape: tuple[int, ...], outputs: int) -> list[Layer]:
    """Convolutions, then linear layers (Mnih et al. 2015), normalised as in Salimans et al. 2017, section 2.2."""
    if len(shape) != 3:
        observed = " x ".join(map(str, shape)) or "no image"
        raise ConfigError(f"network.name=dqn: got observations of {observed}, expected channels x height x width")
    normalized, biases = config.virtual_batch_norm, int(config.bias)
    image: tuple[int, ...] = shape
    layers = [Layer(Op.SCALE, math.prod(shape), math.prod(shape), 0, "identity", divisor=config.divisor)]
    for filters, kernel, stride in zip(config.channels, config.kernels, config.strides, strict=True):
        if kernel > min(image[1:]):
            place = f"a kernel of {kernel} over an image of {image[1]} x {image[2]}"
            raise ConfigError(f"network.kernels: got {place}, expected at most {min(image[1:])}")
        row = Layer(Op.CONV, image[0], filters, biases, config.activation, image, kernel, stride, normalized=normalized)
        layers.append(row)
        image = (filters, *((size - kernel) // stride + 1 for size in image[1:]))
    sizes = [math.prod(image), *config.hidden]
    layers += [
        Layer(Op.LINEAR, a, b, biases, config.activation, normalized=normalized) for a, b in itertools.pairwise(sizes)
    ]
    return [*layers, *_linear(config, sizes[-1], outputs)]


_NETWORKS: dict[str, Callable[["NetworkConfig", int, int], list[Layer]]] = {
    "linear": _linear,
    "mlp": _mlp,
    "rnn": _recurrent,
    "gru": _recurrent,
    "lstm": _recurrent,
}


def _sequential(layers: Iterable[Layer]) -> nn.Sequential:
    modules: list[nn.Module] = []
    image = False
    for layer in layers:
        if layer.op == Op.SCALE:
            modules.append(Scale(layer.divisor))
            continue
        if image != (layer.op == Op.CONV):
            modules.append(nn.Flatten(-3) if image else nn.Unflatten(-1, layer.image))
            image = not image
        if layer.op.recurrent:
            modules.append(Recurrent(_cell(layer)))
            continue
        modules.append(_mapping(layer))
        if layer.normalized:
            modules.append(VirtualBatchNorm(layer.outputs, image))
        if layer.activation != "identity":
            modules.append(_activation(layer.activation))
    return nn.Sequential(*modules, *([nn.Flatten(-3)] if image else []))


def _mapping(layer: Layer) -> nn.Module:
    """Return a linear or convolutional layer; the bias of a normalised one is in the normalisation."""
    bias = layer.biases > 0 and not layer.normalized
    if layer.op is Op.CONV:
        return nn.Conv2d(layer.inputs, layer.outputs, layer.kernel, layer.stride, bias=bias, dtype=torch.float32)
    return nn.Linear(layer.inputs, layer.outputs, bias=bias, dtype=torch.float32)


def _cell(layer: Layer) -> nn.RNNCellBase:
    options = {"nonlinearity": layer.activation} if layer.op is Op.RNN else {}
    cell = _CELLS[layer.op](layer.inputs, layer.outputs, bias=layer.biases > 0, dtype=torch.float32, **options)
    if layer.biases == 1:
        # Two biases that are only ever added would be perturbed as two parameters. (In a GRU's new gate the second one
        # is more than a sum; it is then zero.)
        cell.register_parameter("bias_hh", None)
    return cell


def _activation(name: str) -> nn.Module:
    if name not in _ACTIVATION_MODULES:
        raise ConfigError(f"network.activation is {name!r}, expected one of {', '.join(ACTIVATIONS)}")
    return _ACTIVATION_MODULES[name]()
