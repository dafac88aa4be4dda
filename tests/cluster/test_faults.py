"""Faults do not change a run: a real head suffers one, and `heads.judge` compares its run with an undisturbed one."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import leftovers
import pytest
from clocks import backwards
from heads import Head, children, contents, count_of, hurt, judge, merge, size_of, until

import pyes
from pyes import cli
from pyes.node.process import state_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes by /proc")

SETTINGS = {
    "task": {"env_id": "faulty:Faulty-v0", "normalize_observations": True},
    "algorithm": {"population_size": 8},
    "generations": 60,
    "evaluation": {"every": 5, "episodes": 4},
    "snapshot": {"every": 4},
    "noise": {"entries": 200_000},
    "cluster": {"workers": 2},
}
#: A policy whose snapshots are much larger than all else that a run writes.
LARGE = {"network": {"name": "mlp", "hidden": [230, 230]}}
#: Timesteps take so long in heads that are to be hurt: a generation a quarter of a second, and so the whole run 15 s.
SLOW = {"sleep": 0.006}


def _train(run, **changes):
    """Train in this process, by default without any other."""
    return pyes.train(merge(SETTINGS, {"run_dir": str(run), "cluster": {"name": "inline"}, **changes}), display=False)


def _go_on(run, **changes):
    """Go on with a run in this process, to its end."""
    return _train(run, resume=str(run), **changes)


def _overrides(settings, prefix=""):
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _overrides(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value) if not isinstance(value, str) else value}"


def _head(run, *arguments, faulty=SLOW, settings=SETTINGS, environment=None, **options):
    """Start a head on a new run, or on the one that is there."""
    where = f"resume={run}" if size_of(run) else f"run_dir={run}"
    task = [] if size_of(run) else ["task=gymnasium"]
    variables = {"FAULTY": json.dumps(faulty), **(environment or {})}
    return Head(*task, *_overrides(settings), *arguments, where, environment=variables, **options)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Make the run that all others must be equal to."""
    run = tmp_path_factory.mktemp("reference") / "run"
    _train(run)
    return run


@pytest.fixture(scope="module")
def large_reference(tmp_path_factory):
    run = tmp_path_factory.mktemp("large") / "run"
    _train(run, **LARGE)
    return run


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """Make the same run, ended in its middle."""
    run = tmp_path_factory.mktemp("half") / "run"
    _train(run, generations=30)
    return run


@pytest.fixture
def copy(half, tmp_path):
    """Lend a copy of the half run, to be harmed."""
    return Path(shutil.copytree(half, tmp_path / "run"))


# --- processes killed and stopped


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_heads_killed_at_random_moments_lose_nothing(tmp_path, reference, seed):
    run, chance = tmp_path / "run", random.Random(seed)
    for _ in range(3):
        before = count_of(run)
        with _head(run) as head:
            head.reach(run, before + chance.randrange(1, 3))
            head.rest(chance.uniform(0, 0.3))
            head.kill()
        assert count_of(run) > before
    _go_on(run)
    judge(reference, run)


@pytest.mark.slow
def test_a_head_killed_while_it_starts_leaves_nothing_in_the_way(tmp_path, reference):
    run = tmp_path / "run"
    for file in ("lock", "journal.bin"):
        with _head(run) as head:
            head.until((run / file).exists, f"the {file}")
            head.kill()
    with _head(run, faulty={}) as head:
        assert head.wait() == 0, head.errors
    judge(reference, run)


def test_head_and_workers_killed_together_lose_nothing(tmp_path, reference):
    run = tmp_path / "run"
    with _head(run) as head:
        head.reach(run, 2)
        head.send_all(signal.SIGKILL)
        assert head.wait() == -signal.SIGKILL
    _go_on(run, cluster={"name": "local", "workers": 3})
    judge(reference, run)


@pytest.mark.slow
def test_workers_killed_again_and_again_change_nothing(tmp_path, reference):
    run = tmp_path / "run"
    with _head(run) as head:
        head.reach(run, 1)
        for number in range(6):
            workers = head.until(lambda: len(head.workers) == 2 and head.workers, "two workers")
            assert hurt(workers[number % 2], signal.SIGKILL)
            head.until(lambda dead=workers: len(head.workers) == 2 and head.workers != dead, "a new worker")
        head.stop()
    _go_on(run)
    judge(reference, run)


@pytest.mark.slow
def test_the_parent_of_the_workers_killed_again_and_again_changes_nothing(tmp_path, reference):
    run = tmp_path / "run"
    with _head(run) as head:
        for number in range(3):
            head.reach(run, 2 * number + 1)
            (nursery,) = head.nurseries
            family = [nursery, *head.workers]
            for pid in family if number else family[:1]:  # also together with the workers
                hurt(pid, signal.SIGKILL)
            head.until(lambda dead=nursery: len(head.workers) == 2 and dead not in head.nurseries, "new workers")
        head.reach(run, 6)
        head.stop()
    _go_on(run)
    judge(reference, run)


@pytest.mark.slow
def test_a_stopped_worker_is_replaced(tmp_path, reference):
    run = tmp_path / "run"
    with _head(run) as head:
        head.reach(run, 1)
        stopped = head.workers[0]
        hurt(stopped, signal.SIGSTOP)
        head.until(lambda: len(head.workers) == 2 and stopped not in head.workers, "a worker in its place")
        head.reach(run, count_of(run) + 2)
        head.stop()
    _go_on(run)
    judge(reference, run)


@pytest.mark.slow
def test_a_stopped_run_goes_on_where_it_was(tmp_path, reference):
    """Only the head, and all its processes, as with Ctrl-Z and fg; the time in between does not count for limits."""
    run = tmp_path / "run"
    with _head(run, "cluster.episode_time_limit=3", "cluster.attempts=1") as head:
        head.reach(run, 1)
        workers = head.workers
        for signalled, seconds in ((head.send, 1), (head.send_all, 3.5)):
            signalled(signal.SIGSTOP)
            head.rest(seconds)
            signalled(signal.SIGCONT)
            head.reach(run, count_of(run) + 2)
        assert head.workers == workers
        head.stop()
    _go_on(run)
    judge(reference, run)


# --- processes that environments start and leave


@pytest.fixture
def marked(tmp_path):
    """Yield a variable, and a function that returns the processes that were started with it, in whatever session."""
    name, value = "STARTED", str(tmp_path)
    yield {name: value}, lambda: leftovers.with_variable(f"{name}={value}")
    for pid in leftovers.with_variable(f"{name}={value}"):  # a test has failed
        hurt(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["child_at_start", "child_at_reset", "fork_at_reset"])
@pytest.mark.parametrize("end", ["killed", "killed while the workers' parent is stopped", "stopped"])
def test_what_environments_have_started_ends_with_the_run(tmp_path, marked, fault, end):
    variable, started = marked
    with _head(tmp_path / "run", faulty={**SLOW, "fault": fault}, environment=variable) as head:
        head.reach(tmp_path / "run", 1)
        assert len(started()) > 2 + len([head.pid, *head.nurseries, *head.workers])
        if "parent" in end:
            hurt(*head.nurseries, signal.SIGSTOP)
        head.stop() if end == "stopped" else head.kill()
        until(lambda: not started(), "the end of all that was started", 20.0)


@pytest.mark.slow
def test_what_an_environment_has_started_ends_with_its_worker_alone(tmp_path, marked, reference):
    variable, started = marked
    run, faulty = tmp_path / "run", {**SLOW, "fault": "child_at_start"}
    with _head(run, faulty=faulty, environment=variable) as head:
        head.reach(run, 1)
        first, second = head.workers
        (its,), (others,) = children(first), children(second)
        hurt(first, signal.SIGKILL)
        head.until(lambda: state_of(its) in ("", "Z"), "the end of what its environment had started")
        head.reach(run, count_of(run) + 2)
        assert state_of(others) == "S"
        assert second in head.workers
        head.stop()
        assert not started()
    _go_on(run)
    judge(reference, run)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["child_at_reset", "fork_at_reset"])
def test_what_environments_of_a_commands_own_process_have_started_ends_with_it(tmp_path, marked, fault):
    variable, started = marked
    run, variables = tmp_path / "run", {**variable, "FAULTY": json.dumps({"fault": fault})}
    settings = {**SETTINGS, "cluster": {}, "generations": 2}
    with _head(run, "cluster=inline", settings=settings, faulty={"fault": fault}, environment=variables) as head:
        assert head.wait() == 0, head.errors
    assert not started()
    command = [sys.executable, "-m", "pyes", "evaluate", str(run), "--episodes", "2"]
    path = {"PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run(command, env=os.environ | variables | path, check=True, stdout=subprocess.DEVNULL, timeout=60)
    assert not started()


# --- signals


@pytest.mark.slow
def test_an_interrupt_ends_the_generation_and_says_how_to_go_on(tmp_path, reference):
    """Ctrl-C, which reaches the whole group; SIGTERM to the head alone ends most of the runs above."""
    run = tmp_path / "run"
    with _head(run) as head:
        head.reach(run, 1)
        head.send_all(signal.SIGINT)
        assert head.wait() == 130
        assert f"go on with: pyes train resume={run}" in head.errors
        assert "Traceback" not in head.errors
    _go_on(run)
    judge(reference, run)


@pytest.mark.slow
def test_a_second_interrupt_ends_the_run_at_once(tmp_path, reference):
    run, marks = tmp_path / "run", tmp_path / "marks"
    marks.mkdir()
    with _head(run, faulty={"fault": "hang", "every": 8, "once": str(marks)}) as head:
        head.until(lambda: list(marks.iterdir()), "a generation that never ends")
        for patience in (2, 30, 30):  # the second is enough where the first has been heard by then
            head.send_all(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                head.process.wait(patience)
                break
        assert head.wait() == 130, head.errors
        assert "Traceback" not in head.errors
    _go_on(run)
    judge(reference, run)


@pytest.mark.slow
def test_readers_of_its_output_that_go_away_do_not_end_a_run(tmp_path, reference):
    run = tmp_path / "run"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with _head(run, faulty={"fault": "talk"}, stdout=writer, stderr=writer) as head:
            head.wait()
    finally:
        os.close(writer)
    judge(reference, run)


@pytest.mark.slow
def test_a_second_head_is_refused_and_a_dead_ones_lock_is_not(tmp_path, reference, capsys):
    run = tmp_path / "run"
    with _head(run) as head:
        head.reach(run, 1)
        assert re.match(r"run_dir: another process \(.*\) is writing to ", _refused(capsys, f"resume={run}"))
        head.kill()
    assert (run / "lock").exists()
    assert _pyes(f"resume={run}") == 0
    judge(reference, run)


def _pyes(*arguments):
    """Run ``pyes train`` in this process; return its exit status."""
    return cli.main(["train", *arguments, "cluster.name=inline"])


def _refused(capsys, *arguments):
    """Check that ``pyes train`` refuses in one line; return that."""
    capsys.readouterr()
    assert _pyes(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line.removeprefix("pyes: error: ")


# --- files cut, damaged and lost


@pytest.mark.slow
@pytest.mark.parametrize("bytes_lost", [1, 17, 400])
def test_a_journal_cut_short_is_written_on_from_its_last_whole_record(tmp_path, reference, bytes_lost):
    run = shutil.copytree(reference, tmp_path / "run")
    os.truncate(run / "journal.bin", size_of(reference) - bytes_lost)
    assert _pyes(f"resume={run}") == 0
    judge(reference, run)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_journal_damaged_in_its_middle_is_refused_and_left_alone(copy, capsys, place):
    data = bytearray((copy / "journal.bin").read_bytes())
    data[int(place * len(data))] ^= 1 << 3
    (copy / "journal.bin").write_bytes(data)
    before = contents(copy)
    assert re.search(r"journal\.bin.*record \d+", _refused(capsys, f"resume={copy}", "generations=60"))
    after = contents(copy)
    assert after | {"train.log": b""} == before | {"train.log": b""}  # the log says what was refused


@pytest.mark.parametrize(
    "spared", [pytest.param(2, marks=pytest.mark.slow), 1, pytest.param(0, marks=pytest.mark.slow)]
)
def test_damaged_snapshots_are_passed_over(copy, reference, spared):
    """The one before serves; with none at all, the journal alone."""
    snapshots = sorted((copy / "snapshots").iterdir())
    assert len(snapshots) == 3
    for number, path in enumerate(snapshots[spared:]):
        data = bytearray(path.read_bytes())
        data[len(data) // (number + 2)] ^= 1
        path.write_bytes(data if number else data[: len(data) // 2])
    _go_on(copy)
    judge(reference, copy)


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(None, marks=pytest.mark.slow),
        0.5,
        *(pytest.param(part, marks=pytest.mark.slow) for part in (0, 1.0)),
    ],
)
def test_lost_metrics_are_rebuilt(copy, reference, left):
    metrics = copy / "metrics.csv"
    if left is None:
        metrics.unlink()
    else:
        os.truncate(metrics, int(left * (metrics.stat().st_size - 1)))
    _go_on(copy)
    judge(reference, copy)


# --- the machine fails


class Disk:
    """A small disk in its own mount namespace; its files can be read through /proc."""

    def __init__(self, mount, size):
        mount.mkdir(exist_ok=True)
        command = f"mount -t tmpfs -o size={size} tmpfs {mount} && echo ready && exec sleep infinity"
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self._holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", command], **pipes)
        self.mounted = self._holder.stdout.readline() == "ready\n"
        self.seen = Path(f"/proc/{self._holder.pid}/root{mount}")
        self.enter = ("nsenter", "--mount", f"--target={self._holder.pid}")

    def fill(self, leave=0):
        """Fill it but for some bytes."""
        with open(self.seen / "filler", "wb", buffering=0) as filler:
            while (free := os.statvfs(self.seen)).f_bavail * free.f_frsize > leave:
                with contextlib.suppress(OSError):  # the head may just have taken the last of it
                    filler.write(bytes(free.f_frsize))

    def empty(self):
        (self.seen / "filler").unlink()

    def close(self):
        self._holder.kill()
        self._holder.communicate()


@pytest.fixture
def make_disk():
    disks = []

    def make(mount, size):
        disks.append(Disk(mount, size))
        if not disks[-1].mounted:
            pytest.skip("no mount namespaces for this user")
        return disks[-1]

    yield make
    for disk in disks:
        disk.close()


@pytest.fixture
def disk(tmp_path, make_disk):
    return make_disk(tmp_path / "disk", "4m")


def _fill_before_a_record(head, disk):
    """Fill the disk at a moment when the journal's next record needs a new page of it."""
    run, page = disk.seen / "run", os.statvfs(disk.seen).f_frsize
    head.reach(run, 2)
    record = size_of(run) // count_of(run)
    head.until(lambda: size_of(run) % page + 2 * record > page, "the end of a page")
    disk.fill()


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 1, 2, 4])
def test_a_disk_that_is_full_at_the_start_is_one_line(tmp_path, make_disk, room):
    disk = make_disk(tmp_path / "disk", "64k")
    disk.fill(leave=room * os.statvfs(disk.seen).f_frsize)
    with _head(tmp_path / "disk" / "run", prefix=disk.enter) as head:
        assert head.wait() == 2, head.errors
        *_, last = head.errors.splitlines()
        assert re.fullmatch(r"pyes: error: run_dir: cannot (make|write to) .*No space left on device.*; .*", last)
        assert "Traceback" not in head.errors


BRISK = {"sleep": 0.004}


@pytest.mark.slow
def test_a_full_disk_is_waited_for(tmp_path, reference, disk):
    with _head(tmp_path / "disk" / "run", prefix=disk.enter, faulty=BRISK) as head:
        _fill_before_a_record(head, disk)
        head.until(lambda: "No space left on device; make room" in head.errors, "a word on the full disk")
        rows = count_of(disk.seen / "run")
        disk.empty()
        head.reach(disk.seen / "run", rows + 2)
        head.stop()
        run = shutil.copytree(disk.seen / "run", tmp_path / "run")
    _go_on(run)
    judge(reference, run)


#: pyes that waits for a full disk for less than the minutes it has by default.
HURRIED = "import sys, pyes.cli, pyes.system.files; pyes.system.files._DELAYS = (0.1, 0.1); sys.exit(pyes.cli.main())"


@pytest.mark.slow
def test_a_disk_that_stays_full_ends_the_run_and_loses_nothing(tmp_path, reference, disk):
    with _head(tmp_path / "disk" / "run", prefix=disk.enter, faulty=BRISK, program=("-c", HURRIED)) as head:
        _fill_before_a_record(head, disk)
        assert head.wait() == 1, head.errors
        last = head.errors.splitlines()[-1]
        assert re.fullmatch(r"pyes: error: cannot write \S+: No space left on device; .*", last), head.errors
        assert "Traceback" not in head.errors
        run = shutil.copytree(disk.seen / "run", tmp_path / "run")
    _go_on(run)
    judge(reference, run)


@pytest.mark.slow
def test_an_interrupt_ends_a_run_that_waits_for_a_full_disk(tmp_path, reference, disk):
    with _head(tmp_path / "disk" / "run", prefix=disk.enter, faulty=BRISK) as head:
        _fill_before_a_record(head, disk)
        head.until(lambda: "it is tried again in 30 s" in head.errors, "a long wait")
        head.send(signal.SIGTERM)
        assert head.process.wait(20) == 130, head.errors  # an attempt later it would be 60 s
        run = shutil.copytree(disk.seen / "run", tmp_path / "run")
    _go_on(run)
    judge(reference, run)


@pytest.mark.slow
def test_a_run_goes_on_while_a_full_disk_takes_no_snapshot(tmp_path, large_reference, disk):
    settings, seen = merge(SETTINGS, LARGE), disk.seen / "run"

    def whole() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (seen / "snapshots").glob("generation-*.safetensors")}

    with _head(tmp_path / "disk" / "run", prefix=disk.enter, faulty=BRISK, settings=settings) as head:
        head.reach(seen, 5)
        disk.fill(leave=150_000)
        head.until(lambda: "no snapshot of generation" in head.errors, "a word on the full disk")
        snapshots = whole()
        assert snapshots
        head.reach(seen, count_of(seen) + 9)
        assert whole() == snapshots
        disk.empty()
        names = {path.name for path in (seen / "snapshots").iterdir()}
        new = lambda: {path.name for path in (seen / "snapshots").glob("generation-*.safetensors")} - names  # noqa: E731
        head.until(new, "a new snapshot")
        head.stop()
        run = shutil.copytree(seen, tmp_path / "run")
    _go_on(run)
    judge(large_reference, run)


@pytest.mark.slow
def test_a_run_needs_no_room_in_the_shared_memory_mount(tmp_path, reference, make_disk):
    shared = make_disk(Path("/dev/shm"), "64k")
    shared.fill()
    with _head(tmp_path / "run", prefix=shared.enter, faulty={}) as head:
        assert head.wait() == 0, head.errors
    judge(reference, tmp_path / "run")


@pytest.mark.slow
def test_a_wall_clock_that_runs_backwards_changes_nothing(tmp_path, reference):
    with _head(tmp_path / "run", faulty={}, environment=backwards(tmp_path)) as head:
        assert head.wait() == 0, head.errors
    judge(reference, tmp_path / "run")
