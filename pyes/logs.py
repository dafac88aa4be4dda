"""The log of a run: what the head and its workers say, in order, in ``train.log``.

Forked workers log through multiprocessing-logging, spawned ones through the standard library's queue handlers (that
package serves forked processes only). Either way one thread of the head writes the file.
"""

import logging
import logging.handlers
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

_FORMAT = "%(asctime)s %(levelname)s %(processName)s %(name)s: %(message)s"


@contextmanager
def run_log(path: Path, start_method: Literal["fork", "spawn"]) -> Iterator[Callable[[], None] | None]:
    """Log into ``path`` while the block runs; yields what a new worker process must call first, if anything.

    Workers must be gone when the block ends.
    """
    root = logging.getLogger()
    level = root.level
    writer = logging.FileHandler(path, encoding="utf-8")
    writer.setFormatter(logging.Formatter(_FORMAT))
    root.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        with _forked(root, writer) if start_method == "fork" else _spawned(root, writer) as prepare:
            yield prepare
    finally:
        root.setLevel(level)
        writer.close()


@contextmanager
def _forked(root: logging.Logger, writer: logging.Handler) -> Iterator[None]:
    from multiprocessing_logging import MultiProcessingHandler

    # The class, not its install function: that would wrap the handlers of other people too, and insists on the
    # interpreter's default start method, which says nothing about ours.
    handler = MultiProcessingHandler("train.log", sub_handler=writer)
    root.addHandler(handler)
    try:
        yield None
    finally:
        root.removeHandler(handler)
        handler.close()
        # A worker that was killed while it wrote keeps the queue's lock for ever; at exit, do not wait for that.
        handler.queue.cancel_join_thread()


@contextmanager
def _spawned(root: logging.Logger, writer: logging.Handler) -> Iterator[Callable[[], None]]:
    queue: Any = multiprocessing.get_context("spawn").Queue()
    listener = logging.handlers.QueueListener(queue, writer)
    handler = logging.handlers.QueueHandler(queue)
    root.addHandler(handler)
    listener.start()
    try:
        yield partial(_log_to, queue)
    finally:
        root.removeHandler(handler)
        listener.stop()
        queue.close()


def _log_to(queue: Any) -> None:
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(logging.handlers.QueueHandler(queue))
