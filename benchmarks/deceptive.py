"""A deceptive maze, five seeds: OpenAI-ES stays in the trap, what also looks for novelty gets out of it.

    python benchmarks/deceptive.py [ALGORITHM ...]

Trains `experiment=maze`, in one process, until an evaluation of the center is behind the trap (a return of 6)
or for 400 generations. ALGORITHM: any (default: openai_es and nsr_es).
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from pyes.config.registry import ALGORITHMS
from pyes.run.metrics import read_rows

SEEDS = range(5)
DEFAULT = ("openai_es", "nsr_es")
BEHIND = 6.0


def main() -> None:
    """Print one line a seed and algorithm, then how many passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ALGORITHMS.names()
    parser.add_argument("algorithms", nargs="*", choices=names, metavar="ALGORITHM", help="one of %(choices)s")
    for algorithm in parser.parse_args().algorithms or DEFAULT:
        passed = sum(measure(algorithm, seed) for seed in SEEDS)
        print(f"{algorithm}: {passed} of {len(SEEDS)} seeds passed the trap", flush=True)


def measure(algorithm: str, seed: int) -> bool:
    """Train once; say whether the center passed the trap, and when."""
    with tempfile.TemporaryDirectory(prefix="deceptive-") as folder:
        run = Path(folder) / "run"
        choices = ["experiment=maze", f"algorithm={algorithm}", "cluster=inline", f"target_return={BEHIND}"]
        if algorithm == "nsra_es":
            choices.append("algorithm.return_weight_patience=10")
        command = [sys.executable, "-m", "pyes", "train", *choices, f"seed={seed}", f"run_dir={run}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = read_rows(run / "metrics.csv")
    best = max(float(row["eval_return_mean"]) for row in rows if row["eval_return_mean"])
    passed = best >= BEHIND
    end = f"behind the trap after {len(rows)} generations" if passed else f"in the trap after {len(rows)} generations"
    print(f"{algorithm} seed {seed}: {end} (best evaluation {best:.1f})", flush=True)
    return passed


if __name__ == "__main__":
    main()
