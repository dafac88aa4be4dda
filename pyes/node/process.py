"""Initialises the processes of a node, and reads their state from the kernel.

Owns their signals, their end with their parent, their standard output and their global random numbers. Knows nothing
of members or boards.
"""

import contextlib
import io
import os
import random
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

import numpy as np

from pyes.system.lifetime import deaf_to_ctrl_c, give_to_children
from pyes.system.user_code import signal_with_parent

_LEFT_TO_THE_HEAD = (signal.SIGINT, signal.SIGTERM)
_THREADS = 17  # index of the number of threads among the fields of /proc/PID/stat that begin with the state


@contextmanager
def holding_signals(start_method: str) -> Iterator[None]:
    """Block Ctrl-C and SIGTERM while a process is started, so that the child can install its handlers first."""
    if sys.platform == "win32":
        yield
        return
    if start_method != "fork":
        # Else the start of the first process would start it, which unblocks the signals.
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_THE_HEAD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def draw_apart() -> None:
    """Let this process draw other numbers from Python's and NumPy's global generators than its siblings.

    Forked processes begin with one state of these, and what draws from them would draw the same everywhere.
    """
    random.seed()
    np.random.seed()


def prepare(parent: int) -> None:
    """Initialise this process, which ``parent`` has just started."""
    _leave_signals_to_the_owner()
    die_with(parent)
    _leave_output_to_the_owner()


def _leave_signals_to_the_owner() -> None:
    """Do nothing on Ctrl-C and SIGTERM, which the whole process group may receive: the owner handles them.

    SIG_IGN would be inherited by programs that an environment starts; a handler is not. The end of a child is heard of
    whatever the owner's program does with it: ignored, or waited for by its own handler.
    """
    for number in _LEFT_TO_THE_HEAD:
        signal.signal(number, lambda *_: None)
    give_to_children(deaf_to_ctrl_c())
    signal.set_wakeup_fd(-1)  # which would tell an event loop of the owner's
    if sys.platform != "win32":
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _LEFT_TO_THE_HEAD)


def has_ended(process: Any) -> bool:
    """Whether a child has ended: one of multiprocessing, also if its exit code is lost.

    It stays None where the program ignores SIGCHLD, or has waited for the child by a handler of its own.
    """
    if process.exitcode is not None or sys.platform == "win32":  # where signal 0 is Ctrl-C
        return process.exitcode is not None
    try:
        os.kill(process.pid, 0)
    except OSError:  # there is none, or it is another user's by now
        return True
    return False


def close(process: Any) -> None:
    """Release what a child that has ended leaves, also if its exit code is lost."""
    if process.exitcode is None:
        process._popen.returncode = 0  # else it counts as one that runs
    process.close()


def die_with(parent: int) -> None:
    """Let the kernel end this process when its parent dies (Linux only; elsewhere a closed pipe ends it)."""
    if sys.platform == "linux":
        if not signal_with_parent(signal.SIGKILL, parent):  # it died before the call above
            os._exit(1)


def _leave_output_to_the_owner() -> None:
    """Redirect standard output to standard error, and drop what cannot be written.

    So an environment that prints neither waits for a full pipe nor fails because of a broken one.
    """
    try:
        output = _never_waiting(2) if sys.__stderr__ is not None else os.open(os.devnull, os.O_WRONLY)
    except OSError:  # closed meanwhile
        output = os.open(os.devnull, os.O_WRONLY)
    for descriptor, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
        if stream is not None:  # otherwise it was closed when Python started, and may be another file now
            os.dup2(output, descriptor)
    sys.stdout, sys.stderr = _stream(output), _stream(output)


def _never_waiting(descriptor: int) -> int:
    """Return a non-blocking descriptor of the same pipe or terminal, without changing it for other processes.

    Files do not block; sockets cannot be opened again and are duplicated.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        with contextlib.suppress(OSError, AttributeError):
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    return os.dup(descriptor)


class _Lossy(io.FileIO):
    """A descriptor that drops what it cannot write."""

    def write(self, data: object) -> int:
        try:
            written = super().write(data)  # type: ignore[arg-type]
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written  # type: ignore[arg-type]


def _stream(descriptor: int) -> io.TextIOWrapper:
    raw = _Lossy(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


def state_of(pid: int) -> str:
    """Return the kernel's letter for the state of a process (T: stopped, Z: dead); empty without it (Linux).

    The letter is that of the first thread. While that one is dead and others of the process end, which keep its
    connections and files open, the process counts as running (R).
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as line:
            fields = line.read().rpartition(b") ")[2].split()
    except OSError:
        return ""
    state, threads = (fields[0].decode(), int(fields[_THREADS])) if fields else ("", 0)
    return "R" if state in ("Z", "X") and threads > 1 else state


def kernel_memory_kills() -> int | None:
    """Return how many processes the kernel has killed because memory ran out; None if unknown."""
    with contextlib.suppress(OSError), open("/proc/vmstat", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None
