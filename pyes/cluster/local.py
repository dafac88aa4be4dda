"""The local cluster: worker processes of this machine."""

from collections.abc import Callable
from typing import Self

from pyes.cluster.base import Cluster
from pyes.config import ClusterConfig
from pyes.config.registry import CLUSTERS
from pyes.episodes.batch import Batch, Plan, Results
from pyes.episodes.rollout import Workload
from pyes.node.pool import Pool
from pyes.numerics.noise import NoiseTable
from pyes.run.state import RunState


@CLUSTERS.register("local")
class LocalCluster(Cluster):
    """One pool, which evaluates whole batches; see `pyes.cluster.base.Cluster`."""

    @classmethod
    def open(
        cls,
        config: ClusterConfig,
        workload: Workload,
        prepare: Callable[[], None] | None,
        tell: Callable[[str], None],
    ) -> "LocalCluster":
        """Return the cluster, to be entered."""
        return cls(config, workload, prepare)

    def __init__(self, config: ClusterConfig, workload: Workload, prepare: Callable[[], None] | None = None) -> None:
        self._pool = Pool(config, workload, prepare)
        self.workers = self._pool.workers

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def start(self, plan: Plan, table: NoiseTable, state: RunState | None = None) -> None:
        """Start the workers, without waiting until they have made their environments."""
        self._pool.start(plan, table)

    def evaluate(self, batch: Batch) -> Results:
        """Evaluate a batch on all workers."""
        self._pool.open(batch, offered=True)
        while left := self._pool.remaining():
            self.watch(left)
            self._pool.wait()
        return self._pool.collect()

    def close(self) -> None:
        """End the workers, and free the shared memory."""
        self._pool.close()
