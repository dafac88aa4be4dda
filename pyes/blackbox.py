"""Maximise any function of a vector with the algorithms of pyes."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyes import algorithms
from pyes.algorithms.population import Population
from pyes.cluster import open_cluster
from pyes.config import AlgorithmConfig, ClusterConfig, OptimizerConfig, algorithm_config, refusal
from pyes.episodes.batch import Batch, Plan
from pyes.errors import TaskError
from pyes.numerics.noise import NoiseTable
from pyes.system.limits import usable_cores


@dataclass(frozen=True)
class Maximum:
    """What `maximize` found.

    Attributes
    ----------
    theta : float32 (dim,)          the last center
    value : float                   the function there
    history : float64 (generations,)    mean value of the members of each generation
    """

    theta: NDArray[np.float32]
    value: float
    history: NDArray[np.float64]


def maximize(
    function: Callable[[NDArray[np.float32]], float],
    theta: ArrayLike,
    algorithm: str = "openai_es",
    *,
    generations: int = 100,
    workers: int | Literal["auto"] = 1,
    seed: int = 0,
    optimizer: OptimizerConfig | str | None = None,
    **settings: Any,
) -> Maximum:
    """Maximise a black-box function.

    Parameters
    ----------
    function : callable    float32 (dim,) -> float; NaN, or an exception, counts as the worst value
    theta : (dim,)         where to start
    algorithm : str        the algorithm's name, one of `pyes.config.AlgorithmConfig.KINDS`
    generations : int      how many to run
    workers : int, "auto"  processes; 1 runs in this one. The result does not depend on it. On Linux the function may be
                           any callable, elsewhere it must be picklable
    seed : int             decides, with the function, every number of the result
    optimizer              how theta moves, where there is such a rule: an `OptimizerConfig`, or the algorithm's
                           own; of "nevergrad" the name of the optimiser
    **settings             the keys of the algorithm in `pyes.config`: population_size, sigma, learning_rate, ...

    Raises
    ------
    ConfigError    an impossible setting
    TaskError      the function failed for every member of a generation
    """
    if isinstance(optimizer, str):
        settings["optimizer"], optimizer = optimizer, None
    config = algorithm_config({"name": algorithm, **settings})
    if optimizer is not None:
        config.check_optimizer(optimizer)
    if config.needs_behaviours:
        raise refusal("algorithm", algorithm, "one that learns from values alone; a function has no behaviour")
    start = np.array(theta, np.float32).ravel()
    cluster_config = ClusterConfig(name="inline") if workers == 1 else ClusterConfig(workers=workers)
    with ExitStack() as outer, ExitStack() as stack:
        cluster = stack.enter_context(open_cluster(cluster_config, function))
        # Made after the workers' parent, as it has threads; given back after the workers, which read it.
        table = outer.enter_context(NoiseTable(_entries(config, len(start)), seed=0, shared=True))
        cluster.start(_plan(seed, len(start), config), table)
        search = algorithms.make(config, optimizer, start, table, seed=seed, threads=usable_cores())
        history = np.empty(generations)
        for generation in range(generations):
            population = search.ask()
            results = cluster.evaluate(_batch(population))
            if results.failed == len(population):
                reason = results.errors[0] if results.errors else "their workers were killed or hung"
                raise TaskError(f"the function failed for all {results.failed} members: {reason}")
            search.tell(results.returns)
            history[generation] = np.nanmean(results.returns)
        center = cluster.evaluate(_batch(Population.center(generations, search.theta, 1)))
        return Maximum(search.theta, float(center.returns[0]), history)


def _plan(seed: int, dim: int, config: AlgorithmConfig) -> Plan:
    return Plan(
        seed=seed,
        dim=dim,
        capacity=config.capacity,
        episodes=1,
        observation_size=0,
        statistics_rows=0,
        policy=None,
        bases=config.bases,
        scaled=config.scaled,
    )


def _entries(config: AlgorithmConfig, dim: int) -> int:
    return max(2**20, 256 * dim) if config.on_table else dim


def _batch(population: Population) -> Batch:
    return Batch(population, seeds=np.zeros((len(population), 1), np.int64), limit=1)
