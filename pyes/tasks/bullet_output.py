"""What PyBullet's C code prints: its build date, and lines such as ``argv[0]=`` for every world that is made.

Owns the way to discard it. Must not know which task runs the engine, nor import it.
"""

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

from pyes.system.process_wide import in_turn


def quiet_worlds() -> None:
    """Have PyBullet, if it has been imported, make worlds without a word."""
    engine: Any = sys.modules.get("pybullet")
    connect = getattr(engine, "connect", None)
    if connect is None or hasattr(connect, "__wrapped__"):
        return
    engine.connect = silenced(1)(functools.wraps(connect)(lambda *given, **named: connect(*given, **named)))


@contextlib.contextmanager
def silenced(descriptor: int) -> Iterator[None]:
    """Discard what PyBullet's C code prints on standard output (1) or standard error (2), which all threads share."""
    with in_turn():
        try:
            kept = os.dup(descriptor)
        except OSError:  # it is closed
            yield
            return
        _flush()
        sink = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(sink, descriptor)
            yield
            _flush()
        finally:
            os.dup2(kept, descriptor)
            os.close(sink)
            os.close(kept)


def _flush() -> None:
    """Flush C's own output buffers, which are held until the process ends if standard output is a pipe."""
    if sys.platform != "win32":
        ctypes.CDLL(None).fflush(None)
