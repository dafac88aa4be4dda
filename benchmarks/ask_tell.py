"""Asking and telling of every algorithm as a share of a generation, on a small and on a large policy.

    python benchmarks/ask_tell.py [GENERATIONS]

Small: LunarLander, 18 parameters, 20 members of 5 episodes; a generation's evaluation is measured. Large: 6,536
parameters and 100 members; the evaluation is 50,000 timesteps of the Bullet ant at a stated speed. Each algorithm has a
process of its own, whose peak memory is told (on Linux); the returns are those of a sphere. Prints a Markdown table.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from parts import positive

import pyes
from pyes import algorithms
from pyes.config import algorithm_config
from pyes.config.registry import ALGORITHMS
from pyes.numerics.noise import NoiseTable
from pyes.run.metrics import read_rows

#: Timesteps a second that two cores are taken to reach; measure yours: pyes train experiment=ant_bullet.
ANT_SPEED = 6_000
ANT_TIMESTEPS = 50_000
#: Beside every algorithm as it comes.
MORE: list[dict[str, Any]] = [
    {"name": "cma_es", "covariance": "diagonal"},
    {"name": "cma_es", "covariance": "vd"},
    {"name": "cma_es", "covariance": "vkd"},
    {"name": "nevergrad", "optimizer": "DiagonalCMA"},
    {"name": "nevergrad", "optimizer": "TwoPointsDE"},
]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generations", nargs="?", type=positive, default=20, metavar="GENERATIONS", help="default: 20")
    generations = parser.parse_args().generations
    lander, ant = evaluation_of_the_lander(), ANT_TIMESTEPS / ANT_SPEED
    print(
        f"evaluation of a generation: lander {lander:.2f} s (measured), ant {ant:.2f} s ({ANT_SPEED:,} timesteps/s)\n"
    )
    print("| algorithm | parameters | ask, ms | tell, ms | share of a generation | peak memory, MB |")
    print("|---|---|---|---|---|---|")
    for dim, size, evaluation in ((18, 20, lander), (6_536, 100, ant)):
        for settings in [{"name": name} for name in ALGORITHMS.names()] + MORE:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                ask, tell, peak = pool.apply(measure, (settings | {"population_size": size}, dim, generations))
            share = (ask + tell) / (ask + tell + evaluation)
            title = ", ".join(map(str, settings.values()))
            print(f"| {title} | {dim:,} | {1e3 * ask:.1f} | {1e3 * tell:.1f} | {share:.1%} | {peak:,.0f} |", flush=True)


def evaluation_of_the_lander() -> float:
    """Return the seconds that the members of one generation take, all workers together."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        config = {"run_dir": str(run), "generations": 3, "evaluation": {"every": 0}, "task": {"episodes": 5}}
        pyes.train(config | {"algorithm": {"population_size": 20}}, display=False)
        return min(float(row["evaluate_seconds"]) for row in read_rows(run / "metrics.csv"))


def measure(settings: dict[str, Any], dim: int, generations: int) -> tuple[float, float, float]:
    """Return the mean seconds of an ask and of a tell after the first, and the peak memory in MB."""
    with NoiseTable(max(2**20, 64 * dim), 0) as table:
        theta = np.zeros(dim, np.float32)
        algorithm = algorithms.make(algorithm_config(settings), None, theta, table, seed=0)
        times = np.empty((generations + 1, 2))
        for row in times:
            begun = time.perf_counter()
            population = algorithm.ask()
            asked = time.perf_counter()
            row[0] = asked - begun
            returns = [-float(np.sum((algorithm.member(i) - 1) ** 2)) for i in range(len(population))]
            behaviours = np.random.default_rng(len(returns)).standard_normal((len(returns), 2), np.float32)
            begun = time.perf_counter()
            algorithm.tell(returns, behaviours)  # of which only those take notice that learn from them
            row[1] = time.perf_counter() - begun
    ask, tell = times[1:].mean(axis=0)
    # Not getrusage's: that one begins with the parent's.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return float(ask), float(tell), int(peak.split()[1]) / 1024


if __name__ == "__main__":
    main()
