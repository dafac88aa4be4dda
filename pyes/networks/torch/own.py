"""Users' own torch modules: imported by name, made, checked, and run if C cannot run them.

Owns the creation of ``network.module`` and the forward pass in torch. Invariant: on one machine equal parameters and
observations give equal outputs in every process. This needs one thread, evaluation mode, tensors allocated by torch
(for their alignment), and random buffers drawn from a fixed seed.
"""

import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import parent_process
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from pyes.errors import ConfigError
from pyes.networks.named import NamedModule
from pyes.networks.program import Program
from pyes.networks.torch.compiler import compile_module, flatten
from pyes.networks.torch.layers import Recurrent, VirtualBatchNorm
from pyes.system.lookup import find
from pyes.system.process_wide import in_turn
from pyes.system.text import reason
from pyes.system.user_code import let_through

logger = logging.getLogger(__name__)


def make_module(name: str, kwargs: Mapping[str, Any], observation_size: int, outputs: int) -> nn.Module:
    """Make the module named by ``name`` (MODULE:CLASS, or MODULE:FUNCTION), and try it.

    Raises
    ------
    ConfigError
        It cannot be imported or made, is not a module, has no parameters, some that are frozen, or others than
        float32 on the CPU, has another number of outputs, or acts otherwise in a second episode.
    """
    made = find("network.module", name, "MODULE:CLASS, for example 'my_networks:Convolution'")
    if isinstance(made, type) and not issubclass(made, nn.Module):
        raise _refusal(name, f"is {made}, expected a torch.nn.Module")
    try:
        module = made(observation_size, outputs, **kwargs)
    except BaseException as error:
        let_through(error)
        raise _refusal(name, f"could not be made: {reason(error)}") from error
    if not isinstance(module, nn.Module):
        raise _refusal(name, f"made a {type(module).__name__}, expected a torch.nn.Module")
    _check_parameters(name, module)
    _check_outputs(name, module, observation_size, outputs)
    return module


def build(
    name: str, kwargs: Mapping[str, Any], observation_size: int, outputs: int, seed: int
) -> tuple[Program | NamedModule, NDArray[np.float32]]:
    """Return the module's program, or its name if C does not know all its layers, and the initial parameters.

    The module draws them from the global generators with ``seed``, and these are left unchanged.

    Raises
    ------
    ConfigError
        The module cannot be made, or has both a `VirtualBatchNorm`, which only C supports, and layers unknown to C.
    """
    with _one_thread(), _seeded(seed):
        module = make_module(name, kwargs, observation_size, outputs)
    theta = flatten(module)
    try:
        return compile_module(module), theta
    except ConfigError as error:
        if any(isinstance(layer, VirtualBatchNorm) for layer in module.modules()):
            raise _refusal(name, f"has a VirtualBatchNorm, but cannot be compiled: {error}") from error
        logger.info("torch runs the network: %s", error)
    return NamedModule(name, dict(kwargs), observation_size, outputs, len(theta)), theta


class TorchNetwork:
    """The network of a ``PolicyRunner``, run by torch."""

    def __init__(self, named: NamedModule) -> None:
        if parent_process() is not None:  # a worker, where nothing else has threads
            torch.set_num_threads(1)
        with _one_thread(), _seeded(0):  # for random buffers
            self.module = make_module(named.name, named.kwargs, named.observation_size, named.outputs).eval()
        self._theta = _gathered(self.module)
        self._shape = _observation_shape(self.module, named.observation_size)
        self.dim, self.outputs = len(self._theta), named.outputs
        if self.dim != named.dim:
            raise _refusal(named.name, f"has {self.dim} parameters now, the policy has {named.dim}")
        self.reset()

    def load(self, theta: NDArray[np.float32]) -> None:
        """Copy the parameters: float32 (dim,)."""
        self._theta[:] = theta

    def reset(self) -> None:
        """Begin an episode: empty the memory of each `Recurrent`, and call the module's own ``reset`` if it has one."""
        _reset(self.module)

    def forward(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs, float32 (outputs,), for an observation, float32 (observation_size,)."""
        return _outputs(self.module, observation, self._shape)


def state_dict_of(
    named: NamedModule,
    theta: NDArray[np.float32],
    mean: NDArray[np.float32] | None,
    inverse_std: NDArray[np.float32] | None,
) -> dict[str, torch.Tensor]:
    """Return the module's state dict with theta, and with the observation statistics if given."""
    network = TorchNetwork(named)
    network.load(theta)
    tensors = {key: tensor.clone() for key, tensor in network.module.state_dict().items()}
    for key, array in (("observation_mean", mean), ("observation_inverse_std", inverse_std)):
        if array is not None:
            tensors[key] = torch.tensor(array)
    return tensors


def _check_parameters(name: str, module: nn.Module) -> None:
    parameters = dict(module.named_parameters())
    if not parameters:
        raise _refusal(name, "has no parameters, expected some to train")
    for key, parameter in parameters.items():
        if parameter.dtype is not torch.float32 or parameter.device.type != "cpu":
            found = f"{parameter.dtype} on {parameter.device}"
            raise _refusal(name, f"has the parameter {key} in {found}, expected torch.float32 on cpu")

    frozen = [key for key, parameter in parameters.items() if not parameter.requires_grad]
    if 0 < len(frozen) < len(parameters):  # where all are, gradients are only switched off
        raise _refusal(name, f"has the frozen parameter {frozen[0]}, which would be trained, too; make it a buffer")


def _check_outputs(name: str, module: nn.Module, observation_size: int, outputs: int) -> None:
    training = module.training
    module.eval()
    generator = np.random.default_rng(0)
    observations = generator.random((3, observation_size))
    try:
        shape = _observation_shape(module, observation_size)
        # Lazy layers have no parameters before it.
        begun = _episode(module, observations[:1], shape)
        with _random_parameters(module, generator):
            first, second = (_episode(module, observations, shape) for _ in range(2))
    except BaseException as error:
        let_through(error)
        raise _refusal(
            name, f"fails on an observation of {observation_size} numbers, without a batch axis: {reason(error)}"
        ) from error
    module.train(training)
    if not np.array_equal(first, second, equal_nan=True):
        raise _refusal(
            name,
            "gives other outputs in a second episode, expected the same; let its reset() empty its memory, and draw "
            "no random numbers in forward()",
        )
    if first[0].size != outputs:
        raise _refusal(name, f"gives {first[0].size} outputs, expected {outputs}, as many as the action takes")
    if np.isnan(begun).all():
        raise _refusal(name, "gives only NaN with the parameters that it begins with")


@contextmanager
def _random_parameters(module: nn.Module, generator: np.random.Generator) -> Iterator[None]:
    """Have random parameters in the block: those at the start may be zeros, which hide what a module remembers."""
    parameters = list(module.parameters())
    before = [each.detach().clone() for each in parameters]
    with torch.no_grad():
        for each in parameters:
            each.copy_(torch.tensor(generator.standard_normal(tuple(each.shape))))
        try:
            yield
        finally:
            for each, values in zip(parameters, before, strict=True):
                each.copy_(values)


def _episode(module: nn.Module, observations: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the outputs of an episode with these observations: float32 (timesteps, outputs)."""
    _reset(module)
    return np.array([_outputs(module, observation, shape).copy() for observation in observations])


def _observation_shape(module: nn.Module, size: int) -> tuple[int, ...]:
    return tuple(getattr(module, "observation_shape", (size,)))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute in one thread in the block, since the order of its sums depends on their number."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Have the global generators of Python, NumPy and torch begin at a seed; after the block they are as before."""
    with in_turn(), torch.random.fork_rng(devices=[]):
        before = random.getstate(), np.random.get_state()
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def _reset(module: nn.Module) -> None:
    for layer in module.modules():
        if isinstance(layer, Recurrent):
            layer.reset()
    reset = getattr(module, "reset", None)
    if callable(reset):
        reset()


def _outputs(module: nn.Module, observation: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Run the module on a copy of the observation that torch allocates, so that its alignment is always the same."""
    with _one_thread(), torch.inference_mode():
        values = module(torch.tensor(observation, dtype=torch.float32).reshape(shape))
    if not isinstance(values, torch.Tensor):
        raise TypeError(f"it returned a {type(values).__name__}, expected a tensor of its outputs")
    return np.ascontiguousarray(values.numpy(), np.float32).reshape(-1)


def _gathered(module: nn.Module) -> NDArray[np.float32]:
    """Make all parameters views of one new array, in ``module.parameters()`` order; return it: float32 (dim,)."""
    parameters = list(module.parameters())
    flat = torch.zeros(sum(parameter.numel() for parameter in parameters))
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.data = flat[start:stop].view(parameter.shape)
        start = stop
    theta: NDArray[np.float32] = flat.numpy()
    return theta


def _refusal(name: str, what: str) -> ConfigError:
    return ConfigError(f"network.module={name} {what}")
