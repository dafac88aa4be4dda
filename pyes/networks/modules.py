"""The networks as torch modules: what `network.name` means, and what their parameters start from.

Owns the definition of each network. Imports torch, so it is imported only where a network is made, never by a worker.
Invariant: a network's theta is its ``module.parameters()``, flattened in that order.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pyes.errors import ConfigError
from pyes.networks.program import ACTIVATIONS, Program

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


class Layer(NamedTuple):
    """A linear map and the activation after it."""

    inputs: int
    outputs: int
    bias: bool
    activation: str


def build_module(config: "NetworkConfig", observation_size: int, outputs: int) -> nn.Sequential:
    """Return the network that a configuration names: a plain ``nn.Sequential``, initialised by torch's defaults.

    Parameters
    ----------
    config              name (linear, mlp), hidden, activation, bias
    observation_size    numbers in one observation
    outputs             numbers that the action head takes

    Raises
    ------
    ConfigError    the name or the activation is unknown
    """
    if config.name not in _NETWORKS:
        raise ConfigError(f"network.name is {config.name!r}, expected one of {', '.join(_NETWORKS)}")
    return _sequential(_NETWORKS[config.name](config, observation_size, outputs))


def module_of(program: Program) -> nn.Sequential:
    """Return the plain module that compiles to ``program``; its parameters are torch's default ones."""
    return _sequential(
        Layer(row.inputs, row.outputs, row.bias_offset >= 0, ACTIVATIONS[row.activation])
        for row in program.instructions
    )


def initial_theta(config: "NetworkConfig", observation_size: int, outputs: int, seed: int) -> NDArray[np.float32]:
    """Return the parameters that a run starts from: float32 (dim,).

    ``config.init`` torch takes the defaults of torch's layers under ``seed``; zero takes zeros. Torch's global
    generator is left as it was.
    """
    from pyes.networks.compiler import flatten

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        theta = flatten(build_module(config, observation_size, outputs))
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
) -> PolicyModule:
    """Return a compiled policy as a torch module again, with its parameters and statistics, up to the action head."""
    network = module_of(spec.program)
    linears = (module for module in network if isinstance(module, nn.Linear))
    with torch.no_grad():
        for row, linear in zip(spec.program.instructions, linears, strict=True):
            linear.weight.copy_(torch.tensor(row.weight(theta)))
            bias = row.bias(theta)
            if bias is not None:
                linear.bias.copy_(torch.tensor(bias))
    return PolicyModule(network, mean, inverse_std, spec.observation_clip)


def _linear(config: "NetworkConfig", observation_size: int, outputs: int) -> list[Layer]:
    return [Layer(observation_size, outputs, config.bias, "identity")]


def _mlp(config: "NetworkConfig", observation_size: int, outputs: int) -> list[Layer]:
    sizes = [observation_size, *config.hidden]
    hidden = [Layer(a, b, config.bias, config.activation) for a, b in itertools.pairwise(sizes)]
    return [*hidden, Layer(sizes[-1], outputs, config.bias, "identity")]


_NETWORKS: dict[str, Callable[["NetworkConfig", int, int], list[Layer]]] = {"linear": _linear, "mlp": _mlp}


def _sequential(layers: Iterable[Layer]) -> nn.Sequential:
    modules: list[nn.Module] = []
    for layer in layers:
        modules.append(nn.Linear(layer.inputs, layer.outputs, bias=layer.bias, dtype=torch.float32))
        if layer.activation != "identity":
            modules.append(_activation(layer.activation))
    return nn.Sequential(*modules)


def _activation(name: str) -> nn.Module:
    if name not in _ACTIVATION_MODULES:
        raise ConfigError(f"network.activation is {name!r}, expected one of {', '.join(ACTIVATIONS)}")
    return _ACTIVATION_MODULES[name]()
