"""Code that is not ours: environments, functions and modules of the user's, which may raise anything and end anyhow.

Owns what becomes of what they raise, how long they may take to close, and who says so when they end the whole process.
Must not know what that code is for.
"""

import atexit
import contextlib
import ctypes
import functools
import inspect
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from pyes.errors import PyesError
from pyes.system.lifetime import Stop
from pyes.system.process_wide import fork_beside_threads
from pyes.system.repeats import repeated
from pyes.system.text import origin, reason

logger = logging.getLogger(__name__)

CLOSING_SECONDS = 10.0  # that an environment may take to close


def let_through(error: BaseException) -> None:
    """Raise an error again that is no mistake of the user's code: one of our own, or the user's Ctrl-C.

    For ``except BaseException``: code of the user's may raise KeyboardInterrupt and the like by itself, and a panic of
    a Rust extension is no Exception either.
    """
    if isinstance(error, PyesError) or is_ctrl_c(error):
        raise error


def is_ctrl_c(error: BaseException) -> bool:
    """Whether an error is a Ctrl-C or SIGTERM to this process, and not raised by code that it runs."""
    if isinstance(error, Stop):
        return True
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    # Python's own handler raises what code of the user's may raise, too; where it is in charge, that is Ctrl-C.
    if isinstance(error, KeyboardInterrupt) and signal.default_int_handler in handlers:
        return threading.current_thread() is threading.main_thread()
    # One of the program's own, such as that of asyncio, is known by its code.
    codes = [_code(handler) for handler in handlers if callable(handler)]
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code(handler: Any) -> CodeType | None:
    """Return the code that a call runs; None if it is not Python's."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = inspect.unwrap(handler)
    code: CodeType | None = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code


def is_of_the_call(error: BaseException) -> bool:
    """Whether a call from the present function failed as such, by its arguments or what it gave, and not within it."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def close_within(name: str, close: Callable[[], None]) -> None:
    """Close something of the user's; whatever it raises is logged and no more.

    After `CLOSING_SECONDS` it is left as it is, except outside of the main thread, on Windows, and in C code that does
    not come back.

    Parameters
    ----------
    name : str
        What it is.
    close : callable
    """
    try:
        with _at_most(CLOSING_SECONDS):
            close()
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        kind = f"closing {name} failed: {origin(error)}"
        logger.warning("closing %s failed: %s", name, reason(error), extra=repeated(kind))


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block once it has taken so long; the program's own alarm comes after the block."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"it has taken more than {seconds:g} s")

    before, began = signal.signal(signal.SIGALRM, end), time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        with contextlib.suppress(TypeError):  # a handler that was not set from Python cannot be put back
            signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3), interval)


def signal_with_parent(number: int, parent: int) -> bool:
    """Have the kernel send this process a signal when its parent dies (Linux); return whether that still lives."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, number)
    return os.getppid() == parent


def folder() -> str:
    """Return the working folder, which simulators change to find their files; empty if it is deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def way_back() -> Callable[[], None]:
    """Return what goes back to the present working folder."""
    before = folder()

    def go_back() -> None:
        with contextlib.suppress(OSError):
            os.chdir(before)

    return go_back


@contextmanager
def same_folder() -> Iterator[None]:
    """Return to the working folder after the block."""
    go_back = way_back()
    try:
        yield
    finally:
        go_back()


@contextmanager
def witnessed(what: str) -> Iterator[None]:
    """Say on standard error what this process was doing if it ends in the block, which nobody else could say (Linux).

    Code of the user's may call ``os._exit`` or crash. The witness is a process of its own, which ends with the block.
    The working folder is then as it was.

    Parameters
    ----------
    what : str
        "while it ...".
    """
    with same_folder(), _witness(what):
        yield


@contextmanager
def _witness(what: str) -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    parent = os.getpid()
    text = f"pyes: error: this process has ended {what}: by os._exit, a crash or a signal\n"
    data = text.encode(errors="backslashreplace")
    watched = {signal.SIGUSR1, signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)  # the witness is born with that, and so misses none
    witness = 0

    def ending() -> None:
        if os.getpid() == parent and witness:  # else this is a child that the user's code has forked
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # the user's code has waited for it
                os.kill(witness, signal.SIGKILL)
                os.waitpid(witness, 0)

    handler = signal.getsignal(signal.SIGCHLD)
    try:
        try:
            with fork_beside_threads():  # the witness calls nothing that a thread may hold
                witness = os.fork()
            if witness == 0:
                _wait_for_the_end_of(parent, data)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # which raises what a signal's handler raises
        atexit.register(ending)  # the main thread may end the program beside this one
        yield
    finally:
        # One who ignores the ends of children would keep all of pyes from waiting for its own.
        if os.getpid() == parent and handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, handler)
        atexit.unregister(ending)
        ending()


def _wait_for_the_end_of(parent: int, data: bytes) -> None:
    """Wait as a process that has none of the program's files and connections, which may be waited for to be closed."""
    try:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the one of this list
                if int(name) > 2:
                    os.close(int(name))
        if signal_with_parent(signal.SIGUSR1, parent):
            while os.getppid() == parent:  # the signal may come from elsewhere
                signal.sigwait({signal.SIGUSR1})
        if sys.__stderr__ is not None:  # else 2 is another file
            os.write(2, data)
    finally:
        os._exit(0)
