"""The parent of a node's workers: starts them, replaces the dead, ends the hung.

Runs in the nursery where workers are forked and in the head where they are spawned. It settles the member of a dead
worker on the board before it starts the replacement, so no member is lost and none is counted twice.
"""

import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import Any, Literal

from pyes import memory
from pyes.board import Board
from pyes.messages import Plan
from pyes.noise import DtypeName, NoiseTable
from pyes.rollout import Workload
from pyes.worker import Worker, serve

logger = logging.getLogger(__name__)

StartMethod = Literal["fork", "spawn"]

STOP = b"s"
WAKE = b"w"


@dataclass(frozen=True)
class Site:
    """Where a worker finds the shared memory, and the pipes through which it is woken and answers."""

    plan: Plan
    workers: int
    board: memory.Handle
    table: memory.Handle
    table_seed: int
    table_dtype: DtypeName


class Supervisor:
    """Keeps a fixed number of workers alive.

    Parameters
    ----------
    start_method : "fork" or "spawn"
    wakes : pipes      (reader, writer) per worker; the head and the supervisor write, the worker reads
    done : Connection  the pipe on which the head waits for the end of a batch
    episode_time_limit : float    seconds after which a worker's episode counts as hung
    attempts : int     workers that a member may cost before it is recorded as failed
    prepare : callable    run first in a new worker (its logging)
    """

    def __init__(
        self,
        start_method: StartMethod,
        workload: Workload,
        wakes: list[tuple[Connection, Connection]],
        done: Connection,
        *,
        episode_time_limit: float,
        attempts: int,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._context: Any = get_context(start_method)
        self._workload, self._wakes, self._done, self._prepare = workload, wakes, done, prepare
        self._episode_time_limit, self._attempts = episode_time_limit, attempts
        self._processes: list[Any] = []
        self._site: Site | None = None
        self._board: Board | None = None
        self._fruitless = 0  # workers in a row that died without a member in hand and without any progress
        self._progress = (0, 0)

    def start(self, site: Site) -> None:
        """Start all workers."""
        self._site = site
        self._board = Board(site.plan, site.workers, site.board)
        self._processes = [self._start_worker(slot) for slot in range(site.workers)]

    def _start_worker(self, slot: int) -> Any:
        process = self._context.Process(
            target=run_worker,
            args=(slot, self._site, self._workload, self._wakes[slot][0], self._done, self._prepare, os.getpid()),
            name=f"worker-{slot}",
            # A daemon may have no children of its own, but environments may want some (a simulator's server).
            daemon=False,
        )
        process.start()
        return process

    @property
    def sentinels(self) -> list[int]:
        """What becomes ready when a worker dies."""
        return [process.sentinel for process in self._processes]

    def check(self) -> None:
        """Replace the dead, end the hung."""
        assert self._board is not None
        for slot, process in enumerate(self._processes):
            started = self._board.started[slot]
            if started and time.monotonic() - started > self._episode_time_limit:
                logger.warning("worker %d: its episode ran for more than %g s: ended", slot, self._episode_time_limit)
                process.kill()
                process.join()
            if process.exitcode is not None and not self._board.fatal:
                self._replace(slot, process)

    def _replace(self, slot: int, process: Any) -> None:
        assert self._board is not None
        member = self._board.recover(slot, self._attempts)
        progress = (self._board.ticket, self._board.remaining())
        self._fruitless = self._fruitless + 1 if member < 0 and progress == self._progress else 0
        self._progress = progress
        if self._fruitless > 3 * len(self._processes):
            self._board.fatal = True
            send(self._done, WAKE)
            return
        holding = f"over member {member}" if member >= 0 else "between members"
        logger.warning("worker %d died %s (exit code %s): replaced", slot, holding, process.exitcode)
        process.close()
        self._processes[slot] = self._start_worker(slot)
        # A member may be free again, and the batch may have ended here.
        for _, writer in self._wakes:
            send(writer, WAKE)
        send(self._done, WAKE)

    def close(self) -> None:
        """End all workers: ask, then kill."""
        for _, writer in self._wakes:
            send(writer, STOP)
        deadline = time.monotonic() + 2.0
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()
        self._processes = []
        if self._board is not None:
            self._board.close()


def run_worker(
    slot: int,
    site: Site,
    workload: Workload,
    wake: Connection,
    done: Connection,
    prepare: Callable[[], None] | None,
    parent: int,
) -> None:
    """Run one worker process from start to end."""
    leave_signals_to_the_head()
    die_with_parent(parent)
    if prepare is not None:
        prepare()
    board = Board(site.plan, site.workers, site.board)
    table = NoiseTable.attach(site.table, site.table_seed, site.table_dtype)
    try:
        board.started[slot] = time.monotonic()  # making the environment may hang, too
        worker = Worker(slot, workload, site.plan, board, table.array)
        board.started[slot] = 0.0
        serve(worker, board, lambda: receive(wake) == WAKE, lambda: send(done, WAKE))
        worker.close()
    except Exception as error:
        board.report(slot, f"{type(error).__name__}: {error}")
        logger.exception("worker %d stopped", slot)
        sys.exit(1)


def leave_signals_to_the_head() -> None:
    """Do nothing on Ctrl-C and SIGTERM, which may reach the whole process group: the head decides.

    A handler, since an ignored signal would stay ignored in programs that an environment starts.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent dies, however that happens (Linux; elsewhere pipes tell)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)


def send(pipe: Connection, token: bytes) -> None:
    """Write one byte: whole or not at all, so that a process killed here leaves nothing half said."""
    if sys.platform == "win32":
        pipe.send_bytes(token)
    else:
        os.write(pipe.fileno(), token)


def receive(pipe: Connection) -> bytes:
    """Wait for one byte; empty when all writers are gone."""
    if sys.platform == "win32":
        return pipe.recv_bytes()
    return os.read(pipe.fileno(), 1)


def wait_any(objects: list[Any], timeout: float) -> list[Any]:
    """Wait until one of the connections or sentinels is ready, for at most ``timeout`` seconds."""
    return connection.wait(objects, timeout)
