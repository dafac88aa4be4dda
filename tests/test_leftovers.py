"""Tests in several processes leave nothing behind, however they end; no process reports what another holds."""

import os
import shutil
import signal
import subprocess
import sys
from multiprocessing import shared_memory
from pathlib import Path

import leftovers
import pytest
from commands import running
from heads import until

from pyes.node.process import state_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

#: A test that lasts until somebody ends it, with a child in a session of its own, which no signal to a group reaches.
ENDLESS = """
import os, subprocess, sys
from pathlib import Path

def test_endless():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path("part").write_text(f"{os.getpid()} {os.getpgrp()} {child.pid}")
    Path("part").rename("pids")
    child.wait()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ending", ["interrupt", "kill"])
def test_worker_of_tests_leaves_nothing_when_it_is_interrupted_or_killed(ending: str, tmp_path: Path):
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-n1", "--max-worker-restart=0", "-pno:cacheprovider", str(tmp_path)]
    with running(
        command,
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs have it ignored
    ) as process:
        note = tmp_path / "pids"
        until(lambda: process.poll() is not None or note.exists(), "the test", 200.0)
        worker, group, child = map(int, note.read_text().split())
        os.kill(*((process.pid, signal.SIGINT) if ending == "interrupt" else (worker, signal.SIGKILL)))
        said, _ = process.communicate(timeout=200)
    assert group == worker
    assert process.returncode == (pytest.ExitCode.INTERRUPTED if ending == "interrupt" else 1), said
    assert {state_of(worker), state_of(child)} <= {"", "Z"}


def test_shared_blocks_are_those_of_our_processes_and_of_nobody():
    block = shared_memory.SharedMemory(create=True, size=64)
    name = f"/dev/shm/{block.name}"
    try:
        assert name in leftovers.shared_blocks()
        script = f"import mmap; file = open({name!r}, 'r+b'); kept = mmap.mmap(file.fileno(), 64); print(); input()"
        command = [sys.executable, "-c", script]
        with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            block.close()
            assert name not in leftovers.shared_blocks()
            other.communicate("\n", timeout=60)
        assert name in leftovers.shared_blocks()
    finally:
        block.unlink()
    assert name not in leftovers.shared_blocks()
