"""The local cluster: the worker processes of this machine, and nobody else."""

from pyes.cluster.base import Cluster
from pyes.cluster.pool import Pool
from pyes.messages import Batch, Plan, Results
from pyes.noise import NoiseTable
from pyes.run_state import RunState


class LocalCluster(Pool, Cluster):
    """One pool, which evaluates whole batches; see `pyes.cluster.base.Cluster`."""

    def start(self, plan: Plan, table: NoiseTable, state: RunState | None = None) -> None:
        """Start the workers; they make their environments while the head goes on."""
        super().start(plan, table)

    def evaluate(self, batch: Batch) -> Results:
        """Evaluate a batch on all workers."""
        self.open(batch, offered=True)
        while self.remaining():
            self.wait()
        assert self._board is not None
        return self._board.results()
