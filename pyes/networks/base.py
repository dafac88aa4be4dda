"""The base class of kinds of networks: from settings to a program and initial parameters.

Owns the base class and the initial parameters of compiled networks. Invariant: a compiled network's program and initial
parameters depend only on its settings, the sizes and the seed, with equal bits on every machine.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.config.network import NetworkConfig
from pyes.config.section import AtLeastOne, refusal
from pyes.networks.composer import Composer
from pyes.networks.named import NamedModule
from pyes.networks.program import Op, Program
from pyes.numerics import streams
from pyes.system.limits import check_fits

_COPIES = 4  # of theta in any run: the center, its gradient, what the workers read, and a worker's own

ActivationName = Literal["identity", "tanh", "relu", "sigmoid", "elu", "leaky_relu", "silu", "gelu", "softsign"]


@dataclass(frozen=True)
class LayersConfig(NetworkConfig):
    """Settings of all networks made of known layers."""

    bias: bool = True
    output_activation: Literal["identity", "tanh"] = "identity"  # before the action is chosen
    init: Literal["uniform", "zero_output", "zero"] = "zero_output"


@dataclass(frozen=True)
class HiddenConfig(LayersConfig):
    """Settings of all networks with hidden layers."""

    hidden: tuple[Annotated[int, AtLeastOne], ...] = ()  # units of each hidden layer

    def check(self) -> None:
        """Reject a network without a hidden layer."""
        if not self.hidden:
            raise refusal("network.hidden", [], "at least one layer, for example [64]")


class Network:
    """A kind of policy network.

    A kind defines ``Config``, its settings, and `compose`, which adds its layers. If it is not a chain of known layers,
    it overrides `build` instead.

    Parameters
    ----------
    config : NetworkConfig
        An instance of the kind's ``Config``.
    """

    kind: ClassVar[str]
    Config: ClassVar[type[NetworkConfig]]

    def __init__(self, config: NetworkConfig) -> None:
        self.config = config

    def compose(self, layers: Composer, outputs: int) -> None:
        """Add the layers, from the observation to ``outputs`` numbers.

        Raises
        ------
        ConfigError
            The settings do not fit the observation.
        """
        raise NotImplementedError

    def build(
        self, observation_size: int, shape: tuple[int, ...], outputs: int, seed: int
    ) -> tuple[Program | NamedModule, NDArray[np.float32]]:
        """Return the network's program or name, and its initial parameters.

        Parameters
        ----------
        observation_size : int
            Numbers in one observation.
        shape : tuple of int
            Shape of one observation; for an image (channels, height, width).
        outputs : int
            Number of outputs.
        seed : int
            Seed of the run.

        Returns
        -------
        Program or NamedModule, float32 (dim,)

        Raises
        ------
        ConfigError
            The network cannot be built for these sizes.
        """
        layers = Composer(observation_size, shape)
        self.compose(layers, outputs)
        program = layers.program()
        parameters = program.dim * np.dtype(np.float32).itemsize
        what = f"network: {program.dim:,} parameters, held at least {_COPIES} times: a block"
        check_fits(_COPIES * parameters, what, "a smaller network")
        return program, start(program, seed, self.config.init)

    def start(
        self, program: Program | NamedModule, first: NDArray[np.float32], seed: int, generation: int
    ) -> NDArray[np.float32]:
        """Return the parameters with which another attempt begins: float32 (dim,).

        Parameters
        ----------
        program : Program or NamedModule
            Of this network.
        first : float32 (dim,)
            The parameters with which the run began.
        seed : int
            Seed of the run.
        generation : int
            The first one of the attempt.
        """
        assert isinstance(program, Program)
        return start(program, seed, self.config.init, generation)


def start(program: Program, seed: int, init: str, generation: int = 0) -> NDArray[np.float32]:
    """Return the parameters with which a run, or an attempt in a later generation, begins: float32 (dim,).

    By the rule that ``network.init`` names.
    """
    if init == "zero":
        return np.zeros(program.dim, np.float32)
    theta = initial_theta(program, seed, generation)
    if init == "zero_output":
        layers = [row for row in program.instructions if row.op != Op.SCALE]
        for output in layers[-1:]:
            for array in (output.weight(theta), output.bias(theta)):
                if array is not None:
                    array[:] = 0
    return theta


def initial_theta(program: Program, seed: int, generation: int = 0) -> NDArray[np.float32]:
    """Draw the initial parameters of a program from the default distributions of torch's layers.

    Weights and biases are uniform in [-b, b], with b = 1 / sqrt(inputs of one output) for linear and convolutional
    layers and b = 1 / sqrt(units) for recurrent ones. Normalised layers have scales of 1 and biases of 0. Parameter j
    depends on word j of the run's stream, by correctly rounded operations: equal bits on every machine.

    Parameters
    ----------
    program : Program
        A network whose layers share no parameters.
    seed : int
        Seed of the run.
    generation : int
        The one that begins with them; 0: the run's first.

    Returns
    -------
    float32 (dim,)
    """
    theta = streams.initial_parameters(seed, program.dim, generation)
    for row in program.instructions:
        if row.op == Op.SCALE:
            continue
        recurrent = Op(row.op).recurrent
        arrays = [row.weight(theta), row.bias(theta)]
        if recurrent:
            arrays += [row.recurrent_weight(theta), row.recurrent_bias(theta)]
        bound = np.float32(1 / math.sqrt(row.outputs if recurrent else row.columns))
        for array in arrays:
            if array is not None:
                array *= bound
        for array, value in ((row.scale(theta), 1), (row.bias(theta), 0)) if row.normalized else ():
            if array is not None:
                array[:] = value
    return theta
