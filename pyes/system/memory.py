"""Blocks of memory that several processes of one machine share.

Owns the choice of backing: a ``memfd`` on Linux (not limited by the size of the shared-memory mount, and freed when its
last user ends, even if killed), ``multiprocessing.shared_memory`` elsewhere, and a mapped file as the last resort.
Knows nothing of a block's content. A block belongs to the process that created it; other processes attach by its handle
and must end before the owner does.
"""

import contextlib
import errno
import math
import mmap
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError
from pyes.system.files import NO_MEMORY, what_to_try
from pyes.system.lifetime import Closing
from pyes.system.limits import check_fits

#: Errors that less memory does not help against.
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.EFBIG)
#: What takes less memory, of most of what is shared.
_SMALLER = "a smaller noise table (noise.entries, noise.dtype=int8), population or network"

if sys.platform == "linux":
    import fcntl

    _READ_ONLY = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_SEAL_ATTEMPTS, _SEAL_INTERVAL_S = 100, 0.1

Kind = Literal["memfd", "shared_memory", "file"]


@dataclass(frozen=True)
class Handle:
    """What another process of this machine needs to attach to a block."""

    kind: Kind
    name: str
    size: int


def default_kind() -> Kind:
    """Return the backing of new blocks on this machine."""
    # Some distributions of Python for Linux use a C library without memfd_create.
    return "memfd" if hasattr(os, "memfd_create") else "shared_memory"


class _Named(shared_memory.SharedMemory):
    """Shared memory with a name, of which arrays may be left when its process ends."""

    def __del__(self) -> None:
        with contextlib.suppress(BufferError):  # Python would show it with its traceback
            super().__del__()


class SharedBlock(Closing):
    """A block of zeroed bytes that other processes can attach to.

    Parameters
    ----------
    size : int
        Bytes, at least 1.
    kind : str or None
        Backing (default: the best one of this machine).
    what, smaller : str
        What it is for, and what takes less; for messages.

    Raises
    ------
    ConfigError
        There is too little memory (the message has both sizes).
    """

    def __init__(self, size: int, kind: Kind | None = None, *, what: str = "a block", smaller: str = _SMALLER) -> None:
        check_fits(size, what, smaller)
        self.size = size
        self._owner = True
        self._memory: shared_memory.SharedMemory | None = None
        self._descriptor = -1
        if kind is None:
            kind = default_kind()
            if kind == "shared_memory" and sys.platform != "win32" and not _mount_has_room(size):
                kind = "file"
        self.kind: Kind = kind
        self._name, self._map = "", None
        try:
            self._create()
            self._map = self._map_bytes(writable=True)
        except OSError as error:
            self.close()
            advice = what_to_try(error) if error.errno in _LIMITS else NO_MEMORY
            raise ConfigError(
                f"cannot make {what} of {size:,} bytes in shared memory ({error.strerror or error}); {advice}"
            ) from error

    def _create(self) -> None:
        if self.kind == "memfd":
            self._descriptor = os.memfd_create("pyes", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self._descriptor, self.size)
            # Other processes of the same user can open the descriptor by this name; it is in no directory.
            self._name = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        elif self.kind == "shared_memory":
            self._memory = _Named(create=True, size=self.size)
            self._name = self._memory.name
        else:
            self._descriptor, self._name = tempfile.mkstemp(prefix="pyes-")
            _allocate(self._descriptor, self.size)

    @classmethod
    def attach(cls, handle: Handle, *, writable: bool) -> Self:
        """Attach to a block that another process owns, without copying."""
        block = cls.__new__(cls)
        block.size, block.kind, block._name, block._owner = handle.size, handle.kind, handle.name, False
        block._memory, block._descriptor = None, -1
        if handle.kind == "shared_memory":
            block._memory = _Named(handle.name)
        else:
            block._descriptor = os.open(handle.name, os.O_RDWR if writable else os.O_RDONLY)
        try:
            block._map = block._map_bytes(writable=writable)
        except OSError:  # it is sealed, and write access was requested
            os.close(block._descriptor)
            raise
        return block

    @property
    def handle(self) -> Handle:
        """What another process needs to attach."""
        return Handle(self.kind, self._name, self.size)

    def _map_bytes(self, *, writable: bool) -> mmap.mmap | None:
        if self._memory is not None:
            return None
        return mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)

    def array(self, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
        """Return a part of the block as an array; the memory stays mapped while the array exists."""
        buffer = self._memory.buf if self._memory is not None else self._map
        assert buffer is not None
        return np.frombuffer(buffer, dtype, math.prod(shape), offset).reshape(shape)

    def seal(self) -> None:
        """Make a memfd read-only for all processes, enforced by the kernel; other kinds are unchanged.

        No writable view may exist; afterwards ``array`` returns read-only views.

        Raises
        ------
        OSError
            The memory stays in use: a process maps it writable, or the kernel holds its pages.
        """
        if self.kind != "memfd" or self._map is None:
            return
        self._map.close()
        for left in reversed(range(_SEAL_ATTEMPTS)):
            try:
                fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _READ_ONLY)
                break
            except OSError as error:
                # The kernel refuses while it holds a page, which it does for moments when it moves or reclaims memory.
                if error.errno != errno.EBUSY or not left:
                    raise
                time.sleep(_SEAL_INTERVAL_S)
        self._map = self._map_bytes(writable=False)

    def close(self) -> None:
        """Release the block; the owner also removes its name."""
        # The memory stays mapped while a view exists.
        with contextlib.suppress(BufferError):
            if self._map is not None:
                self._map.close()
            if self._memory is not None:
                self._memory.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._owner:
            self._owner = False
            if self._memory is not None:
                self._memory.unlink()
            elif self.kind == "file" and self._name:
                Path(self._name).unlink(missing_ok=True)


def _mount_has_room(size: int) -> bool:
    """Whether the shared-memory mount can hold the block; writing beyond its size would raise SIGBUS."""
    try:
        mount = os.statvfs("/dev/shm")
    except OSError:  # no such mount (macOS): creating the block then fails if there is no room
        return True
    return mount.f_bavail * mount.f_frsize >= size


def _allocate(descriptor: int, size: int) -> None:
    """Reserve a file's blocks, so that a full disk is an error now instead of a SIGBUS later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)
