"""Changing, for the length of a block, what belongs to all threads of this process.

Python's filters of warnings are restored by the thread that changed them, as are the global generators of random
numbers: two blocks that overlap would leave the change of the one that ends last in place for good. So blocks of pyes
wait for each other. There is one lock for all of them, since a block may be entered in another. Forks take it too, so
that a child has everything as it was. Blocks must be short, and must neither fork, since forks of other threads may
hold other locks while they wait for this one, nor run code of the user's, which may wait for another thread.
"""

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

_turn = threading.RLock()
_fork = threading.Lock()  # one fork of pyes at a time
_OF_FORKS = r"This process \(pid=\d+\) is multi-threaded, use of fork"


def _take_turn() -> None:
    _turn.acquire()


def _end_turn() -> None:
    _turn.release()


def _renew() -> None:
    """Begin anew in a child, which has no thread that would release these locks."""
    global _turn, _fork
    _turn, _fork = threading.RLock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take_turn, after_in_parent=_end_turn, after_in_child=_renew)


@contextmanager
def in_turn() -> Iterator[None]:
    """Wait until no other thread is in such a block, and keep others from entering one."""
    with _turn:
        yield


@contextmanager
def warnings_as(
    action: Literal["ignore", "error"], message: str = "", category: type[Warning] = Warning
) -> Iterator[None]:
    """Ignore warnings in the block, or raise them: those that begin with a pattern, and of a category."""
    with in_turn(), warnings.catch_warnings():
        warnings.filterwarnings(action, message, category)
        yield


@contextmanager
def fork_beside_threads() -> Iterator[None]:
    """Keep Python 3.12 and later from warning that the block forks beside other threads.

    For children that use no lock which a thread may hold. The block is not in turn, for the fork waits for that itself.
    """
    with _fork:
        with in_turn():
            warnings.filterwarnings("ignore", _OF_FORKS, DeprecationWarning)
            added = warnings.filters[0]
        try:
            yield
        finally:
            with in_turn(), suppress(ValueError):  # the caller's own code has taken it out
                warnings.filters.remove(added)  # type: ignore[attr-defined]
