"""The local cluster: one node of worker processes on this machine.

On Linux the workers are forked from a *nursery*, a process that is itself forked as soon as the cluster is entered,
before the head imports torch. Elsewhere, and on request, the head spawns them.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from pyes.board import Board
from pyes.cluster.supervisor import (
    WAKE,
    Site,
    StartMethod,
    Supervisor,
    die_with_parent,
    leave_signals_to_the_head,
    receive,
    send,
    wait_any,
)
from pyes.config import ClusterConfig
from pyes.errors import ClusterError
from pyes.messages import Batch, Plan, Results
from pyes.noise import NoiseTable, usable_cores
from pyes.rollout import Workload

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2  # how often hung workers are looked for


class LocalCluster:
    """Worker processes on this machine; see `pyes.cluster.base.Cluster`."""

    def __init__(
        self,
        config: ClusterConfig,
        start_method: StartMethod,
        workload: Workload,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.workers = usable_cores() if config.workers == "auto" else config.workers
        self.start_method = start_method
        self._config = config
        self._workload = workload
        self._prepare = prepare
        self._board: Board | None = None
        self._nursery: Any = None
        self._supervisor: Supervisor | None = None

    def __enter__(self) -> Self:
        self._wakes = [get_context(self.start_method).Pipe(duplex=False) for _ in range(self.workers)]
        self._done, done = get_context(self.start_method).Pipe(duplex=False)
        supervisor = Supervisor(
            self.start_method,
            self._workload,
            self._wakes,
            done,
            episode_time_limit=self._config.episode_time_limit,
            attempts=self._config.attempts,
            prepare=self._prepare,
        )
        if self.start_method == "fork":
            context = get_context("fork")
            self._control, control = context.Pipe()
            self._nursery = context.Process(
                target=_run_nursery, args=(supervisor, control, self._control, os.getpid()), name="nursery"
            )
            self._nursery.start()
            control.close()
        else:
            self._supervisor = supervisor
        return self

    def start(self, plan: Plan, table: NoiseTable) -> None:
        """Start the workers; they make their environments while the head goes on."""
        self._board = Board(plan, self.workers)
        site = Site(plan, self.workers, self._board.handle, table.handle, table.seed, table.dtype)
        if self._supervisor is not None:
            self._supervisor.start(site)
        else:
            self._control.send(site)

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
        """Sleep until a worker or the supervisor has something to say."""
        assert self._board is not None
        watched = [self._nursery.sentinel] if self._supervisor is None else self._supervisor.sentinels
        wait_any([self._done, *watched], _POLL_SECONDS)
        if self._supervisor is not None:
            self._supervisor.check()
        elif self._nursery.exitcode is not None:
            raise ClusterError("the parent of the workers was killed; run again, or resume the run")
        while self._done.poll():
            receive(self._done)
        if self._board.fatal:
            reasons = self._board.errors() or ["see train.log"]
            raise ClusterError(f"workers die as soon as they start: {reasons[0]}")

    def close(self) -> None:
        """End the workers and their parent, and give the shared memory back."""
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None
        if self._nursery is not None:
            with contextlib.suppress(OSError):  # it may be dead
                self._control.send(None)
            self._control.close()
            self._nursery.join(5.0)
            if self._nursery.exitcode is None:
                self._nursery.kill()  # the kernel ends the workers with it
                self._nursery.join()
            self._nursery.close()
            self._nursery = None
        for reader, writer in self._wakes:
            reader.close()
            writer.close()
        self._done.close()
        if self._board is not None:
            self._board.close()
            self._board = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _run_nursery(supervisor: Supervisor, control: Connection, head_end: Connection, head: int) -> None:
    """Fork the workers of one run, and keep them alive until the head closes its end of the pipe or dies."""
    leave_signals_to_the_head()
    die_with_parent(head)
    head_end.close()
    try:
        site: Site | None = control.recv()
    except EOFError:
        return
    if site is None:
        return
    supervisor.start(site)
    while control not in wait_any([control, *supervisor.sentinels], _POLL_SECONDS):
        supervisor.check()
    supervisor.close()
