"""LunarLander by six algorithms, five seeds each, with one worker: where they end, and how fast they get there.

    python benchmarks/lander_algorithms.py [FOLDER] [ALGORITHM ...]

Each algorithm has settings of its own and the budget that it is judged by: 15,000 episodes, 6,000 of CMA-ES, 10,000
of those that need no more. Prints the table of `pyes table`; its seconds are a run's wall clock, evaluations of 20
episodes included. FOLDER keeps the runs (default: a new one); those that have ended there are not made again.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

SEEDS = range(5)
SETTINGS = {
    "openai_es": "algorithm=openai_es generations=375 evaluation.every=10",
    "cma_es": "experiment=lunar_lander-cma_es evaluation.every=5",
    "ars": "algorithm=ars algorithm.population_size=40 algorithm.top=10 generations=250 evaluation.every=10",
    "snes": "algorithm=snes generations=250 evaluation.every=10",
    "pgpe": "experiment=lunar_lander-pgpe evaluation.every=2",
    "ga": "algorithm=ga algorithm.population_size=60 algorithm.parents=10 algorithm.sigma=0.2 generations=50 "
    "task.episodes=5 task.common_random_numbers=generation evaluation.every=5",
}


def main() -> None:
    """Train what is not there yet, seed by seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("algorithms", nargs="*", choices=list(SETTINGS), metavar="ALGORITHM", help="one of %(choices)s")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="lander-"))
    for seed in SEEDS:
        for name in options.algorithms or SETTINGS:
            run = folder / f"{name}-{seed}"
            if not (run / "learning_curve.png").exists():
                train(run, [*SETTINGS[name].split(), f"seed={seed}"])
    subprocess.run([sys.executable, "-m", "pyes", "table", str(folder), "--targets", "200,250"], check=True)


def train(run: Path, overrides: list[str]) -> None:
    """Train once."""
    command = [sys.executable, "-m", "pyes", "train", f"run_dir={run}", "cluster.workers=1", "evaluation.episodes=20"]
    subprocess.run([*command, *overrides], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
