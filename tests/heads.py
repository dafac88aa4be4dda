"""Real heads for tests of faults: runs ``pyes train`` in its own processes, and compares the results.

Knows the command line, the files of a run directory and /proc, and nothing of how a run works inside. Invariants: a
head leads a session, so all of its descendants are found even if their parent has changed, and none outlives its
`Head`; waiting is for a condition, never for a length of time.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyes.node.process import state_of
from pyes.run.metrics import read_rows

#: Maximum seconds to wait for events that should happen immediately. Only a failing test takes so long.
DEADLINE = 60.0
#: Columns of metrics.csv that depend on the clock.
CLOCK = ("seconds", "steps_per_second", "evaluate_seconds", "update_seconds", "idle_fraction")


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return nested settings with some of them changed."""
    merged = dict(base)
    for key, value in changes.items():
        merged[key] = merge(base.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """Wait for a condition; return what it gave. A KeyError, ValueError or OSError on the way is a no."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(LookupError, ValueError, OSError):
            if found := condition():
                return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.01)


class Head:
    """A ``pyes train`` in its own session; leaving the block kills all its processes.

    Parameters
    ----------
    arguments
        Arguments of ``pyes train``.
    prefix
        Command that runs it, which must become the head by exec (such as nsenter).
    program
        Arguments of Python.
    environment
        Variables to add.
    options
        Options of `subprocess.Popen`; by default standard error is kept for `errors`, standard output is discarded.
    """

    def __init__(
        self,
        *arguments: str,
        prefix: tuple[str, ...] = (),
        program: tuple[str, ...] = ("-m", "pyes"),
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed on leaving
        variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), **(environment or {})}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": self._errors}
        command = [*prefix, sys.executable, *program, "train", *arguments]
        self.process = subprocess.Popen(command, env=variables, start_new_session=True, **(pipes | options))
        self.pid = self.process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def errors(self) -> str:
        """What it has said on standard error so far."""
        # Read where the head writes on: its own place in the file stays.
        return os.pread(self._errors.fileno(), 2**20, 0).decode(errors="replace")

    @property
    def nurseries(self) -> list[int]:
        """The parents of its workers: one, or none at the moment."""
        return children(self.pid)

    @property
    def workers(self) -> list[int]:
        """Its workers that live now."""
        return [worker for nursery in self.nurseries for worker in children(nursery)]

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition that must come true before the head ends; return what it gave."""
        ended = object()
        found = until(lambda: condition() or (not self.running and (condition() or ended)), what)
        assert found is not ended, f"the head ended with {self.process.returncode} before {what}: {self.errors}"
        return found

    def reach(self, run: Path, rows: int) -> None:
        """Wait until the run has so many rows."""
        self.until(lambda: count_of(run) >= rows, f"row {rows} of {run}")

    def rest(self, seconds: float) -> None:
        """Let it be for a moment, in which it must not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            raise AssertionError(f"the head ended with {self.process.returncode}: {self.errors}")

    def send(self, number: int) -> None:
        """Signal the head alone."""
        self.process.send_signal(number)

    def send_all(self, number: int) -> None:
        """Signal the whole group, as a terminal and Slurm do."""
        os.killpg(self.pid, number)

    def wait(self) -> int:
        """Wait for the end of the head and of all that it started; return its exit status."""
        until(lambda: not self.running, "the end of the head")
        until(lambda: not members(self.pid), "the end of all that the head started")
        return int(self.process.returncode)

    def stop(self) -> None:
        """End the run after its generation."""
        self.send(signal.SIGTERM)
        assert self.wait() == 130, self.errors

    def kill(self) -> None:
        """Kill the head alone; what it started must follow by itself."""
        self.process.kill()
        assert self.wait() == -signal.SIGKILL, self.errors

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        until(self._end, f"the end of {members(self.pid)}")
        self._errors.close()

    def _end(self) -> bool:
        """Kill what is left; return whether all is gone."""
        for pid in members(self.pid):
            hurt(pid, signal.SIGKILL)
        return not self.running and not members(self.pid)


def hurt(pid: int, number: int) -> bool:
    """Signal a process that may have ended by itself; return whether it was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that live."""
    return [child for child, (state, parent, _) in _processes() if parent == pid and state not in "ZX"]


def members(session: int) -> list[int]:
    """Return the processes of a session that live."""
    return [pid for pid, (state, _, its_session) in _processes() if its_session == session and state not in "ZX"]


def zombies(parent: int) -> list[int]:
    """Return the dead children that a process has not looked after."""
    return [pid for pid, (state, its_parent, _) in _processes() if its_parent == parent and state == "Z"]


def _processes() -> Iterator[tuple[int, tuple[str, int, int]]]:
    """Yield each process with its state, its parent and its session."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            pid, state = int(folder.name), fields[0]
            if state in "ZX":
                state = state_of(pid) or "X"  # its other threads may still end
            yield pid, (state, int(fields[1]), int(fields[3]))


def held_by(pid: int) -> tuple[int, int]:
    """Return the bytes of memory that a process has in use, shared ones included, and its open descriptors."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


def rows_of(run: Path) -> list[dict[str, str]]:
    """Return the whole rows that a run has written so far."""
    path = run / "metrics.csv"
    return read_rows(path) if path.exists() else []


def count_of(run: Path) -> int:
    """Return how many whole rows a run has written so far."""
    path = run / "metrics.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def size_of(run: Path) -> int:
    """Return the bytes of a run's journal; 0 when there is none."""
    path = run / "journal.bin"
    return path.stat().st_size if path.exists() else 0


def contents(run: Path) -> dict[str, bytes]:
    """Return the files of a run with their bytes, without what Hydra notes beside them."""
    files = {str(path.relative_to(run)): path for path in run.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(".hydra/")}


def hashes_of(run: Path) -> list[str]:
    """Return the hashes of theta after each generation."""
    return [row["theta_hash"] for row in read_rows(run / "metrics.csv")]


def check_equal(reference: Path, run: Path) -> None:
    """Check that two runs have the same journal and the same policy."""
    for name in ("journal.bin", "policy.safetensors"):
        assert (run / name).read_bytes() == (reference / name).read_bytes(), name


def judge(reference: Path, run: Path) -> None:
    """Check that a run, whatever was done to it, is the one that nothing was done to."""
    rows, expected = rows_of(run), rows_of(reference)
    assert [row["generation"] for row in rows] == [str(number) for number in range(len(expected))], "rows are missing"
    assert (run / "metrics.csv").read_bytes().endswith(b"\n"), "the last row is cut short"
    for row, should in zip(rows, expected, strict=True):
        different = {
            key: (value, should[key]) for key, value in row.items() if key not in CLOCK and value != should[key]
        }
        assert not different, f"generation {row['generation']}, got and expected: {different}"
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds == sorted(seconds), seconds
    for name in ("journal.bin", "policy.safetensors", "best.safetensors"):
        if not (reference / name).exists():  # a run without an evaluation has no best center
            assert name == "best.safetensors"
            continue
        assert (run / name).read_bytes() == (reference / name).read_bytes(), f"{name} differs"
    odd = {name for name in contents(run).keys() ^ contents(reference).keys() if not _may_differ(name)}
    assert not odd, f"missing, or left behind: {odd}"
    assert not (held := _holders(run)), f"still open: {held}"


def _may_differ(name: str) -> bool:
    """Return whether a run may have a file that another one lacks; runs of the tests' own process draw no curve."""
    return name.startswith("snapshots/generation-") or name == "learning_curve.png"


def _holders(run: Path) -> list[str]:
    """Return the processes that have a file of the run open."""
    found = []
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(descriptor)
        except OSError:  # closed since, or somebody else's
            continue
        if target.startswith(f"{run.resolve()}/"):
            found.append(f"{descriptor} -> {target}")
    return found
