"""Settings of the policy network."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pyes.config.section import JSON_MAPPING, AtLeastOne, Section, is_json, refusal
from pyes.system.text import literal


@dataclass(frozen=True)
class NetworkConfig(Section):
    """The policy network."""

    PATH = "network"

    name: Literal["linear", "mlp", "rnn", "gru", "lstm", "dqn", "torch"] = "linear"
    hidden: tuple[Annotated[int, AtLeastOne], ...] = ()  # mlp, rnn, gru, lstm, dqn: units of each hidden layer
    activation: Literal["identity", "tanh", "relu", "sigmoid", "elu", "leaky_relu", "silu", "gelu", "softsign"] = "tanh"
    output_activation: Literal["identity", "tanh"] = "identity"  # before the action is chosen
    bias: bool = True
    double_bias: bool = False  # rnn, gru, lstm: torch's two biases a gate instead of one
    init: Literal["torch", "zero"] = "torch"  # theta at the start: torch's own initialisation, or all zeros
    module: str | None = None  # torch: PACKAGE:CLASS, made as CLASS(observation_size, outputs, **module_kwargs)
    module_kwargs: dict[str, Any] = field(default_factory=dict)
    channels: tuple[Annotated[int, AtLeastOne], ...] = ()  # dqn: filters of each convolution ...
    kernels: tuple[Annotated[int, AtLeastOne], ...] = ()  # ... height and width of each ...
    strides: tuple[Annotated[int, AtLeastOne], ...] = ()  # ... and pixels that it moves by
    divisor: Annotated[int, AtLeastOne] = 1  # dqn: of the observation
    virtual_batch_norm: bool = False  # dqn: normalise all hidden layers by their statistics over a reference batch

    def check(self) -> None:
        """Refuse layers, activations, biases and modules that do not go with the name."""
        self._check_module()
        self._check_convolutions()
        if self.name in ("linear", "torch") and self.hidden:
            expected = f"[] with network.name={self.name} (or network.name=mlp)"
            raise refusal("network.hidden", self.hidden, expected)
        if self.name not in ("linear", "torch") and not self.hidden:
            raise refusal("network.hidden", [], f"at least one layer with network.name={self.name}, for example [64]")
        if self.name == "rnn" and self.activation not in ("tanh", "relu"):
            raise refusal("network.activation", self.activation, "'tanh' or 'relu' with network.name=rnn")
        if self.double_bias and not (self.bias and self.name in ("rnn", "gru", "lstm")):
            expected = "false without network.bias=true and network.name=rnn, gru or lstm"
            raise refusal("network.double_bias", True, expected)

    def _check_convolutions(self) -> None:
        """Refuse convolutions that are not wholly described, and what belongs to them elsewhere."""
        counts = [len(each) for each in (self.channels, self.kernels, self.strides)]
        if self.name == "dqn" and not 0 < counts[0] == counts[1] == counts[2]:
            expected = "as many kernels and strides, and at least one, with network.name=dqn"
            raise refusal("network.channels", self.channels, expected)
        for key in ("channels", "kernels", "strides", "divisor", "virtual_batch_norm"):
            value, default = getattr(self, key), getattr(NetworkConfig, key)
            if self.name != "dqn" and value != default:
                raise refusal(f"network.{key}", value, f"{literal(default)} without network.name=dqn")

    def _check_module(self) -> None:
        """Refuse a module without its name, and settings that a module decides by itself."""
        if self.name != "torch":
            for key, value in (("module", self.module), ("module_kwargs", self.module_kwargs)):
                if value:
                    raise refusal(f"network.{key}", value, "nothing without network.name=torch")
            return
        if not self.module:
            raise refusal("network.module", self.module, "PACKAGE:CLASS, for example 'my_networks:Convolution'")
        if not is_json(self.module_kwargs):
            raise refusal("network.module_kwargs", self.module_kwargs, JSON_MAPPING)
        if self.output_activation != "identity":
            raise refusal("network.output_activation", self.output_activation, "'identity' with network.name=torch")
        if not self.bias:
            raise refusal("network.bias", False, "true with network.name=torch: the module decides")
