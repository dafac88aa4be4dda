"""The parent of a node's workers: starts them, replaces dead ones, ends hung and stopped ones.

Runs in the nursery if workers are forked, or in the owner if they are spawned. It handles the members of a dead worker
before it starts the replacement, so no member is lost or counted twice.
"""

import errno
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Literal

from pyes.episodes.rollout import Workload
from pyes.errors import ClusterError
from pyes.node.board import Board
from pyes.node.pipes import STOP, WAKE, send
from pyes.node.process import close, has_ended, holding_signals, kernel_memory_kills, state_of
from pyes.node.watch import OutOfMemory, Watch
from pyes.node.worker_process import Site, run_worker
from pyes.system.files import what_to_try
from pyes.system.repeats import repeated

logger = logging.getLogger(__name__)

StartMethod = Literal["fork", "spawn"]

POLL_SECONDS = 0.2  # interval of checks for hung and stopped workers
_DYING_SECONDS = 60.0  # maximum time for a killed process to end
_STOPPED_SECONDS = 3.0  # after which a stopped worker is replaced


class Supervisor:
    """Keeps a fixed number of workers alive.

    Parameters
    ----------
    start_method : "fork" or "spawn"
    workload : TaskConfig or function
        What to evaluate members on.
    wakes : pipes
        (reader, writer) per worker; the owner and the supervisor write, the worker reads.
    done : Connection
        Pipe on which the owner waits for the end of a batch.
    episode_time_limit : float
        Seconds after which a worker's episode counts as hung.
    attempts : int
        Number of dead workers after which a member is recorded as failed.
    log : callable
        Called first in a new worker, to set up logging.
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
        log: Callable[[], None] | None = None,
    ) -> None:
        self._context: Any = get_context(start_method)
        self._workload, self._wakes, self._done, self.log = workload, wakes, done, log
        self._episode_time_limit, self._attempts = episode_time_limit, attempts
        self._processes: list[Any] = []
        self._site: Site | None = None
        self._board: Board | None = None
        self._looked = 0.0
        self._episodes, self._stops = Watch(), Watch()
        self._any_ended = False  # a member, in any batch
        self._fruitless = 0  # successive deaths of workers without a member, while no member was finished
        self._busy = 0.0

    def start(self, site: Site) -> None:
        """Start all workers after those of a dead supervisor have ended."""
        self._site = site
        self._board = Board(site.plan, site.workers, site.board)
        self._out_of_memory = OutOfMemory(kernel_memory_kills())
        for slot in range(site.workers):
            self._take_over(slot)
        self._processes = [self._start_worker(slot) for slot in range(site.workers)]

    def _take_over(self, slot: int) -> None:
        """Wait until the kernel has killed the worker of a dead supervisor, and free its members."""
        assert self._board is not None
        deadline = time.monotonic() + _DYING_SECONDS  # after it, the process id must belong to another process
        while (pid := int(self._board.pids[slot])) and state_of(pid) not in ("", "Z", "X"):
            if time.monotonic() > deadline:
                break
            self._board.count_beat()
            time.sleep(0.002)
        self._board.recover(slot)

    def _start_worker(self, slot: int) -> Any:
        assert self._board is not None
        process = self._context.Process(
            target=run_worker,
            args=(slot, self._site, self._workload, self._wakes[slot][0], self._done, self.log, os.getpid()),
            name=f"worker-{slot}",
            # A daemon may not have children, which some environments need (a simulator's server).
            daemon=False,
        )
        try:
            with holding_signals(self._context.get_start_method()):
                process.start()
        except OSError as error:
            raise ClusterError(f"cannot start a worker: {error.strerror}; {what_to_try(error)}") from error
        self._board.count_beat()
        return process

    @property
    def sentinels(self) -> list[int]:
        """Handles that become ready when a worker dies."""
        return [process.sentinel for process in self._processes]

    @property
    def pids(self) -> set[int]:
        """The workers' processes."""
        return {process.pid for process in self._processes}

    def check(self) -> None:
        """Replace dead workers, end hung and stopped ones."""
        assert self._board is not None
        now = time.monotonic()
        ended: dict[int, tuple[str, bool]] = {}
        if now - self._looked >= POLL_SECONDS:
            self._looked = now
            self._board.count_beat()
            self._out_of_memory.look(now, kernel_memory_kills())
            ended = self._end_the_late(now)
        for slot, process in enumerate(self._processes):
            if has_ended(process) and not self._board.fatal:
                self._replace(slot, process, *(ended.get(slot) or self._cause(slot, process.exitcode)))

    def _end_the_late(self, now: float) -> dict[int, tuple[str, bool]]:
        """Kill hung, stopped and unwanted workers; return the reason by slot, and whether a member may be the cause."""
        assert self._board is not None
        self._any_ended = self._any_ended or bool(self._board.busy.any())
        stopped = [process.pid if state_of(process.pid) == "T" else 0 for process in self._processes]
        running = [0.0 if stop else began for stop, began in zip(stopped, self._board.started.tolist(), strict=True)]
        ended = {}
        for slot, seconds in enumerate(self._stops.look(now, stopped)):
            if seconds > _STOPPED_SECONDS:
                ended[slot] = (f"stopped for more than {_STOPPED_SECONDS:g} s", False)
        for slot, seconds in enumerate(self._episodes.look(now, running)):
            if seconds > self._episode_time_limit * max(1, len(self._board.held(slot))):
                why = f"its episode ran for more than {self._episode_time_limit:g} s"
                if not self._any_ended and self._context.get_start_method() == "fork":
                    why += ", and none has ended yet: if its module starts threads, cluster.start_method=spawn helps"
                ended[slot] = (why, True)
        for slot in range(len(self._processes)):
            if self._board.is_unwanted(slot):
                ended[slot] = ("its batch is over", False)
        for slot in ended:
            self._processes[slot].kill()
            self._processes[slot].join()
        return ended

    def _cause(self, slot: int, code: int | None) -> tuple[str, bool]:
        """Return why a worker ended, and whether its member may be the cause."""
        assert self._board is not None
        if code is None:
            return "its exit code is lost: this program ignores SIGCHLD, or handles it", True
        if sys.platform != "win32" and code == -signal.SIGKILL:
            # Killed by a user, unless the kernel did it because memory ran out.
            if self._out_of_memory.look(time.monotonic(), kernel_memory_kills()):
                return "killed: out of memory", True
            return "killed from outside", False
        if code == errno.ENOMEM:
            return "MemoryError", True
        if code == errno.EMFILE and not self._board.held(slot):  # while it began: later, an environment's own code
            return f"{os.strerror(code)}; {what_to_try(OSError(code, ''))}", False
        if code < 0:
            return f"killed by signal {-code} ({signal.strsignal(-code)})", True
        return f"exit code {code}", True

    def _replace(self, slot: int, process: Any, why: str, blamed: bool) -> None:
        assert self._board is not None
        members = self._board.recover(slot, self._attempts, why if blamed else "")
        # Only time spent on finished members is progress: other nodes may finish batches without these workers.
        busy = float(self._board.busy.sum())
        self._fruitless = self._fruitless + 1 if not members and busy == self._busy else 0
        self._busy = busy
        if self._fruitless > 10 + 3 * len(self._processes):
            if not self._board.errors():  # no worker has got so far
                self._board.report(slot, why)
            self._board.fatal = True
            send(self._done, WAKE)
            return
        holding = f"over {_listed(members)}" if members else "between members"
        logger.warning(
            "worker %d ended %s (%s): replaced", slot, holding, why, extra=repeated(f"a worker ended ({why})")
        )
        replacement = self._start_worker(slot)  # which may fail: the dead one is listed until then
        close(process)
        self._processes[slot] = replacement
        # A member may be free again, or the batch may have ended.
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
            if not has_ended(process):
                process.kill()
                process.join()
            close(process)
        self._processes = []
        if self._board is not None:
            self._board.close()


def _listed(members: list[int]) -> str:
    """Return members as text for a message."""
    return f"member{'s' * (len(members) > 1)} {', '.join(map(str, members))}"
