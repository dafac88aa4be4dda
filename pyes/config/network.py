"""Settings of the policy network: what all kinds share; each kind's own lie beside its class in `pyes.networks`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from pyes.config.registry import NETWORKS
from pyes.config.section import Section


@dataclass(frozen=True)
class NetworkConfig(Section):
    """Base of the settings of every kind of network; a kind narrows ``name`` to its own and adds its keys."""

    PATH = "network"
    #: Distributions, beyond those of every run, whose versions decide its numbers.
    packages: ClassVar[tuple[str, ...]] = ()

    name: str = "linear"
    #: Theta at the start: as torch's layers begin by default, as a module of the user's own draws it, or all zeros.
    init: Literal["uniform", "module", "zero"] = "uniform"

    @classmethod
    def kind(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the settings' class of the network that is named; of the linear one when none is."""
        if cls is not NetworkConfig:
            return cls
        return cast(type[Section], NETWORKS.get(values.get("name", cls.name)).Config)

    @classmethod
    def where(cls, key: str) -> str:
        """Return which networks have a key that this one lacks."""
        return NETWORKS.with_key(key)


def default_network() -> NetworkConfig:
    """Return the settings of the network that a run has unless another is named."""
    return cast(NetworkConfig, NetworkConfig.kind({})())
