"""Maximise any function of a vector with the algorithms of pyes."""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyes import algorithms
from pyes.algorithms import Algorithm, Population
from pyes.algorithms.base import checked_theta
from pyes.cluster import Cluster, open_cluster
from pyes.config import AlgorithmConfig, ClusterConfig, OptimizerConfig, OptimizerForm, algorithm_config, refusal
from pyes.config.section import NotNegative, Seed, parse
from pyes.episodes.batch import Batch, Plan
from pyes.errors import ConfigError, TaskError
from pyes.numerics.noise import NoiseTable, few_entries
from pyes.system.limits import usable_cores

#: Parameters whose covariances the default algorithm learns: their number and its time grow with the square.
_MOST_CORRELATED = 500
_FAILING = 10  # generations in which all members fail, one after the other, that end a search
_ENDLESS = 1e9  # seconds that a call may take: as in this process, it ends when it ends


@dataclass(frozen=True)
class Maximum:
    """Result of `maximize`.

    Attributes
    ----------
    theta : float32 (dim,)
        The last center.
    value : float
        Value of the function at theta.
    history : float64 (generations,)
        Mean value of the members of each generation; NaN if all have failed.
    """

    theta: NDArray[np.float32]
    value: float
    history: NDArray[np.float64]


def maximize(
    function: Callable[[NDArray[np.float32]], float],
    theta: ArrayLike,
    algorithm: str | None = None,
    *,
    generations: int = 100,
    workers: int | Literal["auto"] = 1,
    seed: int = 0,
    optimizer: OptimizerForm | None = None,
    **settings: Any,
) -> Maximum:
    """Maximise a black-box function.

    Parameters
    ----------
    function : callable
        float32 (dim,) -> float; NaN, or an exception, counts as the worst value.
    theta : (dim,)
        Initial parameters.
    algorithm : str, optional
        The algorithm's name, or MODULE:CLASS for your own. Default: CMA-ES for up to 500 parameters, SNES for more,
        which knows no more than a standard deviation for each but is cheap.
    generations : int
        Number of generations.
    workers : int or "auto"
        Number of processes; 1 runs in this one. The result does not depend on it. On Linux the function may be any
        callable, elsewhere it must be picklable.
    seed : int
        Determines, with the function, the result.
    optimizer : OptimizerConfig, mapping or str
        The optimiser of theta, or its name (default: the algorithm's). An error for algorithms without an optimiser,
        except those with a setting of this name: for "nevergrad" it is the name of its optimiser.
    **settings
        Keys of the algorithm: population_size, sigma, learning_rate, ...

    Raises
    ------
    ConfigError
        A setting is invalid.
    TaskError
        The function failed for every member of the first generation, or of ten one after the other.
    ClusterError
        The workers cannot be kept alive.
    DivergedError
        An update made theta, or the deviation of its perturbations, not finite.
    """
    if not callable(function):
        raise refusal("function", function, "a function of theta that returns a number")
    start, seed = checked_theta(theta), parse(Annotated[int, Seed], seed, "seed")
    if algorithm is not None and not isinstance(algorithm, str):
        raise refusal("algorithm", algorithm, "a name, as 'snes', or 'MODULE:CLASS'")
    try:
        config, rule = _configs(algorithm or _default(len(start)), optimizer, settings)
    except ConfigError as error:
        if algorithm is None:
            error.add_note(f"(no algorithm is named, so it is {_default(len(start))})")
        raise
    generations = parse(Annotated[int, NotNegative], generations, "generations")
    cluster_config = (
        ClusterConfig(name="inline") if workers == 1 else ClusterConfig(workers=workers, episode_time_limit=_ENDLESS)
    )
    with ExitStack() as outer, ExitStack() as stack:
        cluster = stack.enter_context(open_cluster(cluster_config, function))
        # Made after the workers' parent, since it uses threads; freed after the workers, which read it.
        table = outer.enter_context(NoiseTable(_entries(config, len(start)), seed=0, shared=True))
        algorithms.check_contract(config, rule, start, table, seed=seed)
        cluster.start(_plan(seed, len(start), config), table)
        search = algorithms.make(config, rule, start, table, seed=seed, threads=usable_cores())
        history = _run(search, cluster, generations)
        center = cluster.evaluate(_batch(Population.center(generations, search.theta, 1)))
        return Maximum(search.theta, float(center.returns[0]), history)


def _run(search: Algorithm, cluster: Cluster, generations: int) -> NDArray[np.float64]:
    """Run all generations of a search; return the mean value of the members of each."""
    history = []
    failing = 0  # generations
    for generation in range(generations):
        population = search.ask()
        results = cluster.evaluate(_batch(population))
        failing = failing + 1 if results.failed == len(population) else 0
        if failing == _FAILING or (failing and generation == 0):
            raise TaskError(f"the function failed for all {results.failed} members: {results.reason}")
        search.tell(results.returns)
        history.append(math.nan if failing else float(np.nanmean(results.returns)))
    return np.array(history, np.float64)


def _default(dim: int) -> str:
    """Return the algorithm that is taken if none is named; see ``benchmarks/blackbox.py``."""
    return "cma_es" if dim <= _MOST_CORRELATED else "snes"


def _configs(
    algorithm: str, optimizer: OptimizerForm | None, settings: Mapping[str, Any]
) -> tuple[AlgorithmConfig, OptimizerConfig | None]:
    """Return the checked settings of the algorithm, and those of its optimiser, if any are given."""
    for key in ("name", "factory"):
        if key in settings:
            raise refusal(key, settings[key], "none: the argument algorithm has both")
    values = {"factory" if ":" in algorithm else "name": algorithm, **settings}
    kind = AlgorithmConfig.kind(values)
    if optimizer is not None and "optimizer" in kind.__dataclass_fields__:
        values["optimizer"], optimizer = optimizer, None
    config = algorithm_config(values)
    if config.needs_behaviours:
        raise refusal("algorithm", algorithm, "one that learns from values alone; a function has no behaviour")
    if optimizer is None:
        return config, None
    if not config.optimized:
        raise refusal("optimizer", optimizer, f"none with algorithm={algorithm}, which moves theta by itself")
    return config, OptimizerConfig.of(optimizer, config.default_optimizer)


def _plan(seed: int, dim: int, config: AlgorithmConfig) -> Plan:
    return Plan(
        seed=seed,
        dim=dim,
        capacity=config.capacity(config.population_max),
        episodes=1,
        observation_size=0,
        statistics_rows=0,
        policy=None,
        bases=config.bases,
        scaled=config.scaled,
    )


def _entries(config: AlgorithmConfig, dim: int) -> int:
    return few_entries(dim) if config.on_table else dim


def _batch(population: Population) -> Batch:
    return Batch(population, seeds=np.zeros((len(population), 1), np.int64), limit=1)
