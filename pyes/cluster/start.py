"""How worker processes are started on this machine."""

import sys

from pyes.cluster.supervisor import StartMethod
from pyes.config import ClusterConfig


def start_method(config: ClusterConfig) -> StartMethod:
    """Return how workers are started: forked on Linux, spawned elsewhere, unless the configuration says."""
    if config.start_method != "auto":
        return config.start_method
    return "fork" if sys.platform == "linux" else "spawn"
