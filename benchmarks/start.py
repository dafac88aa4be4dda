"""How long `pyes train` takes to its first finished generation, and what its processes hold in memory.

Starts the program several times, waits for the first row of ``metrics.csv``, and prints medians: seconds since the
command, seconds of processor time of the head until then, resident memory of the head and of each worker at that
moment, and the head's peak at its end, when it has drawn the learning curve. Memory that processes share (the noise
table, what workers have from their parent) counts in each. Linux only.

Run: ``python benchmarks/start.py [OVERRIDE ...]``, for example with ``task=lunar_lander``; ``--runs 5`` times.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from parts import positive

PROGRAM = (sys.executable, "-m", "pyes", "train")
DEFAULTS = ("task=cart_pole", "generations=1", "evaluation.every=0")
MIB = 2**20


class Start(NamedTuple):
    """One start; memory in MiB."""

    seconds: float
    cpu_seconds: float
    head: float
    worker: float
    peak: float


def main() -> None:
    """Print the medians of several starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--runs", type=positive, default=5)
    options = parser.parse_args()
    starts = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.runs + 1):
            start = measure(Path(folder, str(number)), [*DEFAULTS, *options.overrides])
            starts += [start] if number else []  # the first one fills the caches
    print(f"medians of {len(starts)} starts on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    rows = zip(("to the first generation", "of them processor time"), ("seconds", "cpu_seconds"), strict=True)
    for text, name in rows:
        print(f"{text:<26}{statistics.median(getattr(each, name) for each in starts):6.2f} s")
    for text, name in (("head", "head"), ("largest other process", "worker"), ("head's peak", "peak")):
        print(f"{text:<26}{statistics.median(getattr(each, name) for each in starts):6.0f} MiB")


def measure(run: Path, overrides: list[str]) -> Start:
    """Start the program once and wait for its end."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [*PROGRAM, f"run_dir={run}", *overrides], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while not has_row(run / "metrics.csv"):
        if process.poll() is not None:
            raise SystemExit((process.stderr.read() if process.stderr else b"").decode())
        time.sleep(0.001)
    seconds = time.perf_counter() - begin
    ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    cpu = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
    head, others = resident(process.pid), [resident(pid) for pid in descendants(process.pid)]
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return Start(seconds, cpu, head, max(others, default=0.0), usage.ru_maxrss / 1024)


def has_row(path: Path) -> bool:
    """Return whether a table has a row below its header."""
    try:
        return path.read_bytes().count(b"\n") > 1
    except FileNotFoundError:
        return False


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
    except FileNotFoundError:
        return 0.0


def descendants(pid: int) -> list[int]:
    """Return the processes that a process and its children have started."""
    try:
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return [each for child in children for each in (child, *descendants(child))]


if __name__ == "__main__":
    main()
