"""Atomic writes to disk.

Owns the way to replace a file and the way to append to one; knows nothing of their content. Invariant: at any time and
after any crash, a replaced file contains either the old bytes or all of the new ones.
"""

import errno
import itertools
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyes.errors import ConfigError, StorageError
from pyes.system.lifetime import Closing, pause

logger = logging.getLogger(__name__)

#: Seconds between attempts to append to a full disk, about four minutes in total.
_DELAYS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
#: Names of temporary files of `replacing`.
_BESIDE = re.compile(r"\..+\.pyes-(\d{1,9})(\.\w+)?")
_FULL = (errno.ENOSPC, errno.EDQUOT)
#: What is no mistake of the user's.
_FAILING = (*_FULL, errno.EIO, errno.EFBIG)


def write_file(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: write a temporary file in the same folder, sync it to disk, rename it.

    Raises
    ------
    ConfigError
        The file cannot be written (missing folder, no permission, full disk).
    """
    with replacing(path) as beside:
        beside.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; after the block, the file written there replaces ``path``.

    The temporary path has the suffix of ``path``. After an exception it is removed and ``path`` is unchanged. A link
    stays one: what it leads to is replaced.

    Raises
    ------
    ConfigError
        An OSError in the block or while replacing (missing folder, no permission, full disk), or ``path`` is a folder,
        a device, a pipe or a socket.
    """
    try:
        # Absolute: code of the user's may change the working folder in the block.
        path = Path(os.path.realpath(path)) if path.is_symlink() else path.absolute()
    except OSError as error:  # there is no working folder any more
        raise _refusal(path, error) from error
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: got a directory, expected a file; name a file in it")
    if path.exists() and not path.is_file():
        raise ConfigError(
            f"cannot write {path}: got a device, a pipe or a socket, expected a file; choose another place"
        )
    if not path.parent.is_dir():
        # Checked before the work whose result is written.
        raise ConfigError(f"cannot write {path}: there is no directory {path.parent}; make it or choose another place")
    # The process id separates two writers of one path; the suffix stays last, since encoders read it.
    beside = path.with_name(f".{path.stem}.pyes-{os.getpid()}{path.suffix}")
    try:
        beside.touch()  # that it cannot be made is known before the work, too
        beside.unlink()  # whoever makes it chooses who may read it
        yield beside
        _flush(beside)
        _put(beside, path)
        _flush(path.parent)
    except OSError as error:
        raise _refusal(path, error) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _put(beside: Path, path: Path) -> None:
    """Replace a file; on Windows after those who read it."""
    for _ in range(100 if os.name == "nt" else 0):
        try:
            os.replace(beside, path)
            return
        except PermissionError:
            time.sleep(0.02)
    os.replace(beside, path)


def _flush(path: Path) -> None:
    """Sync a file's bytes, or a folder's entries, to disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder, and syncs its entries by itself
    try:
        descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    except PermissionError:
        if path.is_dir():
            return  # whoever may write in a folder may not be allowed to open it
        raise
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not (path.is_dir() and error.errno in (errno.EINVAL, errno.EBADF)):  # some file systems cannot sync folders
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, if it is missing, and those above it, and sync their names to disk.

    Raises
    ------
    OSError
        It cannot be made.
    """
    missing = list(itertools.takewhile(lambda each: not each.exists(), (path, *path.parents)))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # a file, or a link to nothing
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from error
    for each in missing:
        _flush(each.parent)


def new_folder(path: str) -> str:
    """Make a folder where nothing is yet: the given one, or else PATH-2, PATH-3 and so on. Return its path."""
    parent = Path(path).parent
    make_folder(parent)
    for each in itertools.chain([path], (f"{path}-{number}" for number in itertools.count(2))):
        with suppress(FileExistsError):  # perhaps another process has just made it
            Path(each).mkdir()
            _flush(parent)
            return each
    raise AssertionError


def set_aside(path: Path) -> Path:
    """Rename a file that is to be written anew, so that none of it is lost; return its new path."""
    numbered = (path.with_name(f"{path.stem}.old-{number}{path.suffix}") for number in itertools.count(1))
    kept = next(each for each in numbered if not each.exists())
    path.rename(kept)
    return kept


def remove_leftovers(folder: Path, *, exclusive: bool) -> None:
    """Remove temporary files of killed processes from a folder.

    Where others may write in it (not ``exclusive``), those of living processes stay. A process that begins has none:
    one with its number, as the first one of every container has it, has ended.
    """
    for path in folder.glob(".*"):
        match = _BESIDE.fullmatch(path.name)
        if match and (exclusive or int(match[1]) == os.getpid() or not _lives(int(match[1]))):
            with suppress(OSError):
                path.unlink()


def _lives(pid: int) -> bool:
    if os.name == "nt":
        return True  # Windows has no harmless check, so the file stays
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


class AppendFile(Closing):
    """A file with atomic appends: each piece is written completely or not at all.

    On a full disk, writing is tried again for some minutes, or until Ctrl-C; any other failure is an immediate error.

    Parameters
    ----------
    path : Path
        Created if it is missing.
    size : int
        Number of existing bytes to keep; the rest is cut off.
    exclusive : bool
        Whether to refuse to append to what another process has written meanwhile.

    Raises
    ------
    ConfigError
        The file cannot be opened or cut.
    """

    def __init__(self, path: Path, size: int, *, exclusive: bool = False) -> None:
        self.path = path
        self.size = size
        self._exclusive = exclusive
        self._torn = False  # whether a part of a piece may stand after the first ``size`` bytes
        new = not path.exists()
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            raise _refusal(path, error) from error
        try:
            os.ftruncate(self._descriptor, size)
            if new:
                _flush(path.parent)
        except OSError as error:
            os.close(self._descriptor)
            raise _refusal(path, error) from error

    def append(self, data: bytes) -> None:
        """Append ``data``.

        Raises
        ------
        ConfigError
            It cannot be written, another process has written to it, or the disk stayed full for some minutes; the file
            is unchanged.
        """
        for delay in (*_DELAYS, None):
            try:
                self._write(data)
                return
            except OSError as error:
                if error.errno not in _FULL or delay is None:
                    raise _refusal(self.path, error) from error
                logger.error(
                    "%s: %s; make room: it is tried again in %g s, and nothing is lost",
                    self.path,
                    error.strerror,
                    delay,
                )
            pause(delay)

    def _write(self, data: bytes) -> None:
        if self._torn:
            self._cut()
        if self._exclusive and os.fstat(self._descriptor).st_size != self.size:
            raise ConfigError(f"{self.path} was changed by another process; one of the two has to end")
        rest = memoryview(data)
        try:
            self._torn = True
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except BaseException:  # such as a full disk, or Ctrl-C between two writes
            self._cut()
            raise
        self.size += len(data)
        self._torn = False

    def _cut(self) -> None:
        """Remove the part of a piece; some full disks refuse even that, so that it stays for the next attempt."""
        os.ftruncate(self._descriptor, self.size)
        self._torn = False

    def sync(self) -> None:
        """Sync appended data to disk.

        Raises
        ------
        ConfigError
            The sync failed; it is unknown which data are on disk.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _refusal(self.path, error) from error

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _refusal(path: Path, error: OSError) -> ConfigError:
    advice = what_to_try(error) or "choose a place that can be written"
    kind = StorageError if error.errno in _FAILING else ConfigError
    return kind(f"cannot write {path}: {error.strerror or error}; {advice}")


READABLE = "make it readable for this user"
NO_MEMORY = "try a smaller population, network or noise table, or fewer workers (cluster.workers)"


def what_to_try(error: OSError) -> str:
    """Return what helps against an error of the system; empty if only its place can tell."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "make room, or choose another place"
        case errno.EFBIG:
            return "raise the limit of the size of files (ulimit -f)"
        case errno.EMFILE | errno.ENFILE:
            return "raise the limit of open files (ulimit -n), or start fewer workers (cluster.workers)"
        case errno.EAGAIN:
            return "raise the limit of processes and threads (ulimit -u), or stop other ones"
        case errno.EISDIR:
            return "got a directory, expected a file; move it away or choose another place"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return "choose a place that can be written"
        case errno.ENOMEM:
            return NO_MEMORY
    return ""
