"""The pool: the worker processes of one machine.

On Linux the workers are forked from a *nursery*, a process that is itself forked as soon as the pool is entered, before
the owner imports torch. On other systems, and on request, the owner spawns them. Members can be offered and collected
all at once or in parts.
"""

import sys
from collections.abc import Callable
from multiprocessing import current_process
from multiprocessing.connection import Connection
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pyes.config import ClusterConfig, refusal
from pyes.episodes.batch import Batch, Plan, Results
from pyes.episodes.rollout import Workload
from pyes.errors import ClusterError
from pyes.node.board import Board
from pyes.node.nursery import Nursery
from pyes.node.pipes import WAKE, open_pipe, receive, send, wait
from pyes.node.supervisor import POLL_SECONDS, StartMethod, Supervisor
from pyes.node.worker_process import Site
from pyes.numerics.noise import NoiseTable
from pyes.system.lifetime import Closing
from pyes.system.limits import usable_cores

_MOST_WORKERS = 61 if sys.platform == "win32" else sys.maxsize  # beside their pipe and Ctrl-C, which make 63


class Pool(Closing):
    """Worker processes on this machine.

    Parameters
    ----------
    config : ClusterConfig
    workload : TaskConfig or function
        What to evaluate members on.
    log : callable
        Called first in every worker process, to set up logging.

    Attributes
    ----------
    workers : int
    done : Connection
        Becomes readable when a worker has no more work; `drain` empties it.

    Raises
    ------
    ClusterError
        This process may not start others.
    """

    def __init__(
        self,
        config: ClusterConfig,
        workload: Workload,
        log: Callable[[], None] | None = None,
    ) -> None:
        if current_process().daemon:
            raise ClusterError(
                f"{current_process().name} is a daemonic process, as those of multiprocessing.Pool are, and starts no "
                "workers; take those of concurrent.futures.ProcessPoolExecutor, or evaluate in this process: "
                "cluster.name=inline for pyes.train, workers=1 for pyes.maximize"
            )
        self.workers = min(usable_cores(), _MOST_WORKERS) if config.workers == "auto" else config.workers
        if self.workers > _MOST_WORKERS:
            expected = f"at most {_MOST_WORKERS}: this system waits for no more processes at once"
            raise refusal("cluster.workers", self.workers, expected)
        self.start_method = _start_method(config)
        self.done: Connection
        self._config = config
        self._workload = workload
        self._log = log
        self._board: Board | None = None
        self._parent: Nursery | Supervisor | None = None  # parent of the workers

    def __enter__(self) -> Self:
        self._wakes = [open_pipe() for _ in range(self.workers)]
        self.done, self._done_writer = open_pipe()
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
        """Start the workers, without waiting until they have made their environments."""
        assert self._parent is not None, "the pool is entered first"
        self._board = Board(plan, self.workers)
        self._parent.start(Site(plan, self.workers, self._board.handle, table.handle, table.seed, table.dtype))

    def open(self, batch: Batch, *, offered: bool) -> None:
        """Open a batch and offer all of its members or none; no member of the previous batch may be held."""
        assert self._board is not None, "start comes first"
        self._board.open(batch, offered=offered)
        if offered:
            self._wake()

    def set_bases(self, rows: NDArray[np.int64], bases: NDArray[np.float32]) -> None:
        """Write rows of the open batch's bases, float32 (n, dim), before their members are offered."""
        assert self._board is not None
        self._board.set_bases(rows, bases)

    def offer(self, begin: int, end: int) -> None:
        """Let the workers evaluate members begin .. end-1 of the open batch."""
        assert self._board is not None
        self._board.offer(begin, end)
        self._wake()

    def withdraw(self, begin: int, end: int) -> None:
        """Withdraw the unclaimed ones of members begin .. end-1."""
        assert self._board is not None
        self._board.withdraw(begin, end)

    def end_holders(self) -> None:
        """End and replace the workers that hold members of the open batch, whose results are not wanted."""
        assert self._board is not None
        self._board.end_holders()

    def collect(self) -> Results:
        """Return the results of the members finished since the last call."""
        assert self._board is not None
        return self._board.collect()

    def remaining(self) -> int:
        """Return the number of members of the open batch that are offered or held."""
        return 0 if self._board is None else self._board.remaining()

    def running(self) -> NDArray[np.int64]:
        """Return the members of the open batch that workers hold."""
        assert self._board is not None
        return self._board.running()

    def _wake(self) -> None:
        for _, writer in self._wakes:
            send(writer, WAKE)

    def wait(self) -> None:
        """Wait for a worker or its parent, at most `POLL_SECONDS`; then `check`.

        Raises
        ------
        ClusterError
            The workers are lost and cannot be replaced.
        """
        assert self._parent is not None
        wait([self.done, *self._parent.sentinels], POLL_SECONDS)
        self.check()

    def check(self) -> None:
        """Replace processes that have died.

        Raises
        ------
        ClusterError
            The workers are lost and cannot be replaced.
        """
        assert self._board is not None
        assert self._parent is not None
        self._parent.check()
        self.drain()
        if self._board.fatal:
            reasons = self._board.errors() or ["see train.log"]
            raise ClusterError(f"workers die as soon as they start: {reasons[0]}")

    def drain(self) -> None:
        """Empty `done`."""
        while self.done.poll():
            receive(self.done)

    def close(self) -> None:
        """End the workers and their parent, and release the shared memory."""
        if self._parent is not None:
            self._parent.close()
            self._parent = None
            self._close_pipes()
        if self._board is not None:
            self._board.close()
            self._board = None

    def _close_pipes(self) -> None:
        for end in (self.done, self._done_writer, *(end for pipe in self._wakes for end in pipe)):
            end.close()


def _start_method(config: ClusterConfig) -> StartMethod:
    """Return the configured start method; auto: fork on Linux, spawn elsewhere."""
    if config.start_method == "fork" and sys.platform != "linux":
        raise refusal("cluster.start_method", "fork", "spawn or auto: workers are forked on Linux alone")
    if config.start_method != "auto":
        return config.start_method
    return "fork" if sys.platform == "linux" else "spawn"
