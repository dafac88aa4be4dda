"""Common settings of all policy networks; each kind adds its own beside its class in `pyes.networks`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from pyes.config.registry import NETWORKS
from pyes.config.section import Section


@dataclass(frozen=True)
class NetworkConfig(Section):
    """Base of the settings of every kind of network; a kind narrows ``name`` to its own and adds its keys."""

    PATH = "network"
    #: Additional distributions whose versions affect its numbers.
    packages: ClassVar[tuple[str, ...]] = ()

    name: str = "mlp"
    #: Theta at the start: as torch's layers begin, the same with zeros in the last one, as a module of the user's own
    #: draws it, or all zeros.
    init: Literal["uniform", "zero_output", "module", "zero"] = "uniform"

    @classmethod
    def kind(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the settings' class of the named network (default: mlp)."""
        if cls is not NetworkConfig:
            return cls
        return cast(type[Section], NETWORKS.get(values.get("name", cls.name)).Config)

    @classmethod
    def where(cls, key: str) -> str:
        """Return which networks have a key that this one lacks."""
        return NETWORKS.with_key(key)


def default_network() -> NetworkConfig:
    """Return the settings of the default network."""
    return cast(NetworkConfig, NetworkConfig.kind({})())
