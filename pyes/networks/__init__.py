"""Networks: defined by torch, compiled to values, run by C.

    head      from network outputs to an action                 values
    program   the instructions of a compiled network            values
    named     the name of a network that torch runs             values
    spec      program or name, and head: what a worker is given values
    policy    spec + theta + statistics: what a run leaves      values and files
    recurrent torch's recurrent cells as layers with memory     torch
    images    torch layers for images, and virtual batch normalisation    torch
    modules   the networks as torch modules                     torch
    compiler  from a torch module to a program                  torch
    torch_network   modules of the user's own, run by torch     torch

Importing this package does not import torch; building a network does, and running one that is not compiled.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyes.networks.action import ActionHead
from pyes.networks.named import NamedModule
from pyes.networks.policy import Policy
from pyes.networks.program import ACTIVATIONS, Activation, Instruction, Op, Program
from pyes.networks.spec import PolicySpec, Runner

if TYPE_CHECKING:
    from pyes.config import NetworkConfig

__all__ = [
    "ACTIVATIONS",
    "ActionHead",
    "Activation",
    "Instruction",
    "NamedModule",
    "Op",
    "Policy",
    "PolicySpec",
    "Program",
    "Runner",
    "build",
]


def build(
    network: "NetworkConfig",
    observation_size: int,
    head: ActionHead,
    seed: int,
    observation_clip: float,
    shape: tuple[int, ...] = (),
) -> tuple[PolicySpec, NDArray[np.float32]]:
    """Make a network, compile it if C knows all of it, and draw the parameters that a run starts from.

    Parameters
    ----------
    network             the section `network` of a configuration
    observation_size    numbers in one observation of the task
    head                the task's action head; the network gets as many outputs as it takes
    seed                of the initial parameters
    observation_clip    largest absolute value of a normalised observation
    shape               of one observation, where the network takes images: (channels, height, width)

    Returns
    -------
    PolicySpec, float32 (dim,)    the policy as values, and theta; imports torch to make them

    Raises
    ------
    ConfigError    the network cannot be built or compiled
    """
    from pyes.networks.compiler import compile_module
    from pyes.networks.modules import build_module, initial_theta
    from pyes.networks.torch_network import program_or_name

    module = build_module(network, observation_size, head.outputs, shape)
    theta = initial_theta(network, observation_size, head.outputs, seed, shape)
    if network.module is None:
        return PolicySpec(compile_module(module), head, observation_clip), theta
    named = NamedModule(network.module, dict(network.module_kwargs), observation_size, head.outputs, len(theta))
    return PolicySpec(program_or_name(module, named), head, observation_clip), theta
