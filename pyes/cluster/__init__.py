"""Clusters, which evaluate members. The results do not depend on the choice of the cluster."""

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
    """Return the configured cluster; enter it before threads start and before torch is imported.

    Parameters
    ----------
    config : ClusterConfig
    workload : TaskConfig or function
        What to evaluate members on.
    prepare : callable
        Called first in every worker process, to set up logging.
    tell : callable
        Shows the user a line about nodes that join or leave.

    Raises
    ------
    ConfigError
        The cluster cannot evaluate such a workload, or a package that it needs is missing.
    """
    return cast(AbstractContextManager[Cluster], CLUSTERS.get(config.name).open(config, workload, prepare, tell))
