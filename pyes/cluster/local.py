"""The local cluster: one node of worker processes on this machine.

On Linux the workers are forked from a *nursery*, a process that is itself forked as soon as the cluster is entered,
before the head imports torch. Elsewhere, and on request, the head spawns them.
"""

from collections.abc import Callable
from multiprocessing import connection
from typing import Self

from pyes.board import Board
from pyes.closing import Closing
from pyes.cluster.nursery import Nursery
from pyes.cluster.pipes import WAKE, open_pipe, receive, send
from pyes.cluster.supervisor import POLL_SECONDS, Site, StartMethod, Supervisor
from pyes.config import ClusterConfig
from pyes.errors import ClusterError
from pyes.messages import Batch, Plan, Results
from pyes.noise import NoiseTable, usable_cores
from pyes.rollout import Workload


class LocalCluster(Closing):
    """Worker processes on this machine; see `pyes.cluster.base.Cluster`."""

    def __init__(
        self,
        config: ClusterConfig,
        start_method: StartMethod,
        workload: Workload,
        log: Callable[[], None] | None = None,
    ) -> None:
        self.workers = usable_cores() if config.workers == "auto" else config.workers
        self.start_method = start_method
        self._config = config
        self._workload = workload
        self._log = log
        self._board: Board | None = None
        self._parent: Nursery | Supervisor | None = None  # of the workers

    def __enter__(self) -> Self:
        self._wakes = [open_pipe(self.start_method) for _ in range(self.workers)]
        self._done, self._done_writer = open_pipe(self.start_method)
        supervisor = Supervisor(
            self.start_method,
            self._workload,
            self._wakes,
            self._done_writer,
            episode_time_limit=self._config.episode_time_limit,
            attempts=self._config.attempts,
            log=self._log,
        )
        try:
            self._parent = Nursery(supervisor) if self.start_method == "fork" else supervisor
        except ClusterError:
            self._close_pipes()
            raise
        return self

    def start(self, plan: Plan, table: NoiseTable) -> None:
        """Start the workers; they make their environments while the head goes on."""
        assert self._parent is not None, "the cluster is entered first"
        self._board = Board(plan, self.workers)
        self._parent.start(Site(plan, self.workers, self._board.handle, table.handle, table.seed, table.dtype))

    def evaluate(self, batch: Batch) -> Results:
        """Evaluate a batch on all workers."""
        assert self._board is not None, "start comes before evaluate"
        self._board.open(batch)
        for _, writer in self._wakes:
            send(writer, WAKE)
        while self._board.remaining():
            self._wait()
        return self._board.results()

    def _wait(self) -> None:
        """Sleep until a worker or its parent has something to say."""
        assert self._board is not None
        assert self._parent is not None
        connection.wait([self._done, *self._parent.sentinels], POLL_SECONDS)
        self._parent.check()
        while self._done.poll():
            receive(self._done)
        if self._board.fatal:
            reasons = self._board.errors() or ["see train.log"]
            raise ClusterError(f"workers die as soon as they start: {reasons[0]}")

    def close(self) -> None:
        """End the workers and their parent, and give the shared memory back."""
        if self._parent is not None:
            self._parent.close()
            self._parent = None
            self._close_pipes()
        if self._board is not None:
            self._board.close()
            self._board = None

    def _close_pipes(self) -> None:
        for end in (self._done, self._done_writer, *(end for pipe in self._wakes for end in pipe)):
            end.close()
