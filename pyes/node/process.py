"""What a process of a node does before anything else, and what the kernel says about one.

Owns its signals, its end with its parent and its standard output. Knows nothing of members or boards.
"""

import contextlib
import io
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyes.system.user_code import signal_with_parent

_LEFT_TO_THE_HEAD = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def holding_signals() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM while a process is started: it inherits that, and so meets none unprepared."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_THE_HEAD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def prepare(parent: int) -> None:
    """Make this process, just started by ``parent``, one of a node."""
    _leave_signals_to_the_head()
    die_with(parent)
    _leave_output_to_the_head()


def _leave_signals_to_the_head() -> None:
    """Do nothing on Ctrl-C and SIGTERM, which may reach the whole process group: the head decides.

    A handler, since an ignored signal would stay ignored in programs that an environment starts.
    """
    for number in _LEFT_TO_THE_HEAD:
        signal.signal(number, lambda *_: None)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _LEFT_TO_THE_HEAD)


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent dies, however that happens (Linux; elsewhere pipes tell)."""
    if sys.platform == "linux":
        if not signal_with_parent(signal.SIGKILL, parent):  # it died before that
            os._exit(1)


def _leave_output_to_the_head() -> None:
    """Send everything printed here to standard error, and drop it if that has no reader.

    An environment may print as it likes: a pipe that is full or broken neither makes it wait nor makes it fail.
    """
    try:
        output = _never_waiting(2) if sys.__stderr__ is not None else os.open(os.devnull, os.O_WRONLY)
    except OSError:  # closed since
        output = os.open(os.devnull, os.O_WRONLY)
    for descriptor, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
        if stream is not None:  # else it was closed when Python started, and may be anything by now
            os.dup2(output, descriptor)
    sys.stdout, sys.stderr = _stream(output), _stream(output)


def _never_waiting(descriptor: int) -> int:
    """Return a descriptor of the same pipe or terminal that never blocks; other users of it are not affected.

    Files do not block; sockets cannot be opened again and stay as they are.
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
    """Return the kernel's letter for what a process does (T: stopped, Z: dead); empty when it is gone (Linux)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as line:
            return line.read().rpartition(b") ")[2][:1].decode()
    except OSError:
        return ""


def kernel_memory_kills() -> int | None:
    """Return how many processes the kernel has killed for want of memory; None when it does not say."""
    with contextlib.suppress(OSError), open("/proc/vmstat", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None
