"""The local cluster: the worker processes of this machine, and nobody else."""

from pyes.cluster.pool import Pool
from pyes.messages import Batch, Results


class LocalCluster(Pool):
    """One pool, which evaluates whole batches; see `pyes.cluster.base.Cluster`."""

    def evaluate(self, batch: Batch) -> Results:
        """Evaluate a batch on all workers."""
        self.open(batch, offered=True)
        while self.remaining():
            self.wait()
        assert self._board is not None
        return self._board.results()
