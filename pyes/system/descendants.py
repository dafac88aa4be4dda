"""Processes below this one that nobody looks after: those that environments have started and left behind (Linux).

Owns how they are found and ended. Must not know who started them, nor why. Elsewhere than on Linux nothing is found.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

_PROC = Path("/proc")
_ENDING_SECONDS = 2.0  # that killed processes may take to end; a nursery that is silent for 5 s is replaced


def adopt() -> None:
    """Have the kernel give this process the children of each process below it that ends, instead of to init."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)


def children(pid: int | None = None) -> set[int]:
    """Return the processes whose parent is this process, or ``pid``; dead ones count until they are waited for."""
    found: set[int] = set()
    with contextlib.suppress(OSError):  # it has ended, or the kernel does not say
        for listed in (_PROC / str(pid or os.getpid()) / "task").glob("*/children"):
            found.update(map(int, listed.read_text().split()))
    return found


def reap(pids: Collection[int]) -> set[int]:
    """Return those that have not ended; the others, which must be children of this process, are waited for."""
    left = set()
    for pid in pids:
        with contextlib.suppress(ChildProcessError):  # somebody else has waited for it
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                left.add(pid)
    return left


def end_children(but: Collection[int] = ()) -> None:
    """Kill the children of this process, but for some, with all that is below them, and wait for their end.

    A process that put itself into the background is only found after `adopt`, as a child.
    """
    tried = set(but)
    while new := children() - tried:
        _end(new)
        tried |= new  # one that cannot be ended is not tried again


def _end(pids: Collection[int]) -> None:
    below, level = set(pids), set(pids)
    while level := {child for pid in level for child in children(pid)} - below:
        below |= level
    for pid in below:
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            os.kill(pid, signal.SIGKILL)
    left, deadline = set(pids), time.monotonic() + _ENDING_SECONDS
    while (left := reap(left)) and time.monotonic() < deadline:
        time.sleep(0.002)
