"""Clusters: where members are evaluated. The results do not depend on which one it is."""

import sys
from collections.abc import Callable
from typing import Literal

from pyes.cluster.base import Cluster
from pyes.config import ClusterConfig
from pyes.rollout import Workload

__all__ = ["Cluster", "open_cluster"]


def open_cluster(config: ClusterConfig, workload: Workload, prepare: Callable[[], None] | None = None) -> Cluster:
    """Return the cluster that a configuration names; enter it before threads start and before torch is imported.

    Parameters
    ----------
    workload : TaskConfig or function    what members are evaluated on
    prepare : callable                   run first in every worker process (its logging)
    """
    if config.name == "inline":
        from pyes.cluster.inline import InlineCluster

        return InlineCluster(workload)
    from pyes.cluster.local import LocalCluster

    return LocalCluster(config, _start_method(config), workload, prepare)


def _start_method(config: ClusterConfig) -> Literal["fork", "spawn"]:
    """Return how workers are started: forked on Linux, spawned elsewhere, unless the configuration says."""
    if config.start_method != "auto":
        return config.start_method
    return "fork" if sys.platform == "linux" else "spawn"
