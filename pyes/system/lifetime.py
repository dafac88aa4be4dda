"""Closing of resources, and the end of a run by Ctrl-C or SIGTERM.

A first signal asks a run to end after the present generation; a second one stops it; a third one ends the process.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyes.system.text import quoted


class Closing:
    """Mixin: leaving the ``with`` block closes the object, also after an exception."""

    def close(self) -> None:
        """Release all resources; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


INTERRUPTED = 130  # exit status after Ctrl-C or SIGTERM

#: Environment variable of a head that another command started: the command with which the user starts it again.
COMMAND = "PYES_COMMAND"


class Interrupt:
    """Whether the user wants the run to end.

    A plain flag instead of a `threading.Event`: a signal handler may run while the main thread holds the event's lock,
    and would then wait for it forever.
    """

    def __init__(self) -> None:
        self.requested = False

    def __bool__(self) -> bool:
        return self.requested


#: That of the run in the main thread, if any.
_current = Interrupt()
#: Handlers of signals in processes that other code forks from this one; none: those of this process.
_of_children: Mapping[Any, Any] = {}
_masks = threading.local()


def deaf_to_ctrl_c(sigterm: Any = signal.SIG_DFL) -> Mapping[Any, Any]:
    """Return handlers for processes that environments fork: SIGTERM ends them, and the owner alone answers Ctrl-C."""
    return {signal.SIGTERM: sigterm, signal.SIGINT: lambda *_: None}


def give_to_children(handlers: Mapping[Any, Any]) -> None:
    """Set the handlers of signals in processes that other code forks, where this process has its own."""
    global _of_children
    _of_children = handlers


def _before_fork() -> None:
    _masks.before = None
    if _of_children:  # a SIGTERM that comes before the child has that handler would be lost
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    if _masks.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _in_child() -> None:
    global _current, _of_children
    if _of_children:
        for number, handler in _of_children.items():
            signal.signal(number, handler)
        _current, _of_children = Interrupt(), {}
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


class Stop(KeyboardInterrupt):
    """The user's Ctrl-C or SIGTERM, as told from a KeyboardInterrupt that other code raises."""


class Stopping:
    """Handler of the program's signals: the first raises `Stop`; the next one ends the process, as the first may hang.

    Python calls it between two steps of Python code: a call of C code that does not return is not interrupted.
    """

    def __init__(self) -> None:
        self._raised = False

    def __call__(self, number: int, frame: object) -> None:
        """Handle a signal."""
        if self._raised:
            _end_at_once()
        self._raised = True
        raise Stop


#: What Python does by itself: raise KeyboardInterrupt, or end at once.
_DEFAULTS = (signal.default_int_handler, signal.SIG_DFL)


def _end_at_once() -> None:
    """End the process, with what is shown so far and a visible cursor; the kernel ends the workers."""
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\x1b[?25h\n")
        os.write(2, b"pyes: ended at once\n")
    os._exit(INTERRUPTED)


@contextmanager
def raising_stop(*numbers: signal.Signals) -> Iterator[None]:
    """Have one `Stopping` handle these signals in the block, each where Python's default would."""
    if threading.current_thread() is not threading.main_thread():  # other threads cannot set handlers
        numbers = ()
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) in _DEFAULTS}
    stopping, outer = Stopping(), _of_children
    for number in before:
        signal.signal(number, stopping)
    if before:
        give_to_children(before)
    try:
        yield
    finally:
        give_to_children(outer)
        for number, handler in before.items():
            signal.signal(number, handler)


def how_to_go_on(run: Path) -> str:
    """Return the command that resumes a run."""
    return f"{os.environ.get(COMMAND, 'pyes train')} {quoted(f'resume={run}')}"


@contextmanager
def interruptible(answer: Callable[[], None] = lambda: None) -> Iterator[Interrupt]:
    """Turn the first Ctrl-C or SIGTERM into a request, which is answered; a second one raises `Stop`.

    A signal that is ignored, as Ctrl-C is in the background of a script, stays so. In the program, where `Stopping`
    handles Ctrl-C, a third one ends the process.

    Parameters
    ----------
    answer : callable
        Tells the user what becomes of the request (default: nothing). Called by the handler, whatever the main thread
        is doing.
    """
    global _current
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():  # other threads cannot set handlers
        yield interrupt
        return

    program = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: object) -> None:
        if interrupt.requested:
            (program if isinstance(program, Stopping) else Stopping())(number, frame)
        interrupt.requested = True
        answer()

    outer, _current = (_current, _of_children), interrupt
    sigterm = _of_children.get(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    if sigterm is not None:  # else it was not set from Python, and cannot be set from it
        give_to_children(deaf_to_ctrl_c(sigterm))
    heard = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in heard}
    try:
        yield interrupt
    finally:
        _current = outer[0]
        give_to_children(outer[1])
        for number, handler in previous.items():
            with contextlib.suppress(TypeError):  # a handler that was not set from Python cannot be restored
                signal.signal(number, handler)


def pause(seconds: float) -> None:
    """Wait where nothing else can be done; raises `Stop` once the user wants the run to end, as it would not soon."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if _current and threading.current_thread() is threading.main_thread():
            raise Stop
        time.sleep(min(left, 0.1))
