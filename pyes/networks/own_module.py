"""A user's own torch module as the network; the only kind that needs torch."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.config.network import NetworkConfig
from pyes.config.registry import NETWORKS
from pyes.config.section import JSON_MAPPING, is_json, refusal
from pyes.errors import missing
from pyes.networks.base import Network
from pyes.networks.named import NamedModule
from pyes.networks.program import Program


@dataclass(frozen=True)
class OwnModuleConfig(NetworkConfig):
    """Settings of ``network=torch``."""

    packages: ClassVar[tuple[str, ...]] = ("torch",)

    name: Literal["torch"] = "torch"
    module: str | None = None  # MODULE:CLASS, made as CLASS(observation_size, outputs, **module_kwargs)
    module_kwargs: dict[str, Any] = field(default_factory=dict)
    init: Literal["module", "zero"] = "module"

    def check(self) -> None:
        """Reject a missing module, and arguments that are not JSON values."""
        if not self.module:
            raise refusal("network.module", self.module, "MODULE:CLASS, for example 'my_networks:Convolution'")
        if not is_json(self.module_kwargs):
            raise refusal("network.module_kwargs", self.module_kwargs, JSON_MAPPING)


@NETWORKS.register("torch")
class OwnModule(Network):
    """A torch module, compiled if C knows all its layers, otherwise run by torch."""

    Config = OwnModuleConfig
    config: OwnModuleConfig

    def build(
        self, observation_size: int, shape: tuple[int, ...], outputs: int, seed: int
    ) -> tuple[Program | NamedModule, NDArray[np.float32]]:
        """Make the module with torch's generator seeded by the run's seed; see `Network.build`."""
        try:
            from pyes.networks.torch import own
        except ImportError as error:
            raise missing("network.name=torch", "torch", "torch", error) from error
        assert self.config.module is not None
        program, theta = own.build(self.config.module, self.config.module_kwargs, observation_size, outputs, seed)
        return program, np.zeros_like(theta) if self.config.init == "zero" else theta

    def start(
        self, program: Program | NamedModule, first: NDArray[np.float32], seed: int, generation: int
    ) -> NDArray[np.float32]:
        """Return those of the first attempt: a module that is made again may draw others elsewhere."""
        return first
