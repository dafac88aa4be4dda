"""The pendulum without its velocity, over five seeds: how well an LSTM that remembers it holds the pendulum up.

    python benchmarks/hidden_velocity.py [FOLDER] [OVERRIDE ...]

Trains `experiment=pendulum_hidden_velocity` on the pendulum in C, and evaluates each center on 100 episodes of
Gymnasium's. FOLDER keeps the runs (default: a new one).
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from pyes import tasks
from pyes.reports import replay
from pyes.tasks.gymnasium import GymnasiumConfig

SEEDS = range(5)
UNSEEN = 1_000_000  # seed of the episodes that judge


def main() -> None:
    """Print one line a seed, then their mean."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="hidden-velocity-"))
    means = []
    for seed in SEEDS:
        means.append(measure(folder / str(seed), seed, sys.argv[2:]))
        print(f"seed {seed}: {means[-1]:.1f}", flush=True)
    print(f"mean: {statistics.mean(means):.1f} (aim -180)")


def measure(run: Path, seed: int, overrides: list[str]) -> float:
    """Train once; return the mean of the center over 100 episodes."""
    command = [
        sys.executable,
        "-m",
        "pyes",
        "train",
        "experiment=pendulum_hidden_velocity",
        f"seed={seed}",
        f"run_dir={run}",
        *overrides,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with tasks.make(GymnasiumConfig(env_id="Pendulum-v1", hide_observations=(2,))) as task:
        return replay.run_episodes(replay.load(run), task, 100, UNSEEN).return_mean


if __name__ == "__main__":
    main()
