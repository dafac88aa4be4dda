"""Clusters: where members are evaluated. The results do not depend on which one it is."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

from pyes.cluster.base import Abandoned, Cluster
from pyes.config import ClusterConfig
from pyes.config.registry import CLUSTERS
from pyes.episodes.rollout import Workload

__all__ = ["Abandoned", "Cluster", "open_cluster"]


def open_cluster(
    config: ClusterConfig,
    workload: Workload,
    prepare: Callable[[], None] | None = None,
    tell: Callable[[str], None] = print,
) -> AbstractContextManager[Cluster]:
    """Return the cluster that a configuration names; enter it before threads start and before torch is imported.

    Parameters
    ----------
    workload : TaskConfig or function
        What members are evaluated on.
    prepare : callable
        Run first in every worker process (its logging).
    tell : callable
        Shows the user a line about nodes that come and go.

    Raises
    ------
    ConfigError
        The cluster cannot evaluate such a workload, or a package that it needs is missing.
    """
    return cast(AbstractContextManager[Cluster], CLUSTERS.get(config.name).open(config, workload, prepare, tell))
