"""Shared by all tests: no test leaves a process, a shared block or an open memory file behind."""

import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

_GRACE = 5.0  # seconds for what is just ending

settings.register_profile("any_pace", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("any_pace")  # no test judges time

# Spawned children import a test module by the name it has here, tests.test_<module>. Last in the path, so that pyes
# itself still comes from where it is installed.
sys.path.append(str(Path(__file__).parent.parent))


@pytest.fixture(autouse=True)
def nothing_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test after which more processes, shared blocks or memory files are there than before it."""
    before = leftovers()
    yield
    deadline = time.monotonic() + _GRACE
    while (left := leftovers() - before) and time.monotonic() < deadline:
        caplog.get_records("call").clear()  # tracebacks in them hold arrays, and those their memory
        gc.collect()
        time.sleep(0.02)
    assert not left, f"left behind: {sorted(left)}"


def leftovers() -> set[str]:
    """Return what this process and its descendants hold now."""
    children = {f"process {child.pid} ({child.name})" for child in multiprocessing.active_children()}
    if sys.platform != "linux":
        return children
    return children | _processes() | _shared_blocks() | _memory_files()


def _processes() -> set[str]:
    """Return the processes of our process group, orphans included: children of children that lost their parent."""
    group = os.getpgrp()
    found = set()
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit() or int(directory.name) == os.getpid():
            continue
        try:
            state, _, its_group = (directory / "stat").read_text().rpartition(")")[2].split()[:3]
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, ValueError):  # it has just ended
            continue
        # multiprocessing's and joblib's trackers stay for the life of this process.
        if int(its_group) == group and state != "Z" and "tracker" not in command:
            found.add(f"process {directory.name} ({command.strip()[:80]})")
    return found


def _shared_blocks() -> set[str]:
    try:
        return {f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if name.startswith(("psm_", "pyes"))}
    except OSError:
        return set()


def _memory_files() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the listing's own descriptor
            continue
        if "memfd:pyes" in target:
            found.add(f"descriptor {descriptor} ({target})")
    return found
