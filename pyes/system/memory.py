"""Blocks of memory that several processes of one machine share, and how much memory there is.

Owns the choice of backing: a ``memfd`` on Linux (which no size of the shared-memory mount limits, and which vanishes
with its last user, however that ends), ``multiprocessing.shared_memory`` elsewhere, and a mapped file as the last
resort. Knows nothing of what a block holds. A block belongs to the process that created it; others attach by its
handle and may not outlive it.
"""

import contextlib
import math
import mmap
import os
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError
from pyes.system.lifetime import Closing

if sys.platform == "linux":
    import fcntl

Kind = Literal["memfd", "shared_memory", "file"]


@dataclass(frozen=True)
class Handle:
    """What another process of this machine needs to attach to a block."""

    kind: Kind
    name: str
    size: int


def default_kind() -> Kind:
    """Return the backing that new blocks get on this machine."""
    # Some distributions of Python for Linux are built against a C library without memfd_create.
    return "memfd" if hasattr(os, "memfd_create") else "shared_memory"


class SharedBlock(Closing):
    """A block of zeroed bytes that other processes can attach to.

    Parameters
    ----------
    size : int          bytes, at least 1
    kind : str | None   backing; None takes the best one that this machine has

    Raises
    ------
    ConfigError    the machine's or container's memory limit leaves too little for it (the message has both figures)
    """

    def __init__(self, size: int, kind: Kind | None = None) -> None:
        check_fits(size)
        self.size = size
        self._owner = True
        self._memory: shared_memory.SharedMemory | None = None
        self._descriptor = -1
        if kind is None:
            kind = default_kind()
            if kind == "shared_memory" and sys.platform != "win32" and not _mount_has_room(size):
                kind = "file"
        self.kind: Kind = kind
        self._name = self._create()
        self._map = self._map_bytes(writable=True)

    def _create(self) -> str:
        if self.kind == "memfd":
            self._descriptor = os.memfd_create("pyes", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self._descriptor, self.size)
            # Another process of the same user opens the descriptor by this name; nothing lies in any directory.
            return f"/proc/{os.getpid()}/fd/{self._descriptor}"
        if self.kind == "shared_memory":
            self._memory = shared_memory.SharedMemory(create=True, size=self.size)
            return self._memory.name
        self._descriptor, path = tempfile.mkstemp(prefix="pyes-")
        _allocate(self._descriptor, self.size)
        return path

    @classmethod
    def attach(cls, handle: Handle, *, writable: bool) -> Self:
        """Attach to a block that another process owns (its memory is shared, not copied)."""
        block = cls.__new__(cls)
        block.size, block.kind, block._name, block._owner = handle.size, handle.kind, handle.name, False
        block._memory, block._descriptor = None, -1
        if handle.kind == "shared_memory":
            block._memory = shared_memory.SharedMemory(handle.name)
        else:
            block._descriptor = os.open(handle.name, os.O_RDWR if writable else os.O_RDONLY)
        try:
            block._map = block._map_bytes(writable=writable)
        except OSError:  # sealed, and asked to write
            os.close(block._descriptor)
            raise
        return block

    @property
    def handle(self) -> Handle:
        """The name under which other processes attach."""
        return Handle(self.kind, self._name, self.size)

    def _map_bytes(self, *, writable: bool) -> mmap.mmap | None:
        if self._memory is not None:
            return None
        return mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)

    def array(self, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
        """View a part of the block as an array, which keeps the memory mapped for as long as it lives."""
        buffer = self._memory.buf if self._memory is not None else self._map
        assert buffer is not None
        return np.frombuffer(buffer, dtype, math.prod(shape), offset).reshape(shape)

    def seal(self) -> None:
        """Make the block read-only for everyone, by the kernel's word where there is one (memfd).

        All writable views must be gone; afterwards ``array`` gives read-only views.
        """
        if self.kind != "memfd" or self._map is None:
            return
        self._map.close()
        fcntl.fcntl(
            self._descriptor,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
        )
        self._map = self._map_bytes(writable=False)

    def close(self) -> None:
        """Give the block back; the owner's close removes its name."""
        # A view that is still held somewhere keeps the map alive; it goes when that view does.
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
            elif self.kind == "file":
                Path(self._name).unlink(missing_ok=True)


def available() -> int:
    """Bytes that this process may still take: of the machine, or of its container's limit if that is less."""
    free = _machine_available()
    for limit_file, usage_file, statistics_file in _CGROUP_FILES:
        limit, usage = _read_int(limit_file), _read_int(usage_file)
        if limit is not None and usage is not None:
            # The page cache counts as used, but the kernel gives it back on demand.
            free = min(free, limit - usage + _inactive_file(statistics_file))
    return max(free, 0)


def check_fits(size: int) -> None:
    """Refuse with both figures, before anything is taken, a block that the memory limit cannot hold."""
    free = available()
    if size > free:
        raise ConfigError(
            f"a block of {size / 2**20:,.0f} MiB does not fit: {free / 2**20:,.0f} MiB of memory are available"
            " (machine or container limit); try a smaller noise table (noise.entries, noise.dtype=int8), population or"
            " network"
        )


_CGROUP_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


def _machine_available() -> int:
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2**40  # no portable figure (Windows): the allocation itself then fails with a clear error


def _read_int(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or "max": no limit
        return None


def _inactive_file(path: str) -> int:
    with contextlib.suppress(OSError), open(path, encoding="ascii") as lines:
        for line in lines:
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                return int(line.split()[1])
    return 0


def _mount_has_room(size: int) -> bool:
    """Whether the shared-memory mount can hold the block; writing past its end would kill with SIGBUS."""
    try:
        mount = os.statvfs("/dev/shm")
    except OSError:  # no such mount (macOS): the kernel's own limit answers at creation
        return True
    return mount.f_bavail * mount.f_frsize >= size


def _allocate(descriptor: int, size: int) -> None:
    """Reserve a file's blocks now, so that a full disk is an error here and not a SIGBUS later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
