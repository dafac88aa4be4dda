"""The default run over five seeds: wall clock to an evaluation of 200 and of 250, start-up included, and where it ends.

    python benchmarks/lander.py [FOLDER] [OVERRIDE ...]

The clock starts with the command and includes interpreter, imports, noise table and evaluations. Afterwards each run's
policy is evaluated on 100 episodes of seeds that the run has not seen. FOLDER keeps the runs (default: a new one).
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parts import rows_of

SEEDS = range(5)
NEVER = float("inf")


def main() -> None:
    """Print one line a seed, then the medians."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="lander-"))
    results = [measure(folder / str(seed), seed, sys.argv[2:]) for seed in SEEDS]
    for seed, (to_200, to_250, last, fresh) in zip(SEEDS, results, strict=True):
        print(f"seed {seed}: 200 after {to_200:5.1f} s, 250 after {to_250:5.1f} s; ", end="")
        print(f"last evaluation {last:.1f}; 100 episodes of other seeds {fresh:.1f}")
    print(f"median: 200 after {statistics.median(row[0] for row in results):.1f} s (aim 15), ", end="")
    print(f"250 after {statistics.median(row[1] for row in results):.1f} s (aim 25)")


def measure(run: Path, seed: int, overrides: list[str]) -> tuple[float, float, float, float]:
    """Train once; return seconds to 200 and to 250, the last evaluation, and the mean over 100 other episodes."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "pyes", "train", f"seed={seed}", f"run_dir={run}", *overrides]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not rows_of(run) and process.poll() is None:
            time.sleep(0.005)
        first_row = time.perf_counter() - begun
    if process.returncode:
        raise RuntimeError(f"the run failed with exit status {process.returncode}: {run / 'train.log'}")
    rows = rows_of(run)
    startup = first_row - float(rows[0]["seconds"])
    evaluated = [row for row in rows if row["eval_return_mean"]]
    times = [float(row["seconds"]) + startup for row in evaluated]
    means = [float(row["eval_return_mean"]) for row in evaluated]
    to_200, to_250 = (
        min((at for at, mean in zip(times, means, strict=True) if mean >= bar), default=NEVER) for bar in (200, 250)
    )
    evaluate = [sys.executable, "-m", "pyes", "evaluate", str(run), "--episodes", "100", "--seed", "12345", "--json"]
    done = subprocess.run(evaluate, check=True, capture_output=True, text=True)
    return to_200, to_250, means[-1], float(json.loads(done.stdout)["return_mean"])


if __name__ == "__main__":
    main()
