"""Timesteps a second of whole trainings, and of simulators without one, by task and network; and by workers.

Methods take turns within a case, and cases within a repetition, so that what disturbs the machine for a while disturbs
all. The speed is that from the first update to the last: what a start takes is told elsewhere.
"""

from collections.abc import Iterator
from pathlib import Path

import peers_records as records
from peers_programs import CASES, METHODS
from peers_runs import CORES, OURS, TRAINING, run

COLUMNS = ("case", "method", "workers", "repetition", "timesteps", "episodes", "seconds")
WORKERS_CASE = "lunar_lander"  # measured with one worker too


def measure(folder: Path, repetitions: int, seconds: float) -> None:
    """Measure what is missing in ``speed.csv``; what only steps, for half as long."""
    for job in records.missing(folder / "speed.csv", jobs(repetitions)):
        case, method, workers, _ = job
        limit = seconds if method in (*OURS, *TRAINING) else seconds / 2
        while not (done := run(method, case, int(workers), limit)).seconds:
            limit *= 2  # it ended with its first update: a generation takes longer than that
        records.append(folder / "speed.csv", COLUMNS, [(*job, done.timesteps, done.episodes, round(done.seconds, 3))])
        print(f"{', '.join(job)}: {done.timesteps / done.seconds:,.0f} timesteps/s", flush=True)


def jobs(repetitions: int) -> Iterator[tuple[str, ...]]:
    """Yield case, method, workers and repetition of all programs, in the order in which they run."""
    for repetition in map(str, range(repetitions)):
        for case in CASES:
            for method in (*OURS, *METHODS):
                if method != "pyes_native" or CASES[case].native:
                    yield case, method, str(CORES), repetition
        for method in TRAINING if CORES > 1 else ():
            yield WORKERS_CASE, method, "1", repetition
