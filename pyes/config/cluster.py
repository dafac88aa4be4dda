"""Common settings of all clusters; each kind of cluster adds its own beside its class."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from pyes.config.registry import CLUSTERS
from pyes.config.section import AtLeastOne, NotNegative, Positive, Section, refusal
from pyes.errors import ConfigError
from pyes.system import addresses
from pyes.system.addresses import Address


@dataclass(frozen=True)
class ClusterConfig(Section):
    """Settings of the cluster that evaluates members; the results of a run do not depend on them."""

    PATH = "cluster"
    #: Whether this machine may have no workers, since other machines have some.
    may_be_idle: ClassVar[bool] = False
    #: Settings that a head's nodes take from it.
    SHARED: ClassVar[tuple[str, ...]] = ("start_method", "episode_time_limit", "attempts", "vector")

    name: str = "local"
    workers: Annotated[int, NotNegative] | Literal["auto"] = "auto"  # auto: one a core
    start_method: Literal["auto", "fork", "spawn"] = "auto"
    episode_time_limit: Annotated[float, Positive] = 300.0  # seconds; then its worker is replaced
    attempts: Annotated[int, AtLeastOne] = 3  # a member that cost this many workers is recorded as failed
    vector: Annotated[int, AtLeastOne] = 64  # members that a worker evaluates at once, with task.name=envpool
    metrics: int | str | None = None  # PORT or HOST:PORT at which the run's metrics are served; null: nowhere

    @classmethod
    def kind(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the settings' class of the named cluster."""
        if cls is not ClusterConfig:
            return cls
        return cast(type[Section], CLUSTERS.get(values.get("name", cls.name)).Config)

    def check(self) -> None:
        """Reject a cluster without workers."""
        if self.workers == 0 and not self.may_be_idle:
            raise refusal("cluster.workers", 0, f"an integer >= 1, or 'auto', with cluster.name={self.name}")
        _ = self.metrics_address

    @property
    def metrics_address(self) -> Address | None:
        """Where metrics are served, on the loopback interface unless a host is named."""
        if self.metrics is None:
            return None
        text = f"{self.metrics}"
        try:
            return addresses.parse(f"tcp://{f'127.0.0.1:{text}' if text.isdecimal() else text}")
        except ConfigError:
            expected = "PORT or HOST:PORT, for example 9095 or 0.0.0.0:9095, or null"
            raise refusal("cluster.metrics", self.metrics, expected) from None
