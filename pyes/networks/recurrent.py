"""Recurrent networks: recurrent layers, then a linear one."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pyes.config.registry import NETWORKS
from pyes.config.section import AtLeastOne, refusal
from pyes.networks.base import HiddenConfig, Network
from pyes.networks.composer import Composer
from pyes.networks.program import Op


@dataclass(frozen=True)
class RecurrentConfig(HiddenConfig):
    """Settings of all recurrent networks."""

    hidden: tuple[Annotated[int, AtLeastOne], ...] = (16,)
    double_bias: bool = False  # two biases per gate, as in torch, instead of one

    def check(self) -> None:
        """Reject ``double_bias`` without ``bias``."""
        super().check()
        if self.double_bias and not self.bias:
            raise refusal("network.double_bias", True, "false with network.bias=false")


class Recurrent(Network):
    """Recurrent layers of one type, and a linear output."""

    config: RecurrentConfig
    op: ClassVar[Op]
    activation: Literal["identity", "tanh", "relu"] = "identity"

    def compose(self, layers: Composer, outputs: int) -> None:
        """Add the recurrent layers and the output."""
        config = self.config
        for units in config.hidden:
            layers.recurrent(self.op, units, self.activation, biases=config.bias + config.double_bias)
        layers.linear(outputs, config.output_activation, bias=config.bias)


@dataclass(frozen=True)
class RNNConfig(RecurrentConfig):
    """Settings of ``network=rnn``."""

    name: Literal["rnn"] = "rnn"
    activation: Literal["tanh", "relu"] = "tanh"


@NETWORKS.register("rnn")
class RNN(Recurrent):
    """The recurrent network of Elman 1990."""

    Config = RNNConfig
    op = Op.RNN

    def __init__(self, config: RNNConfig) -> None:
        super().__init__(config)
        self.activation = config.activation


@dataclass(frozen=True)
class GRUConfig(RecurrentConfig):
    """Settings of ``network=gru``."""

    name: Literal["gru"] = "gru"


@NETWORKS.register("gru")
class GRU(Recurrent):
    """Gated recurrent units (Cho et al. 2014)."""

    Config = GRUConfig
    op = Op.GRU


@dataclass(frozen=True)
class LSTMConfig(RecurrentConfig):
    """Settings of ``network=lstm``."""

    name: Literal["lstm"] = "lstm"


@NETWORKS.register("lstm")
class LSTM(Recurrent):
    """Long short-term memory (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

    Config = LSTMConfig
    op = Op.LSTM
