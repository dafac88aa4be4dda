"""The nursery: the process from which workers are forked.

Owns that process and its control pipe. The first nursery is forked early, while its owner has neither threads (but for
those that the modules of an environment start) nor torch. If it dies or hangs, it is replaced by one that may inherit
both. Knows nothing of batches. Invariant: no worker outlives its nursery (the kernel kills it), and a new nursery waits
for their end before it frees their members. On Linux nothing that a worker's environment has started outlives the
nursery, unless that is killed itself.
"""

import contextlib
import errno
import logging
import os
import signal
import sys
import time
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import Any

from pyes.errors import ClusterError
from pyes.node.board import Board
from pyes.node.process import close, has_ended, holding_signals, prepare
from pyes.node.supervisor import POLL_SECONDS, Supervisor
from pyes.node.watch import Watch
from pyes.node.worker_process import Site
from pyes.system.descendants import adopt, children, end_children, reap
from pyes.system.files import what_to_try
from pyes.system.lifetime import Closing
from pyes.system.process_wide import fork_beside_threads
from pyes.system.repeats import repeated
from pyes.system.user_code import signal_with_parent

logger = logging.getLogger(__name__)

_SILENT_SECONDS = 5.0  # after which a nursery that has not checked its workers (stopped or hung) is replaced
_SPIN_SECONDS = 0.02
_MOST_LOST = 20  # nurseries in a row without any progress
#: Errors of the system that a nursery's exit code tells the owner.
_TOLD = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Nursery(Closing):
    """A supervisor in its own process.

    Raises
    ------
    ClusterError
        No process can be started.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._site: Site | None = None
        self._board: Board | None = None
        self._watch = Watch()
        self._lost = 0
        self._progress = (0, 0)
        self._process: Any = None
        self._fork()

    def _fork(self) -> None:
        context = get_context("fork")
        try:
            self._control, control = context.Pipe()
        except OSError as error:
            raise _cannot_start(error) from error
        process = context.Process(
            target=_run, args=(self._supervisor, control, self._control, os.getpid()), name="nursery"
        )
        # It uses no lock that a thread of the owner may hold, but those of modules that one is importing just then.
        with holding_signals("fork"), fork_beside_threads(), control:
            try:
                process.start()
            except OSError as error:
                self._control.close()
                raise _cannot_start(error) from error
            self._process = process

    def start(self, site: Site) -> None:
        """Start the workers."""
        self._site = site
        self._board = Board(site.plan, site.workers, site.board)
        self._tell(site)

    def _tell(self, site: Site | None) -> None:
        with contextlib.suppress(OSError):  # it has died, which the next check handles
            self._control.send(site)

    @property
    def sentinels(self) -> list[int]:
        """Handles that become ready when the process dies."""
        return [self._process.sentinel]

    def check(self) -> None:
        """Replace the process if it has died, or has not checked its workers for some seconds.

        Raises
        ------
        ClusterError
            It has died repeatedly without any member being finished.
        """
        assert self._board is not None
        (silent,) = self._watch.look(time.monotonic(), [self._board.beat + 1])
        if silent > _SILENT_SECONDS:
            logger.warning("the parent of the workers has been silent for %g s: ended", _SILENT_SECONDS)
            self._process.kill()
            self._process.join()
        if has_ended(self._process):
            self._replace()

    def _replace(self) -> None:
        assert self._board is not None
        progress = (self._board.ticket, self._board.remaining())
        self._lost = self._lost + 1 if progress == self._progress else 1
        self._progress = progress
        if self._lost > _MOST_LOST:
            raise ClusterError(
                f"the parent of the workers died {self._lost} times and no member was finished: "
                f"{_cause(self._process.exitcode)}, and resume the run"
            )
        text = f"the parent of the workers ended (exit code {self._process.exitcode}): replaced"
        logger.warning(text, extra=repeated(text))
        self._control.close()
        close(self._process)
        self._process = None
        self._fork()
        self._tell(self._site)

    def close(self) -> None:
        """End the workers and their parent."""
        if self._process is not None:
            self._tell(None)
            self._control.close()
            self._process.join(5.0)
            if not has_ended(self._process):
                self._process.kill()  # the kernel ends the workers with it
                self._process.join()
            close(self._process)
            self._process = None
        if self._board is not None:
            self._board.close()
            self._board = None


def _cannot_start(error: OSError) -> ClusterError:
    return ClusterError(f"cannot start the parent of the workers: {error.strerror}; {what_to_try(error)}")


def _run(supervisor: Supervisor, control: Connection, owner_end: Connection, owner: int) -> None:
    """Fork the workers of one run, and keep them alive until the owner closes its end of the pipe or dies."""
    prepare(owner)
    adopt()
    if supervisor.log is not None:
        supervisor.log()
    owner_end.close()
    try:
        site: Site | None = control.recv()
    except EOFError:
        return
    if site is None:
        return
    orphans = Orphans()
    try:
        # From now on it does not end with the owner, but after it, once it has ended all that is below it. If it is
        # stopped when the owner dies, it goes on.
        signal_with_parent(signal.SIGCONT, owner)
        supervisor.start(site)
        while os.getppid() == owner:
            ready, workers = connection.wait([control, *supervisor.sentinels], POLL_SECONDS), supervisor.pids
            if control in ready:
                break
            supervisor.check()
            orphans.look(supervisor.pids)
            if ready and supervisor.pids == workers:  # one lives that has closed what its sentinel is about
                time.sleep(_SPIN_SECONDS)
        if os.getppid() == owner:
            supervisor.close()
    except Exception as error:  # such as too little memory: the owner tries again with another nursery
        logger.warning("the parent of the workers failed: %s: %s", type(error).__name__, error)
        cause = error.__cause__ or error
        sys.exit(cause.errno if isinstance(cause, OSError) and cause.errno in _TOLD else 1)
    finally:
        end_children()


def _cause(code: int | None) -> str:
    """Return why the process of an exit code ended, and what to try."""
    if code in _TOLD:
        return f"{os.strerror(code)}; {what_to_try(OSError(code, ''))}"
    return "see train.log for what ends it (is there enough memory?)"


class Orphans:
    """Processes that environments started and that this process was given when their parent ended.

    Those of a worker that has just ended are ended as well. Others have put themselves into the background: their
    worker is not known, so they are left until the end of the run.
    """

    def __init__(self) -> None:
        self._workers: set[int] = set()
        self._left: set[int] = set()  # of workers that live
        self._new: set[int] = set()  # came before the last call: perhaps of one that had ended just then

    def look(self, workers: set[int]) -> None:
        """End those that came lately if a worker has ended since the last call.

        Parameters
        ----------
        workers : set of int
            The workers' processes.
        """
        if self._workers <= workers:
            self._left |= self._new
        else:
            end_children(but=workers | self._left)
        found = reap(children() - workers)
        self._workers, self._left, self._new = workers, found & self._left, found - self._left
