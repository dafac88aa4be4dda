"""The log of a run: messages of the head and its workers, in order, in ``train.log``.

Uses the standard library's queue handlers over a channel that a dying worker cannot block: each record is one datagram,
sent completely or not at all, without a lock. A multiprocessing queue, and the package multiprocessing-logging that is
built on one, are not used because a worker that is killed while it writes keeps the queue's lock, after which no
process can log. The package also asserts the global start method "fork", and crashes under Hydra's joblib launcher.
One thread of the head writes the file; it is started after the workers' parent has been forked.
"""

import logging
import logging.handlers
import multiprocessing
import os
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyes.system.repeats import KIND, Repeats

_FORMAT = "%(asctime)s %(levelname)s %(processName)s %(name)s: %(message)s"
_LARGEST = 65_536  # bytes of a record; a longer text is cut
#: What is sent of a record. Others are a user's own, of any size and type, and no handler here reads them.
_SENT = ("name", "msg", "levelno", "levelname", "pathname", "lineno", "created", "msecs", "processName", KIND)


class _Open:
    """The logs that are open in this process: the first sets the level of what is logged, the last resets it.

    Handlers that the program has by then show of its messages what they showed before.
    """

    def __init__(self) -> None:
        self._logs: list[Log] = []
        self._level, self._lock = logging.NOTSET, threading.Lock()
        self._filtered: list[logging.Handler] = []
        self._filter = _AsBefore(self._level)

    def begin(self, log: "Log") -> None:
        """Add one that opens."""
        with self._lock:
            if not self._logs:
                root = logging.getLogger()
                self._level, self._filter = root.level, _AsBefore(root.level)
                known = (each for each in list(root.manager.loggerDict.values()) if isinstance(each, logging.Logger))
                others = (each for each in known if each.name != "pyes")  # whose handlers are for this
                self._filtered = [handler for each in (root, *others) for handler in each.handlers]
                for handler in self._filtered:
                    handler.addFilter(self._filter)
                root.setLevel(min(self._level, logging.INFO))
            self._logs.append(log)

    def end(self, log: "Log") -> None:
        """Remove one that closes."""
        with self._lock:
            self._logs.remove(log)
            if not self._logs:
                self._reset()

    def _reset(self) -> None:
        logging.getLogger().setLevel(self._level)
        for handler in self._filtered:
            handler.removeFilter(self._filter)

    def forget(self) -> None:
        """Close all in a child: what other code than pyes forks has a log of its own, and may outlive these."""
        self._lock = threading.Lock()
        if self._logs:
            for log in self._logs:
                logging.getLogger().removeHandler(log.handler)
            self._logs = []
            self._reset()


class _AsBefore(logging.Filter):
    """Passes what a level of the root logger lets through, which has become lower."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._root_level = level

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it would have been logged; a logger that has a level of its own does not ask for that of the root."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and not logger.level:
            logger = logger.parent
        own = logger is not None and logger.parent is not None
        return own or record.levelno >= self._root_level


_open = _Open()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open.forget)


class Log:
    """Sends the records of a process and its workers to one handler, which it closes with itself.

    Attributes
    ----------
    prepare : callable
        Must be called first in a new worker process; can be pickled.
    handler : logging.Handler
        That of this process.
    """

    def __init__(self, writer: logging.Handler) -> None:
        # Windows has no local datagrams; its workers are spawned and share a queue.
        channel: Any = multiprocessing.get_context("spawn").Queue() if sys.platform == "win32" else _Datagrams()
        self.prepare: Callable[[], None] = partial(_log_to, channel)
        self._channel, self._writer = channel, writer
        self.handler: logging.Handler = writer
        self._listener: logging.handlers.QueueListener | None = None
        self._limit = _Limit()
        writer.addFilter(self._limit)
        _open.begin(self)
        logging.getLogger().addHandler(writer)

    def gather(self) -> None:
        """Start the thread that receives the workers' records; call it after their parent has been forked."""
        root, handler = logging.getLogger(), logging.handlers.QueueHandler(self._channel)
        listener = logging.handlers.QueueListener(self._channel, self._writer)
        listener.start()
        self._listener = listener
        root.removeHandler(self.handler)
        root.addHandler(handler)
        self.handler = handler

    def close(self) -> None:
        """Write pending records and the counts of omitted ones; the workers must have ended."""
        logging.getLogger().removeHandler(self.handler)
        _open.end(self)
        if self._listener is not None:
            self._listener.stop()
        for record in self._limit.summary():
            self._writer.handle(record)
        self._writer.removeFilter(self._limit)
        self._channel.close()
        self._writer.close()


def run_log(path: Path) -> AbstractContextManager[Log]:
    """Log into ``path`` while the block runs."""
    writer = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    writer.setFormatter(logging.Formatter(_FORMAT))
    return closing(Log(writer))


class _Datagrams:
    """A queue of log records over a pair of local datagram sockets, with the methods that queue handlers call."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        if sys.platform == "darwin":  # has room for 2 KiB by default, and drops what does not fit
            self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LARGEST)
            self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * _LARGEST)

    def put_nowait(self, record: logging.LogRecord | None) -> None:
        """Send a record, or None, which stops the listener."""
        fields = None if record is None else {key: vars(record)[key] for key in _SENT if key in vars(record)}
        data = pickle.dumps(fields)
        if fields is not None and len(data) > _LARGEST:
            data = pickle.dumps(fields | {"msg": f"{fields['msg'][: _LARGEST // 8]} ... (cut)"})
        self._sender.send(data)

    def get(self, block: bool = True) -> Any:
        """Wait for the next record."""
        fields = pickle.loads(self._receiver.recv(2 * _LARGEST))
        return None if fields is None else logging.makeLogRecord(fields)

    def close(self) -> None:
        """Close both ends."""
        self._receiver.close()
        self._sender.close()


class _LogFile(logging.FileHandler):
    """A log file that drops records on a full disk: a run must not end because of its log."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the record."""

    def close(self) -> None:
        """Close the file, even if its last bytes cannot be written."""
        with suppress(OSError):
            super().close()


class _Limit(logging.Filter):
    """Passes the first records of a kind unchanged, and later only the first line of some."""

    def __init__(self) -> None:
        super().__init__()
        self._repeats = Repeats()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record; the text of one that represents others is changed."""
        kind = getattr(record, KIND, None)
        if kind is None:
            return True
        count = self._repeats.count(kind)
        if count is not None and count.total > self._repeats.first:
            record.msg = f"{record.getMessage().partition(chr(10))[0]}{count.remark}"
            record.args = record.exc_info = record.exc_text = None
        return count is not None

    def summary(self) -> Iterator[logging.LogRecord]:
        """Yield a record for each kind with omitted records."""
        for kind, count in self._repeats.left_out().items():
            text = f"{kind}: {count.omitted}"
            yield logging.makeLogRecord(
                {"name": __name__, "msg": text, "levelno": logging.WARNING, "levelname": "WARNING"}
            )


def _log_to(channel: Any) -> None:
    """Send this worker's records only to the head: a forked process has inherited the head's handlers."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.handlers[:] = [logging.handlers.QueueHandler(channel)]
    logging.raiseExceptions = False  # no tracebacks for records that cannot be sent any more
