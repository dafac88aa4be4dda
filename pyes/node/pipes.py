"""The pipes through which the owner, the supervisor and the workers wake each other.

Owns the tokens: single bytes, so that a process that is killed while it writes leaves no partial message. Invariant:
writing never blocks.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

STOP = b"s"
WAKE = b"w"


def open_pipe() -> tuple[Connection, Connection]:
    """Return the (reader, writer) of a new pipe."""
    reader, writer = connection.Pipe(duplex=False)
    if sys.platform != "win32":
        os.set_blocking(writer.fileno(), False)
    return reader, writer


def send(pipe: Connection, token: bytes) -> None:
    """Write one token; if the pipe is full, its reader will wake up anyway."""
    if sys.platform == "win32":
        pipe.send_bytes(token)
    else:
        with contextlib.suppress(BlockingIOError):
            os.write(pipe.fileno(), token)


def wait(handles: Sequence[Any], seconds: float) -> list[Any]:
    """Return those that are ready; none after so many seconds or, on Windows, at a Ctrl-C, which the owner answers."""
    try:
        return connection.wait(handles, seconds)
    except InterruptedError:
        return []


def receive(pipe: Connection) -> bytes:
    """Wait for one token; return b"" after all writers have closed."""
    while sys.platform == "win32":
        with contextlib.suppress(InterruptedError):  # as in `wait`
            try:
                return pipe.recv_bytes()
            except EOFError:
                return b""
    return os.read(pipe.fileno(), 1)
