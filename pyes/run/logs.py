"""The log of a run: what the head and its workers say, in order, in ``train.log``.

The standard library's queue handlers, over a channel that survives any death of a worker: each record is one datagram,
sent whole or not at all and under no lock. (A multiprocessing queue, and what is built on one, has a lock that a killed
writer keeps for ever, which silences everybody else.) One thread of the head writes the file.
"""

import logging
import logging.handlers
import multiprocessing
import pickle
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

_FORMAT = "%(asctime)s %(levelname)s %(processName)s %(name)s: %(message)s"
_LARGEST = 65_536  # bytes of a record; a longer text is cut


class _Datagrams:
    """A queue of log records over a pair of local datagram sockets, as the queue handlers want one."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def put_nowait(self, record: logging.LogRecord | None) -> None:
        """Send a record; None, the listener's sign to stop, too."""
        data = pickle.dumps(record)
        if record is not None and len(data) > _LARGEST:
            record.msg = record.message = f"{record.msg[: _LARGEST // 8]} ... (cut)"
            data = pickle.dumps(record)
        self._sender.send(data)

    def get(self, block: bool = True) -> Any:
        """Wait for the next record."""
        return pickle.loads(self._receiver.recv(2 * _LARGEST))

    def close(self) -> None:
        """Close both ends."""
        self._receiver.close()
        self._sender.close()


class _LogFile(logging.FileHandler):
    """A log that loses what a full disk does not take: a run does not end over its log."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Go on without the record."""

    def close(self) -> None:
        """Close the file, whatever is still to be written."""
        with suppress(OSError):
            super().close()


@contextmanager
def run_log(path: Path) -> Iterator[Callable[[], None]]:
    """Log into ``path`` while the block runs; yields what a new worker process must call first.

    Workers must be gone when the block ends.
    """
    writer = _LogFile(path, encoding="utf-8")
    writer.setFormatter(logging.Formatter(_FORMAT))
    with gathered(writer) as log:
        yield log


@contextmanager
def gathered(writer: logging.Handler) -> Iterator[Callable[[], None]]:
    """Bring what this process and its workers log to one handler, as `run_log` does to a file."""
    root = logging.getLogger()
    level = root.level
    # Windows has no local datagrams; its workers are spawned and share a queue.
    channel: Any = multiprocessing.get_context("spawn").Queue() if sys.platform == "win32" else _Datagrams()
    listener = logging.handlers.QueueListener(channel, writer)
    handler = logging.handlers.QueueHandler(channel)
    root.setLevel(min(level or logging.INFO, logging.INFO))
    root.addHandler(handler)
    listener.start()
    try:
        yield partial(_log_to, channel)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        listener.stop()
        channel.close()
        writer.close()


def _log_to(channel: Any) -> None:
    """Send this worker's records to the head, and nowhere else: a forked one has the head's handlers."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.handlers[:] = [logging.handlers.QueueHandler(channel)]
    logging.raiseExceptions = False  # what cannot be sent is lost with the head: nobody wants a traceback of that
