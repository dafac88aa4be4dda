"""Locks on folders: one process writes, others are told which one does.

Owns the lock file and its errors. The kernel releases a lock however its process ends; without ``fcntl`` (Windows)
there are none.
"""

import os
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pyes.errors import RunDirectoryError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Words of the message that somebody else holds a lock.
HELD = "another process"

#: Lock files that this process holds. Forked children close them, since a lock must end with the process that took it.
_held: "weakref.WeakSet[IO[str]]" = weakref.WeakSet()
#: Whether a lock that is handed over has been taken, by its real path and the thread that may take it.
_handed: dict[tuple[str, int], bool] = {}


def _forget() -> None:
    for file in list(_held):
        file.close()
    _handed.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _taker(path: Path) -> tuple[str, int]:
    return os.path.realpath(path), threading.get_ident()


@contextmanager
def held(path: Path, name: str, *, hand_over: bool = False) -> Iterator[None]:
    """Hold the lock of a folder: a file in it, which then contains the id and the host of this process.

    Parameters
    ----------
    path : Path
        The file.
    name : str
        What the user calls the folder, for messages.
    hand_over : bool
        Whether this thread may take the lock once more in the block, for whom it is held.

    Raises
    ------
    RunDirectoryError
        Another process holds it, or it cannot be made.
    """
    folder, taker = path.parent, _taker(path)
    if _handed.get(taker) is False:
        _handed[taker] = True
        yield
        return
    try:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as error:
        raise RunDirectoryError(f"{name}: cannot write to {folder} ({error.strerror}); choose another one") from error
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                holder = f" ({file.read().strip()})" if os.fstat(file.fileno()).st_size else ""
                raise RunDirectoryError(
                    f"{name}: {HELD}{holder} is writing to {folder}; wait for it or choose another directory"
                ) from error
            except OSError as error:
                raise RunDirectoryError(
                    f"{name}: {path} cannot be locked ({error.strerror}); choose a directory on a file system with "
                    "locks"
                ) from error
        _held.add(file)
        with suppress(OSError):  # on a full disk the lock holds even without the name
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"{os.getpid()}@{socket.gethostname()}\n".encode())  # closing has nothing to flush
        if hand_over:
            _handed[taker] = False
        try:
            yield
        finally:
            _handed.pop(taker, None)


@contextmanager
def unheld(path: Path) -> Iterator[None]:
    """Keep others from taking the lock for a moment, if its file exists; a BlockingIOError if one has it.

    The lock is a shared one, for which the file need not be writable. One that is handed over to this thread will do.
    """
    if fcntl is None or _taker(path) in _handed or not path.exists():
        yield
        return
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
