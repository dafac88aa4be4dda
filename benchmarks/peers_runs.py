"""How a training of pyes or of a peer is measured: from outside, as the program that a user would start.

Owns the programs' command lines, and what is read off them: seconds to the first update, timesteps and seconds from
the first update to the last, and memory. A program writes a row of ``metrics.csv`` after each update: `pyes train`
does, and `peers_programs.py` for the others. Linux only (memory is read from /proc).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import peers_records as records
from peers_programs import CASES, SIGMA, STEP
from start import descendants, has_row

CORES = os.cpu_count() or 1
OURS = ("pyes", "pyes_native")
#: What trains; `peers_programs.METHODS` has also what only steps.
TRAINING = ("pyes", "evotorch", "ars")
MEMORY_EVERY = 0.1  # seconds


class Run(NamedTuple):
    """What a program did: seconds to its first update; and from then to its last one, what was done."""

    start: float
    timesteps: int
    episodes: int
    seconds: float


def command(method: str, case: str, workers: int, seconds: float, folder: Path) -> list[str]:
    """Return the program that trains, or steps, for some seconds and writes to a folder."""
    if method in OURS:
        return [sys.executable, "-m", "pyes", "train", *overrides(method, case, workers, seconds), f"run_dir={folder}"]
    program = str(Path(__file__).with_name("peers_programs.py"))
    limits = ("--workers", str(workers), "--seconds", str(seconds), "--output", str(folder / "metrics.csv"))
    return [sys.executable, program, method, case, *limits]


def overrides(method: str, case: str, workers: int, seconds: float) -> list[str]:
    """Return the settings of `pyes train`."""
    env_id, hidden, normalize, population, _ = CASES[case]
    settings = {
        "task": "native" if method == "pyes_native" else "gymnasium",
        "task.env_id": env_id,
        "task.normalize_observations": normalize,
        "network": "mlp" if hidden else "linear",
        "network.init": "zero",
        "algorithm.population_size": population,
        "algorithm.sigma": SIGMA,
        "algorithm.learning_rate": STEP,
        "cluster.workers": workers,
        "generations": "null",
        "time_limit": max(seconds, 1e-3),
        "evaluation.every": 0,
    }
    wide = [f"network.hidden={list(hidden)}"] if hidden else []
    return [*(f"{key}={value}" for key, value in settings.items()), *wide]


def run(method: str, case: str, workers: int, seconds: float, look: Callable[[int], None] | None = None) -> Run:
    """Run a program to its end; ``look`` is called with its process again and again."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "run")
        if method not in OURS:
            folder.mkdir()
        start = watched(command(method, case, workers, seconds, folder), folder / "metrics.csv", look)
        rows = records.read(folder / "metrics.csv")
    first, last = rows[0], rows[-1]
    done = [int(last[name]) - int(first[name]) for name in ("timesteps", "episodes")]
    return Run(start, *done, float(last["seconds"]) - float(first["seconds"]))


def watched(words: Sequence[str], metrics: Path, look: Callable[[int], None] | None) -> float:
    """Run a program to its end; return the seconds until it wrote a row."""
    start, begun = 0.0, time.monotonic()
    errors = metrics.parent.with_name("errors")
    options = {"stdout": subprocess.DEVNULL, "cwd": errors.parent}  # MuJoCo writes its warnings to a file there
    with errors.open("w") as file, subprocess.Popen(words, stderr=file, **options) as process:
        while process.poll() is None:
            if not start and has_row(metrics):
                start = time.monotonic() - begun
            if look:
                look(process.pid)
            time.sleep(MEMORY_EVERY if start or look else 0.005)
    if process.returncode or not start:
        raise SystemExit(f"{' '.join(words)}: {errors.read_text().strip() or 'no update'}")
    return start


class Peak:
    """The most memory that a program and all that it has started held, shared parts counted once."""

    def __init__(self) -> None:
        self.mebibytes, self.processes = 0.0, 0

    def look(self, pid: int) -> None:
        """Add up what the processes hold now."""
        held = [proportional(each) for each in (pid, *descendants(pid))]
        if sum(held) > self.mebibytes:
            self.mebibytes, self.processes = sum(held), sum(each > 0 for each in held)


def proportional(pid: int) -> float:
    """Return the memory of a process in MiB, with its share of what others hold too; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0) / 1024
