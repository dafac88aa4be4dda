"""Fully connected layers with an activation after each but the last."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pyes.config.registry import NETWORKS
from pyes.config.section import AtLeastOne
from pyes.networks.base import ActivationName, HiddenConfig, Network
from pyes.networks.composer import Composer


@dataclass(frozen=True)
class MLPConfig(HiddenConfig):
    """Settings of ``network=mlp``."""

    name: Literal["mlp"] = "mlp"
    hidden: tuple[Annotated[int, AtLeastOne], ...] = (16,)
    activation: ActivationName = "tanh"


@NETWORKS.register("mlp")
class MLP(Network):
    """A multilayer perceptron."""

    Config = MLPConfig
    config: MLPConfig

    def compose(self, layers: Composer, outputs: int) -> None:
        """Add the hidden layers and the output."""
        config = self.config
        for units in config.hidden:
            layers.linear(units, config.activation, bias=config.bias)
        layers.linear(outputs, config.output_activation, bias=config.bias)
