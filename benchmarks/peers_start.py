"""Seconds from the start of a program to its first update, and the memory of a training."""

from collections.abc import Iterator
from pathlib import Path

import peers_records as records
from peers_runs import CORES, TRAINING, Peak, run

START_CASE, MEMORY_CASE = "cart_pole", "lunar_lander"
MEMORY_SECONDS = 3.0  # that a training whose memory is measured goes on after its first update
START = ("method", "repetition", "seconds")
MEMORY = ("method", "repetition", "mebibytes", "processes")


def measure(folder: Path, repetitions: int) -> None:
    """Measure what is missing in ``start.csv`` and ``memory.csv``."""
    for job in records.missing(folder / "start.csv", jobs(repetitions)):
        done = run(job[0], START_CASE, CORES, 0)
        records.append(folder / "start.csv", START, [(*job, round(done.start, 3))])
        print(f"{', '.join(job)}: {done.start:.2f} s to the first update", flush=True)
    for job in records.missing(folder / "memory.csv", jobs(repetitions)):
        peak = Peak()
        run(job[0], MEMORY_CASE, CORES, MEMORY_SECONDS, peak.look)
        records.append(folder / "memory.csv", MEMORY, [(*job, round(peak.mebibytes, 1), peak.processes)])
        print(f"{', '.join(job)}: {peak.mebibytes:,.0f} MiB in {peak.processes} processes", flush=True)


def jobs(repetitions: int) -> Iterator[tuple[str, ...]]:
    """Yield method and repetition, the methods in turn."""
    for repetition in map(str, range(repetitions)):
        for method in TRAINING:
            yield method, repetition
