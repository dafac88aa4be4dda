"""Policy networks: kinds that are compiled to programs for C, and users' own torch modules.

    linear, mlp, recurrent, dqn   kinds of networks, each with its settings; own_module is the kind ``torch``
    base      base class of the kinds, and the initial parameters
    composer  turns layers into a program
    program   the instructions of a compiled network
    named     the name of a network that torch runs
    action    turns network outputs into an action; action_part for actions with several parts
    observation  turns an observation of the environment into the network's input
    spec      program or name, and action decoder: what a worker needs to act
    batched   several observations or actions as one
    policy    spec, theta and statistics: the result of a run, and its files
    torch     a sub-package for everything that imports torch

Must not know tasks or how parameters are trained. Only the sub-package imports torch; it is imported only for the kind
``torch`` and for export to torch.
"""

import numpy as np
from numpy.typing import NDArray

from pyes.config.network import NetworkConfig
from pyes.config.registry import NETWORKS
from pyes.errors import ConfigError
from pyes.networks.action import ActionDecoder
from pyes.networks.action_part import ActionPart
from pyes.networks.named import NamedModule
from pyes.networks.observation import ObservationEncoder
from pyes.networks.policy import Policy
from pyes.networks.program import ACTIVATIONS, Activation, Instruction, Op, Program
from pyes.networks.spec import PolicySpec, Runner

__all__ = [
    "ACTIVATIONS",
    "ActionDecoder",
    "ActionPart",
    "Activation",
    "Instruction",
    "NamedModule",
    "ObservationEncoder",
    "Op",
    "Policy",
    "PolicySpec",
    "Program",
    "Runner",
    "another_start",
    "build",
]


def build(
    config: NetworkConfig,
    observation_size: int,
    decoder: ActionDecoder,
    seed: int,
    observation_clip: float,
    shape: tuple[int, ...] = (),
) -> tuple[PolicySpec, NDArray[np.float32]]:
    """Return the policy that a configuration describes, and its initial parameters.

    Parameters
    ----------
    config : NetworkConfig
        The section ``network`` of a configuration.
    observation_size : int
        Numbers in one observation of the task.
    decoder : ActionDecoder
        Decoder of the task's actions, which sets the number of outputs.
    seed : int
        Seed of the run, for the initial parameters.
    observation_clip : float
        Largest absolute value of a normalised observation.
    shape : tuple of int
        Shape of one observation if it is an image: (channels, height, width).

    Returns
    -------
    PolicySpec, float32 (dim,)

    Raises
    ------
    ConfigError
        The network cannot be built for this task, or needs torch, which is not installed.
    """
    network = NETWORKS.get(config.name)(config)
    try:
        program, theta = network.build(observation_size, shape or (observation_size,), decoder.outputs, seed)
        return PolicySpec(program, decoder, observation_clip), theta
    except ValueError as error:  # of a kind of network of the user's own: layers that do not fit each other
        raise ConfigError(f"network.name={config.name}: {error}; see compose of {type(network).__name__}") from error


def another_start(
    config: NetworkConfig, program: Program | NamedModule, first: NDArray[np.float32], seed: int, generation: int
) -> NDArray[np.float32]:
    """Return the parameters with which another attempt begins; see `pyes.networks.base.Network.start`."""
    theta: NDArray[np.float32] = NETWORKS.get(config.name)(config).start(program, first, seed, generation)
    return theta
