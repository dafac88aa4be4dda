"""A deceptive maze, five seeds: OpenAI-ES stays in the trap, what also looks for novelty gets out of it.

    python benchmarks/deceptive.py [ALGORITHM ...]

Trains as `experiment=maze_novelty` does, in one process, until an evaluation of the center is behind the trap (a return
of 6) or for 400 generations. ALGORITHM: openai_es, nsr_es, nsra_es, ns_es or ga (default: the first three).
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import pyes
from pyes.metrics import read_rows

SEEDS = range(5)
DEFAULT = ("openai_es", "nsr_es", "nsra_es")
RUN: dict[str, Any] = {
    "task": {"env_id": "pyes.tasks.maze:Maze-v0", "action": "tanh", "behaviour": "final_position"},
    "network": {"name": "mlp", "hidden": [8]},
    "noise": {"entries": 1_000_000},
    "generations": 400,
    "target_return": 6,
    "evaluation": {"every": 5, "episodes": 10},
    "snapshot": {"every": 0},
    "cluster": {"name": "inline"},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "ns_es": {"parents": 3},
    "nsr_es": {"parents": 3},
    "nsra_es": {"parents": 3, "return_weight_patience": 10},
}


def main() -> None:
    """Print one line a seed and algorithm, then how many passed."""
    for algorithm in sys.argv[1:] or DEFAULT:
        passed = sum(measure(algorithm, seed) for seed in SEEDS)
        print(f"{algorithm}: {passed} of {len(SEEDS)} seeds passed the trap", flush=True)


def measure(algorithm: str, seed: int) -> bool:
    """Train once; say whether the center passed the trap, and when."""
    with tempfile.TemporaryDirectory(prefix="deceptive-") as folder:
        config = RUN | {
            "seed": seed,
            "run_dir": folder,
            "algorithm": {"name": algorithm, **SETTINGS.get(algorithm, {})},
        }
        result = pyes.train(config, display=False)
        rows = read_rows(Path(folder) / "metrics.csv")
    best = max(float(row["eval_return_mean"]) for row in rows if row["eval_return_mean"])
    passed = result.stopped_by == "target_return"
    end = f"behind the trap after {result.generations} generations" if passed else "in the trap"
    print(f"{algorithm} seed {seed}: {end} (best evaluation {best:.1f}, {result.timesteps:,} timesteps)", flush=True)
    return passed


if __name__ == "__main__":
    main()
