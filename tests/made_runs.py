"""Synthetic run directories for the tests of comparisons: metrics.csv and config.json as written by a run."""

import csv
import json
from pathlib import Path

from pyes.config import from_mapping, to_mapping
from pyes.run.metrics import COLUMNS


def write_metrics(directory: Path, returns, evaluations=(), timesteps=1000):
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval=0, lineterminator="\n")
        writer.writeheader()
        for generation, value in enumerate(returns):
            writer.writerow(
                {
                    "generation": generation,
                    "timesteps": timesteps * (generation + 1),
                    "episodes": 64 * (generation + 1),
                    "seconds": 0.5 * (generation + 1),
                    "return_mean": value,
                    "eval_return_mean": dict(evaluations).get(generation, ""),
                    "theta_hash": "00ff00ff00ff00ff",
                }
            )


def make_run(directory: Path, seed=0, returns=(1, 2, 3, 4), evaluations=(), timesteps=1000, **sections) -> Path:
    write_metrics(directory, returns, evaluations, timesteps)
    config = to_mapping(from_mapping({"seed": seed, "run_dir": str(directory), **sections}))
    (directory / "config.json").write_text(json.dumps(config))
    return directory
