"""The pipes through which the head, the supervisor and the workers wake each other.

Owns the tokens and how they are written: one byte, whole or not at all, so that a process that is
killed here leaves no partial message. Knows nothing of what the tokens are about. Invariant: writing never blocks.
"""

import contextlib
import os
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection

STOP = b"s"
WAKE = b"w"


def open_pipe(start_method: str) -> tuple[Connection, Connection]:
    """Return the (reader, writer) of a new pipe."""
    reader, writer = get_context(start_method).Pipe(duplex=False)
    if sys.platform != "win32":
        os.set_blocking(writer.fileno(), False)
    return reader, writer


def send(pipe: Connection, token: bytes) -> None:
    """Write one token; a pipe that is full holds enough to wake its reader."""
    if sys.platform == "win32":
        pipe.send_bytes(token)
    else:
        with contextlib.suppress(BlockingIOError):
            os.write(pipe.fileno(), token)


def receive(pipe: Connection) -> bytes:
    """Wait for one token; empty when all writers are gone."""
    if sys.platform == "win32":
        return pipe.recv_bytes()
    return os.read(pipe.fileno(), 1)
