"""Clusters: where members are evaluated. The results do not depend on which one it is."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from pyes.cluster.base import Abandoned, Cluster
from pyes.config import ClusterConfig, TaskConfig, refusal
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
    workload : TaskConfig or function    what members are evaluated on
    prepare : callable                   run first in every worker process (its logging)
    tell : callable                      shows the user a line about who comes and goes
    """
    if config.name in ("socket", "ray") and not isinstance(workload, TaskConfig):
        raise refusal("cluster.name", config.name, "'local' or 'inline' for a function, which cannot be sent")
    if config.name == "ray":
        from pyes.cluster.ray import ray_cluster

        return ray_cluster(config, tell)
    if config.name == "socket":
        from pyes.cluster.socket import SocketCluster

        return SocketCluster(config, tell)
    if config.name == "inline":
        from pyes.cluster.inline import InlineCluster

        return InlineCluster(workload)
    from pyes.cluster.local import LocalCluster

    return LocalCluster(config, workload, prepare)
