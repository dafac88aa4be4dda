"""One linear layer."""

from dataclasses import dataclass
from typing import Literal

from pyes.config.registry import NETWORKS
from pyes.networks.base import LayersConfig, Network
from pyes.networks.composer import Composer


@dataclass(frozen=True)
class LinearConfig(LayersConfig):
    """Settings of ``network=linear``."""

    name: Literal["linear"] = "linear"


@NETWORKS.register("linear")
class Linear(Network):
    """One linear layer."""

    Config = LinearConfig
    config: LinearConfig

    def compose(self, layers: Composer, outputs: int) -> None:
        """Add the layer."""
        layers.linear(outputs, self.config.output_activation, bias=self.config.bias)
