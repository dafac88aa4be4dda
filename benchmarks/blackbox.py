"""Black-box functions: what `pyes.maximize` reaches with each algorithm, beside pycma and Nevergrad.

    OMP_NUM_THREADS=1 python benchmarks/blackbox.py [--dims 5 20] [--seeds N] [--searches NAME ...] [--output FILE]

Ten functions of the kinds of BBOB (Hansen, Finck, Ros and Auger 2009), by their published formulas, stretched so that
the optimum lies within 0.8 of 0 in every parameter: all searches begin at 0 with a standard deviation of 0.3, and know
no more. A seed draws the optimum and the rotations. Each search has 1,000 evaluations a parameter. Told is, as in COCO,
the share of 31 targets between 100 and 0.0001 above the optimum that were reached by any point, on average over seeds:
after 100 evaluations a parameter and after all, and at the end for each function. `pyes.maximize` without the name of
an algorithm is cma_es here.

The file, if one is named, receives a row for each search: the evaluations after which it reached the first target, the
second, and so on. What is in it is not searched again.
"""

import argparse
import csv
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from parts import positive

from pyes import algorithms
from pyes.config import algorithm_config
from pyes.numerics.noise import NoiseTable

Vector = NDArray[np.float64]
Function = Callable[[Vector], float]
Job = tuple[str, int, str, int]  # search, parameters, function, seed

TARGETS = 10.0 ** np.linspace(2, -4, 31)
SIGMA, REACH, STRETCH = 0.3, 0.8, 5.0
PER_DIM = (100, 1000)  # evaluations


def sphere(z: Vector) -> float:
    return float(z @ z)


def ellipsoid(z: Vector) -> float:
    return float(10.0 ** (6 * steps(z)) @ z**2)


def attractive_sector(z: Vector) -> float:
    """Steep on one side of the optimum, with no curvature to learn from afar."""
    return float(np.sum(np.where(z > 0, 100.0, 1.0) ** 2 * z**2) ** 0.9)


def step_ellipsoid(z: Vector) -> float:
    """Plateaus: nothing changes in a small neighbourhood."""
    flat = np.where(np.abs(z) > 0.5, np.floor(0.5 + z), np.floor(0.5 + 10 * z) / 10)
    return float(0.1 * max(abs(z[0]) / 1e4, 10.0 ** (2 * steps(z)) @ flat**2))


def rosenbrock(z: Vector) -> float:
    z = z * max(1.0, np.sqrt(len(z)) / 8) + 1
    return float(np.sum(100 * (z[:-1] ** 2 - z[1:]) ** 2 + (z[:-1] - 1) ** 2))


def bent_cigar(z: Vector) -> float:
    return float(z[0] ** 2 + 1e6 * np.sum(z[1:] ** 2))


def sharp_ridge(z: Vector) -> float:
    return float(z[0] ** 2 + 100 * np.sqrt(np.sum(z[1:] ** 2)))


def different_powers(z: Vector) -> float:
    return float(np.sqrt(np.sum(np.abs(z) ** (2 + 4 * steps(z)))))


def rastrigin(z: Vector) -> float:
    return float(10 * np.sum(1 - np.cos(2 * np.pi * z)) + z @ z)


def gallagher(z: Vector, peaks: Vector, heights: Vector) -> float:
    """Independent peaks, one of which is the highest."""
    values = heights * np.exp(-np.sum((z - peaks) ** 2, axis=1) / (2 * len(z)))
    return float((10 - values.max()) ** 2)


def steps(z: Vector) -> Vector:
    """Return 0 to 1 in as many steps as there are parameters."""
    return np.linspace(0, 1, len(z))


FUNCTIONS: dict[str, Callable[..., float]] = {
    each.__name__.replace("_", " "): each
    for each in (
        sphere, ellipsoid, attractive_sector, step_ellipsoid, rosenbrock, bent_cigar, sharp_ridge, different_powers,
        rastrigin, gallagher,
    )
}  # fmt: skip


def make_function(name: str, dim: int, seed: int) -> Function:
    """Return a function to be minimised, with its optimum, 0, somewhere and its axes turned."""
    random = np.random.default_rng([seed, dim, list(FUNCTIONS).index(name)])
    optimum = random.uniform(-REACH, REACH, dim)
    rotation = np.linalg.qr(random.standard_normal((dim, dim)))[0] if name != "sphere" else np.eye(dim)
    function = FUNCTIONS[name]
    if name == "gallagher":
        peaks = random.uniform(-4, 4, (21, dim))
        peaks[0] = 0.0
        function = partial(function, peaks=peaks, heights=np.array([10.0, *np.linspace(1.1, 9.1, 20)]))
    return lambda x: function(rotation @ (STRETCH * (np.asarray(x, np.float64) - optimum)))


def by_pyes(name: str, function: Function, dim: int, seed: int, **settings: Any) -> Iterator[float]:
    """Yield the value of every member."""
    config = algorithm_config({"name": name, "sigma": SIGMA, **settings})
    with NoiseTable(2**20, seed=0) as table:
        search = algorithms.make(config, None, np.zeros(dim, np.float32), table, seed=seed, threads=1)
        while True:
            values = [function(search.member(index)) for index in range(len(search.ask()))]
            yield from values
            search.tell([-value for value in values])


def by_pycma(function: Function, dim: int, seed: int) -> Iterator[float]:
    """Yield the value of every point of pycma's CMA-ES, which begins again, twice as large, where it has converged."""
    import cma

    size = 4 + int(3 * np.log(dim))
    while True:
        search = cma.CMAEvolutionStrategy(np.zeros(dim), SIGMA, {"verbose": -9, "seed": seed + 1, "popsize": size})
        while not search.stop():
            points = search.ask()
            values = [function(np.asarray(point)) for point in points]
            yield from values
            search.tell(points, values)
        size, seed = 2 * size, seed + 100


def by_nevergrad(name: str, function: Function, dim: int, seed: int, budget: int) -> Iterator[float]:
    """Yield the value of every point of one of Nevergrad's optimisers."""
    import nevergrad

    parameters = nevergrad.p.Array(init=np.zeros(dim)).set_mutation(sigma=SIGMA)
    parameters.random_state.seed(seed)
    search = nevergrad.optimizers.registry[name](parameters, budget=budget)
    while True:
        point = search.ask()
        value = function(point.value)
        yield value
        search.tell(point, value)


def searches(dim: int) -> dict[str, Callable[[Function, int, int], Iterator[float]]]:
    """Return what is compared: label, and a search of (function, seed, budget)."""
    small = 4 + int(3 * np.log(dim))

    def ours(name: str, **settings: Any) -> Callable[[Function, int, int], Iterator[float]]:
        return lambda function, seed, budget: by_pyes(name, function, dim, seed, **settings)

    def theirs(name: str) -> Callable[[Function, int, int], Iterator[float]]:
        return lambda function, seed, budget: by_nevergrad(name, function, dim, seed, budget)

    return {
        "openai_es": ours("openai_es"),
        "pgpe": ours("pgpe"),
        "snes": ours("snes"),
        f"snes, {small} members": ours("snes", population_size=small),
        "cma_es": ours("cma_es"),
        f"cma_es, {small} members": ours("cma_es", population_size=small),
        "pycma with restarts": lambda function, seed, budget: by_pycma(function, dim, seed),
        "Nevergrad CMA": theirs("CMA"),  # NGOpt, its own choice, is this one here, or ends with an error under NumPy 2
        "Nevergrad OnePlusOne": theirs("OnePlusOne"),
    }


def reached(label: str, dim: int, name: str, seed: int) -> list[int]:
    """Return after how many evaluations a search reached each target, as far as it came."""
    warnings.simplefilter("ignore")
    budget = PER_DIM[-1] * dim
    values = searches(dim)[label](make_function(name, dim, seed), seed, budget)
    best = np.minimum.accumulate([next(values) for _ in range(budget)])
    firsts = np.searchsorted(-best, -TARGETS) + 1
    return [int(first) for first in firsts if first <= budget]


def shares(found: list[int], dim: int) -> list[float]:
    """Return the shares of the targets that a search has reached after each number of evaluations."""
    return [sum(first <= each * dim for first in found) / len(TARGETS) for each in PER_DIM]


def search_all(dim: int, labels: Iterable[str], seeds: int, file: Path) -> None:
    """Add to a file what it does not have."""
    done = set(read(file))
    jobs = [(label, dim, name, seed) for label in labels for name in FUNCTIONS for seed in range(seeds)]
    missing = [job for job in jobs if job not in done]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool, file.open("a", encoding="utf-8") as lines:
        lines.write("" if done else "search,dim,function,seed,evaluations\n")
        for job, found in zip(missing, pool.map(reached, *zip(*missing, strict=True)) if missing else (), strict=True):
            label, *others = job
            lines.write(f'"{label}",{",".join(map(str, others))},{" ".join(map(str, found))}\n')
            lines.flush()


def read(file: Path) -> dict[Job, list[int]]:
    """Return the searches of a file."""
    if not file.exists():
        return {}
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {
        (row["search"], int(row["dim"]), row["function"], int(row["seed"])): list(map(int, row["evaluations"].split()))
        for row in rows
    }


def print_table(found: dict[Job, list[int]], dim: int, labels: Iterable[str]) -> None:
    """Print what the searches came to, a line each."""
    print(f"\n{dim} parameters\n\n| search | {' | '.join(f'{each} dim' for each in PER_DIM)} |", end="")
    print(f" {' | '.join(FUNCTIONS)} |\n|---|{'---:|' * (len(PER_DIM) + len(FUNCTIONS))}")
    for label in labels:
        reached = [
            (name, shares(each, dim)) for (one, size, name, _), each in found.items() if (one, size) == (label, dim)
        ]
        means = np.mean([each for _, each in reached], axis=0)
        ends = [np.mean([each[-1] for name, each in reached if name == function]) for function in FUNCTIONS]
        print(f"| {label} | {' | '.join(f'{each:.2f}' for each in [*means, *ends])} |", flush=True)


def main() -> None:
    """Search, and print a table for each number of parameters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=positive, nargs="+", default=[5, 20], metavar="N")
    parser.add_argument("--seeds", type=positive, default=5, metavar="N")
    parser.add_argument("--searches", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--output", type=Path, metavar="FILE")
    options = parser.parse_args()
    for dim in options.dims:
        if unknown := set(options.searches or ()) - searches(dim).keys():
            there = "; ".join(searches(dim))
            parser.error(f"--searches: with {dim} parameters, got {'; '.join(sorted(unknown))}, expected of {there}")
    with tempfile.TemporaryDirectory() as folder:
        file = options.output or Path(folder, "blackbox.csv")
        for dim in options.dims:
            labels = options.searches or list(searches(dim))
            search_all(dim, labels, options.seeds, file)
            print_table(read(file), dim, labels)


if __name__ == "__main__":
    main()
