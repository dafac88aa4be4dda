"""How much memory and how many cores this process may use.

Owns the reading of all limits of Linux: free memory of the machine, CPU affinity, and the memory and CPU limits of the
process's own control group and of all groups above it (a container, a Slurm job, a systemd slice), version 1 and
version 2. The smallest limit counts. Other systems only report the machine's own figures.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from pyes.errors import ConfigError

_PROC = Path("/proc")


def available_memory(proc: Path = _PROC) -> int:
    """Return how many bytes this process may still allocate; ``proc`` is the mount point of procfs."""
    free = _machine_memory(proc)
    for group in _groups(proc, "memory"):
        usage = _number(group, "memory.current", "memory.usage_in_bytes")
        if usage is None:
            continue
        # The page cache counts as used, but the kernel gives it back on demand.
        lists = ("inactive_file", "active_file")
        reclaimable = sum(_statistic(group / "memory.stat", f"total_{each}", each) for each in lists)
        # Above memory.high, processes are slowed down until they free memory.
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            limit = _number(group, name)
            if limit is not None:
                free = min(free, limit - usage + reclaimable)
    return max(free, 0)


def check_fits(size: int, what: str, smaller: str) -> None:
    """Raise ConfigError for memory that is larger than what is available, before it is allocated.

    Parameters
    ----------
    size : int
        Bytes.
    what : str
        What they are for.
    smaller : str
        What to try instead.
    """
    free = available_memory()
    if size > free:
        raise ConfigError(
            f"{what} of {size / 2**20:,.0f} MiB does not fit: {free / 2**20:,.0f} MiB of memory are available"
            f" (machine or container limit); try {smaller}"
        )


def usable_cores(proc: Path = _PROC) -> int:
    """Return how many cores this process may use by its affinity and CPU quotas, at least 1.

    A quota of 1.5 cores counts as 2, so that all of it is used. ``proc`` is the mount point of procfs.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _groups(proc, "cpu"):
        quota, period = _cpu_quota(group)
        if quota > 0 and period > 0:
            cores = min(cores, -(-quota // period))
    return max(cores, 1)


def _machine_memory(proc: Path) -> int:
    with contextlib.suppress(OSError), open(proc / "meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2**40  # unknown (Windows): an allocation that is too large fails with a clear error


# Control groups


def _groups(proc: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups that may limit a resource, each followed by those above it.

    ``controller`` is "memory" or "cpu".
    """
    try:
        memberships = (proc / "self" / "cgroup").read_text().splitlines()
        mounts = (proc / "self" / "mountinfo").read_text().splitlines()
    except OSError:  # not Linux
        return
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        # Version 2 has one hierarchy, whose line names no controller.
        if not controllers or controller in controllers.split(","):
            yield from _upward(path, mounts, controller if controllers else "")


def _upward(path: str, mounts: list[str], controller: str) -> Iterator[Path]:
    """Yield the folder of a group and those above it, as far as they are mounted.

    Parameters
    ----------
    path : str
        Path of the group in its hierarchy.
    mounts : list of str
        Lines of mountinfo.
    controller : str
        Controller of the hierarchy; empty for version 2.
    """
    for mount in mounts:
        place, _, kind = mount.partition(" - ")
        kind, _, options = (kind.split() + [""] * 3)[:3]
        if kind != ("cgroup" if controller else "cgroup2") or (controller and controller not in options.split(",")):
            continue
        root, mounted = (_unescaped(field) for field in place.split()[3:5])
        folder = Path(mounted)
        # In a container, the group may be the root of the mount, or its path may be one outside of the container.
        with contextlib.suppress(ValueError):
            inside = Path(path).relative_to(root)
            folder = folder if ".." in inside.parts else folder / inside
        yield folder
        while folder != Path(mounted):
            folder = folder.parent
            yield folder
        return


def _unescaped(field: str) -> str:
    """Decode a field of mountinfo, in which spaces and other characters are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _cpu_quota(group: Path) -> tuple[int, int]:
    """Return the microseconds of CPU time that a group may use, and in which period; 0 without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return (0, 0) if quota == "max" else (int(quota), int(period))
    return _number(group, "cpu.cfs_quota_us") or 0, _number(group, "cpu.cfs_period_us") or 0


def _number(group: Path, *names: str) -> int | None:
    """Return the number in the first of several files that exists; None without one, or if it is "max"."""
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            return int((group / name).read_text())
    return None


def _statistic(path: Path, *names: str) -> int:
    """Return the first of several counters that a file of statistics contains, or 0."""
    with contextlib.suppress(OSError):
        found = dict(line.split()[:2] for line in path.read_text().splitlines() if " " in line)
        for name in names:
            if name in found:
                return int(found[name])
    return 0
