"""The inline cluster: one worker in this process, for debugging and for learning how it works."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from pyes.cluster.base import Cluster
from pyes.config import ClusterConfig, TaskConfig
from pyes.config.registry import CLUSTERS
from pyes.episodes.batch import Batch, Plan, Results
from pyes.episodes.rollout import Workload
from pyes.node.board import Board
from pyes.node.worker import BaseWorker, Result
from pyes.node.worker_process import open_worker
from pyes.numerics.noise import NoiseTable
from pyes.run.state import RunState
from pyes.system.user_code import witnessed


class _WatchedBoard(Board):
    """A board that tells how many members are left whenever one is done: nobody else looks at it meanwhile."""

    watch: Callable[[int], None]

    def finish(self, worker: int, member: int, result: Result) -> None:
        """Write a member's result and mark it done."""
        super().finish(worker, member, result)
        self.watch(self.remaining())


@CLUSTERS.register("inline")
class InlineCluster(Cluster):
    """One worker, in the head's own process; see `pyes.cluster.base.Cluster`."""

    workers = 1

    @classmethod
    def open(
        cls,
        config: ClusterConfig,
        workload: Workload,
        prepare: Callable[[], None] | None,
        tell: Callable[[str], None],
    ) -> "InlineCluster":
        """Return the cluster, to be entered."""
        return cls(workload)

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._board: _WatchedBoard | None = None
        self._worker: BaseWorker[Any] | None = None
        self._witness = ExitStack()

    def start(self, plan: Plan, table: NoiseTable, state: RunState | None = None) -> None:
        """Make the environment."""
        self._board = _WatchedBoard(plan, 1)
        self._board.watch = lambda left: self.watch(left)  # as it is when a member is done
        title = self._workload.title if isinstance(self._workload, TaskConfig) else "the function"
        self._witness.enter_context(witnessed(f"while members of {title} were evaluated in it (cluster=inline)"))
        self._worker = open_worker(0, self._workload, plan, self._board, table.array)

    def evaluate(self, batch: Batch) -> Results:
        """Evaluate a batch in this process."""
        assert self._board is not None, "start comes before evaluate"
        assert self._worker is not None
        self._board.open(batch)
        self._worker.work()
        self.traceback = self._worker.traceback
        return self._board.collect()

    def close(self) -> None:
        """Close the environment."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        self._witness.close()
        if self._board is not None:
            self._board.close()
            self._board = None
