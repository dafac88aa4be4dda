"""Whole files or none: how pyes puts a file on disk.

Owns the one way to replace a file; knows nothing of what is in it. Invariant: whoever opens the path, at any moment and
after any crash, finds either the old bytes or all of the new ones.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyes.errors import ConfigError


def write_file(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: written beside, flushed to disk, renamed.

    Raises
    ------
    ConfigError    the file cannot be written (missing folder, no permission, full disk)
    """
    with replacing(path) as beside:
        beside.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Lend a path in the same folder to write to; on leaving, what was written there replaces ``path``.

    The lent path has the suffix of ``path``. After an exception it is removed and ``path`` is as it was.

    Raises
    ------
    ConfigError    an OSError in the block or while replacing (missing folder, no permission, full disk)
    """
    if not path.parent.is_dir():
        # Seen now, not after the work whose result was to be written.
        raise ConfigError(f"cannot write {path}: there is no directory {path.parent}; make it or choose another place")
    # The process id keeps two writers of one path apart; the suffix stays last, since encoders read it.
    beside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield beside
        _flush(beside)
        os.replace(beside, path)
        _flush(path.parent)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; choose a place that can be written"
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Force a file's bytes, or a folder's entries, to disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder, and writes its entries by itself
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
