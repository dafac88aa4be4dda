"""The update step of every algorithm on the noise table: its time at 166,000 parameters and 1,000 members.

    python benchmarks/update_step.py [DTYPE] [THREADS]        default: float32 1

`ask` and `tell` are measured as ratios to OpenAI-ES in the same run, turn by turn; figures are medians.
"""

import argparse
import statistics
import time

import numpy as np
from parts import positive

from pyes import algorithms
from pyes.algorithms import Algorithm
from pyes.config import algorithm_config
from pyes.config.registry import ALGORITHMS
from pyes.numerics.noise import STORAGE, NoiseTable

DIM, MEMBERS, TURNS = 166_000, 1000, 15


def main() -> None:
    """Measure all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "dtype", nargs="?", choices=list(STORAGE), default="float32", metavar="DTYPE", help="one of %(choices)s"
    )
    parser.add_argument("threads", nargs="?", type=positive, default=1, metavar="THREADS")
    options = parser.parse_args()
    dtype, threads = options.dtype, options.threads
    returns = np.random.default_rng(0).standard_normal(MEMBERS)
    with NoiseTable(2**26, 0, dtype) as table:
        found = {
            name: _make(name, table, threads) for name in ALGORITHMS.names() if ALGORITHMS.get(name).Config.on_table
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in found}
        for _ in range(TURNS):
            for name, algorithm in found.items():
                times[name].append(_turn(algorithm, returns))
    base = [statistics.median(column) for column in zip(*times["openai_es"], strict=True)]
    print(f"{DIM:,} parameters, {MEMBERS:,} members, {dtype} table, {threads} threads")
    print(f"{'algorithm':12s} {'ask':>9s} {'tell':>9s}  tell / openai_es")
    for name, each in times.items():
        ask, tell = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"{name:12s} {1e3 * ask:6.2f} ms {1e3 * tell:6.1f} ms  {tell / base[1]:.2f}")


def _make(name: str, table: NoiseTable, threads: int) -> Algorithm:
    config = algorithm_config({"name": name, "population_size": MEMBERS})
    return algorithms.make(config, None, np.zeros(DIM, np.float32), table, seed=0, threads=threads)


def _turn(algorithm: Algorithm, returns: np.ndarray) -> tuple[float, float]:
    """Return the seconds of one ask and one tell."""
    begun = time.perf_counter()
    size = len(algorithm.ask())  # some have members beside the perturbations
    asked = time.perf_counter()
    algorithm.tell(np.resize(returns, size), behaviours(size))
    return asked - begun, time.perf_counter() - asked


def behaviours(size: int) -> np.ndarray:
    """Return two numbers a member, for those that learn from behaviours; the others do not look at them."""
    return np.random.default_rng(size).standard_normal((size, 2), np.float32)


if __name__ == "__main__":
    main()
