"""The network of Mnih et al. 2015 for images: convolutions, then linear layers."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pyes.config.registry import NETWORKS
from pyes.config.section import AtLeastOne, refusal
from pyes.networks.base import ActivationName, HiddenConfig, Network
from pyes.networks.composer import Composer


@dataclass(frozen=True)
class DQNConfig(HiddenConfig):
    """Settings of ``network=dqn``."""

    name: Literal["dqn"] = "dqn"
    channels: tuple[Annotated[int, AtLeastOne], ...] = (32, 64, 64)  # filters of each convolution
    kernels: tuple[Annotated[int, AtLeastOne], ...] = (8, 4, 3)  # height and width of each convolution's kernel
    strides: tuple[Annotated[int, AtLeastOne], ...] = (4, 2, 1)  # stride of each convolution
    hidden: tuple[Annotated[int, AtLeastOne], ...] = (512,)
    activation: ActivationName = "relu"
    divisor: Annotated[int, AtLeastOne] = 255  # observations are divided by it
    virtual_batch_norm: bool = True  # normalise all hidden layers by their statistics over a reference batch

    def check(self) -> None:
        """Reject tuples of different lengths for the convolutions."""
        super().check()
        if not 0 < len(self.channels) == len(self.kernels) == len(self.strides):
            raise refusal("network.channels", self.channels, "at least one, and as many kernels and strides")


@NETWORKS.register("dqn")
class DQN(Network):
    """Convolutions and linear layers (Mnih et al. 2015), normalised as in Salimans et al. 2017, section 2.2."""

    Config = DQNConfig
    config: DQNConfig

    def compose(self, layers: Composer, outputs: int) -> None:
        """Add the scale, the convolutions, the hidden layers and the output."""
        config, activation = self.config, self.config.activation
        layers.scale(config.divisor)
        for filters, kernel, stride in zip(config.channels, config.kernels, config.strides, strict=True):
            layers.convolution(
                filters, kernel, stride, activation, bias=config.bias, normalized=config.virtual_batch_norm
            )
        for units in config.hidden:
            layers.linear(units, activation, bias=config.bias, normalized=config.virtual_batch_norm)
        layers.linear(outputs, config.output_activation, bias=config.bias)
