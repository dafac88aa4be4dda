"""How this process treats warnings of Python for the length of a block.

`warnings.catch_warnings` changes and restores what belongs to all threads: two that overlap would leave the filter of
the one that ends last in place for good. So blocks of pyes wait for each other. They must be short, and must not run
code of the user's, which may wait for another thread.
"""

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

_turn = threading.RLock()


def _renew() -> None:
    """Forget, in a process that was forked, a thread that held the turn and does not exist here."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def warnings_as(
    action: Literal["ignore", "error"], message: str = "", category: type[Warning] = Warning
) -> Iterator[None]:
    """Ignore warnings in the block, or raise them: those that begin with a pattern, and of a category."""
    with _turn, warnings.catch_warnings():
        warnings.filterwarnings(action, message, category)
        yield
