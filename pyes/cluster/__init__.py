"""Clusters: where members are evaluated. The results do not depend on which one it is."""

from collections.abc import Callable

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
    from pyes.cluster.start import start_method

    return LocalCluster(config, start_method(config), workload, prepare)
