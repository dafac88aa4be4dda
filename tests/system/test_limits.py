import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from pyes.system import limits

linux_root = pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="control groups need Linux, root")
MIB = 2**20


def _fake(tmp_path, memberships, mounts, files):
    """Write a /proc tree and control groups; return the place of the former."""
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {1000 * 1024} kB\n")
    (proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in memberships))
    (proc / "self" / "mountinfo").write_text("".join(f"{line.format(tmp=tmp_path)}\n" for line in mounts))
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return proc


V2 = ["22 1 8:1 / / rw - ext4 /dev/sda rw", "30 22 0:26 / {tmp}/cg rw shared:4 - cgroup2 cgroup2 rw"]
V1 = [
    "30 22 0:26 / {tmp}/unified rw - cgroup2 cgroup2 rw",
    "31 22 0:27 / {tmp}/v1\\040memory rw - cgroup cgroup rw,memory",
    "32 22 0:28 / {tmp}/cpu rw - cgroup cgroup rw,cpu,cpuacct",
]

MEMORY = {
    "own group of version 2": (
        ["0::/slice/job"], V2,
        {"cg/slice/job/memory.max": 500 * MIB, "cg/slice/job/memory.current": 100 * MIB,
         "cg/slice/job/memory.stat": f"anon 1\ninactive_file {50 * MIB}"}, 450,
    ),
    "files that were read more than once": (
        ["0::/job"], V2,
        {"cg/job/memory.max": 500 * MIB, "cg/job/memory.current": 400 * MIB,
         "cg/job/memory.stat": f"active_file {200 * MIB}\ninactive_file {50 * MIB}"}, 350,
    ),
    "a group above": (
        ["0::/slice/job/step"], V2,
        {"cg/slice/job/step/memory.max": "max", "cg/slice/job/step/memory.current": MIB,
         "cg/slice/memory.max": 300 * MIB, "cg/slice/memory.current": 200 * MIB}, 100,
    ),
    "a limit that slows down": (
        ["0::/job"], V2, {"cg/job/memory.max": "max", "cg/job/memory.high": 70 * MIB, "cg/job/memory.current": 0}, 70,
    ),
    "version 1": (
        ["4:memory:/slurm/job", "0::/"], V1,
        {"v1 memory/slurm/job/memory.limit_in_bytes": 2**63 - 4096, "v1 memory/slurm/job/memory.usage_in_bytes": MIB,
         "v1 memory/slurm/memory.limit_in_bytes": 64 * MIB, "v1 memory/slurm/memory.usage_in_bytes": 32 * MIB,
         "v1 memory/slurm/memory.stat": f"inactive_file 0\ntotal_inactive_file {8 * MIB}"}, 40,
    ),
    "a container that sees its own group as the root": (
        ["4:memory:/docker/abc"], ["31 22 0:27 /docker/abc {tmp}/memory ro - cgroup cgroup rw,memory"],
        {"memory/memory.limit_in_bytes": 80 * MIB, "memory/memory.usage_in_bytes": 0}, 80,
    ),
    "a container that is told a path from outside": (
        ["0::/../other"], V2, {"cg/memory.max": 90 * MIB, "cg/memory.current": 0}, 90,
    ),
    "another group's limit": (["0::/job"], V2, {"cg/other/memory.max": MIB, "cg/other/memory.current": 0}, 1000),
    "no groups": ([], [], {}, 1000),
}  # fmt: skip


@pytest.mark.parametrize("case", MEMORY)
def test_available_memory_is_the_least_that_any_group_allows(tmp_path, case):
    *tree, expected = MEMORY[case]
    assert limits.available_memory(_fake(tmp_path, *tree)) == expected * MIB


CORES = {
    "own group of version 2": (["0::/job"], V2, {"cg/job/cpu.max": "300000 100000"}, 3),
    "a group above": (["0::/a/b"], V2, {"cg/a/b/cpu.max": "max 100000", "cg/a/cpu.max": "200000 100000"}, 2),
    "a part of a core": (["0::/job"], V2, {"cg/job/cpu.max": "10000 100000"}, 1),
    "one core and a half": (["0::/job"], V2, {"cg/job/cpu.max": "150000 100000"}, 2),
    "version 1": (
        ["1:cpu,cpuacct:/a/b", "0::/"], V1,
        {"cpu/a/b/cpu.cfs_quota_us": -1, "cpu/a/b/cpu.cfs_period_us": 100000,
         "cpu/a/cpu.cfs_quota_us": 100000, "cpu/a/cpu.cfs_period_us": 50000}, 2,
    ),
    "no limit": (["0::/job"], V2, {"cg/job/cpu.max": "max 100000"}, 8),
    "more than there are": (["0::/job"], V2, {"cg/job/cpu.max": "6400000 100000"}, 8),
}  # fmt: skip


@pytest.mark.parametrize("case", CORES)
def test_usable_cores_keep_to_the_least_quota(tmp_path, monkeypatch, case):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    *tree, expected = CORES[case]
    assert limits.usable_cores(_fake(tmp_path, *tree)) == expected


def _group(controller, **settings):
    """Make a group below this process's own, with limits, and one in it; return both."""
    (path,) = [
        line.split(":", 2)[2]
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if controller in line.split(":")[1].split(",")
    ] or [None]
    outer = Path(f"/sys/fs/cgroup/{controller}{path}") / f"pyes-test-{uuid.uuid4().hex}"
    if path is None or not outer.parent.is_dir():
        pytest.skip(f"there are no groups of {controller} here")
    inner = outer / "inner"
    inner.mkdir(parents=True)
    for name, value in settings.items():
        (outer / f"{controller}.{name}").write_text(str(value))
    return outer, inner


def _inside(group, expression):
    """Return what an expression gives in a process of a group."""
    script = f"import os; from pyes.system import limits; from pyes.config import ClusterConfig; print({expression})"
    enter = f"echo $$ > {group}/cgroup.procs && exec \"$0\" -c '{script}'"
    done = subprocess.run(["sh", "-c", enter, sys.executable], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@linux_root
def test_a_memory_limit_of_a_real_group_above_is_kept_to():
    outer, inner = _group("memory", limit_in_bytes=256 * MIB)
    try:
        assert 128 * MIB < _inside(inner, "limits.available_memory()") < 256 * MIB
    finally:
        inner.rmdir()
        outer.rmdir()


@pytest.mark.slow
@linux_root
def test_a_cpu_quota_of_a_real_group_above_is_kept_to():
    outer, inner = _group("cpu", cfs_quota_us=80_000)
    try:
        assert _inside(inner, "limits.usable_cores()") == 1
        workers = '__import__("pyes.node.pool").node.pool.Pool(ClusterConfig(workers="auto"), None).workers'
        assert _inside(inner, workers) == 1
    finally:
        inner.rmdir()
        outer.rmdir()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is Linux")
def test_affinity_is_kept_to():
    core = min(os.sched_getaffinity(0))
    script = "from pyes.system import limits; print(limits.usable_cores())"
    command = ["taskset", "-c", str(core), sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == "1\n"
