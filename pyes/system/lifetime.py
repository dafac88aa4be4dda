"""How things end: what is opened is closed, and Ctrl-C or SIGTERM ends a run after its generation.

A first signal asks a run to end after the generation that is being evaluated; a second one ends it at once.
"""

import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self


class Closing:
    """Mixin: leaving the ``with`` block closes the object, whatever happened in it."""

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


#: Environment variable of a head that another command started: that command, as the user would give it again.
COMMAND = "PYES_COMMAND"


class Interrupt:
    """Whether the user wants the run to end.

    A plain flag and no `threading.Event`: a handler may run while the main thread holds an event's lock, and would then
    wait for it for ever.
    """

    def __init__(self) -> None:
        self.requested = False

    def __bool__(self) -> bool:
        return self.requested


class Stop(KeyboardInterrupt):
    """The user's Ctrl-C or SIGTERM, as told from a KeyboardInterrupt that other code raises."""


def stop(number: int, frame: object) -> None:
    """Raise `Stop`: a handler of signals."""
    raise Stop


def how_to_go_on(run: Path) -> str:
    """Return the command that goes on with a run."""
    return f"{os.environ.get(COMMAND, 'pyes train')} {shlex.quote(f'resume={run}')}"


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Turn the first Ctrl-C or SIGTERM into a request; a second one raises `Stop`."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():  # only there can handlers be set
        yield interrupt
        return

    def handle(number: int, frame: object) -> None:
        if interrupt.requested:
            raise Stop
        interrupt.requested = True

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            with contextlib.suppress(TypeError):  # a handler that was not set from Python cannot be put back
                signal.signal(number, handler)
