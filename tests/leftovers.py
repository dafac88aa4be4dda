"""Finds what tests must not leave behind, on Linux: processes, shared blocks and memory files of this process group.

Knows /proc and /dev/shm, nothing of pytest. Invariant: what other test runs or processes hold is not reported, as long
as each is in its own process group.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pyes.node.process import state_of

_BLOCKS = Path("/dev/shm")


def processes() -> set[str]:
    """Return the processes of our process group, including orphans."""
    return {
        f"process {pid} ({command(pid)[:80]})"
        for pid, group in _groups()
        if group == os.getpgrp() and pid != os.getpid() and not _is_dead(pid) and not _tracks(pid)
    }


def shared_blocks() -> set[str]:
    """Return the named blocks that our process group, or no process at all, has mapped."""
    names = {str(_BLOCKS / name) for name in _names(_BLOCKS) if name.startswith(("psm_", "pyes"))}
    if not names:  # as nearly always: no need to read what every process has mapped
        return names
    groups: dict[str, set[int]] = {name: set() for name in names}
    for pid, group in _groups():
        for name in {line.split()[-1].decode(errors="replace") for line in _read(pid, "maps").splitlines()} & names:
            groups[name].add(group)
    return {name for name in names if not groups[name] or os.getpgrp() in groups[name]}


def memory_files() -> set[str]:
    """Return the memory files that this process has open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the listing's own descriptor
            continue
        if "memfd:pyes" in target:
            found.add(f"descriptor {descriptor} ({target})")
    return found


def with_variable(variable: str) -> list[int]:
    """Return the processes that were started with ``NAME=value`` in their environment, and those that they forked."""
    return [pid for pid, _ in _groups() if variable.encode() in _read(pid, "environ").split(b"\0") and not _tracks(pid)]


def command(pid: int) -> str:
    """Return the command line of a process; nothing if it has just ended."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _groups() -> Iterator[tuple[int, int]]:
    """Yield each process with its process group: by a system call, as reading it in /proc costs 30 times as much."""
    for name in filter(str.isdigit, _names(Path("/proc"))):
        with contextlib.suppress(OSError):  # it has just ended
            yield int(name), os.getpgid(int(name))


def _is_dead(pid: int) -> bool:
    """Whether it has ended, and only its parent has not asked yet."""
    return state_of(pid) in ("", "Z")


def _tracks(pid: int) -> bool:
    """Whether it is a tracker of multiprocessing or joblib: they stay for the life of their owner, then clean up."""
    return "tracker" in command(pid)


def _read(pid: int, file: str) -> bytes:
    """Return what /proc says of a process; nothing if it has just ended or is somebody else's."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
