"""Changing, for the length of a block, what belongs to all threads of this process.

Python's filters of warnings, its global generators of random numbers and a silenced standard output are restored by the
thread that changed them: two blocks that overlap would leave the change of the one that ends last in place for good. So
blocks of pyes wait for each other. There is one lock for all of them, since a block may be entered in another. Forks
take it too, so that a child has everything as it was. Blocks must be short. They must not fork, since forks of other
threads may hold other locks while they wait for this one; and what they call, libraries for search and constructors of
torch modules, must not wait for another thread that enters one.
"""

import concurrent.futures.thread  # noqa: F401 - see below
import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

_turn = threading.RLock()
_ignored: Counter[str] = Counter()  # blocks of `ignoring` by pattern


def _take_turn() -> None:
    _turn.acquire()


def _end_turn() -> None:
    _turn.release()


def _renew() -> None:
    """Begin anew in a child, where the block that it was forked in may never end."""
    global _turn
    _turn = threading.RLock()
    _ignored.clear()


if hasattr(os, "register_at_fork"):  # after concurrent.futures, whose lock forks then take after this one
    os.register_at_fork(before=_take_turn, after_in_parent=_end_turn, after_in_child=_renew)


@contextmanager
def in_turn() -> Iterator[None]:
    """Wait until no other thread is in such a block, and keep others from entering one."""
    with _turn:
        yield


@contextmanager
def warnings_as(action: Literal["ignore", "error"], message: str = "") -> Iterator[None]:
    """Ignore warnings in the block, or raise them: those that begin with a pattern."""
    with in_turn(), warnings.catch_warnings():
        warnings.filterwarnings(action, message)
        yield


@contextmanager
def ignoring(message: str, category: type[Warning]) -> Iterator[None]:
    """Ignore warnings in all threads that begin with a pattern, which nobody else has a filter for.

    The block is not in turn: it may fork, take long and run any code.
    """
    with in_turn():
        _ignored[message] += 1
        warnings.filterwarnings("ignore", message, category)  # moves the one of another block to the front
        added = warnings.filters[0]
    try:
        yield
    finally:
        with in_turn():
            _ignored[message] -= 1
            if not _ignored[message] and added in warnings.filters:  # else other code has taken it out
                warnings.filters.remove(added)  # type: ignore[attr-defined]


def fork_beside_threads() -> AbstractContextManager[None]:
    """Keep Python 3.12 and later from warning that the block forks beside other threads.

    For children that use no lock which a thread may hold.
    """
    return ignoring(r"This process \(pid=\d+\) is multi-threaded, use of fork", DeprecationWarning)
