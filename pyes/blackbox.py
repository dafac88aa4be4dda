"""Maximise any function of a vector with the algorithms of pyes."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyes import algorithms
from pyes.cluster import open_cluster
from pyes.config import AlgorithmConfig, ClusterConfig, OptimizerConfig
from pyes.errors import TaskError
from pyes.messages import Batch, Plan
from pyes.noise import NoiseTable, usable_cores


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
    algorithm: Literal["openai_es"] = "openai_es",
    *,
    generations: int = 100,
    workers: int | Literal["auto"] = 1,
    seed: int = 0,
    optimizer: OptimizerConfig | None = None,
    **settings: Any,
) -> Maximum:
    """Maximise a black-box function.

    Parameters
    ----------
    function : callable    float32 (dim,) -> float; NaN, or an exception, counts as the worst value
    theta : (dim,)         where to start
    algorithm : str        the algorithm's name
    generations : int      how many to run
    workers : int, "auto"  processes; 1 runs in this one. The result does not depend on it. On Linux the function may be
                           any callable, elsewhere it must be picklable
    seed : int             decides, with the function, every number of the result
    **settings             the keys of `pyes.config.AlgorithmConfig`: population_size, sigma, learning_rate, ...

    Raises
    ------
    ConfigError    an impossible setting
    TaskError      the function failed for every member of a generation
    """
    config = AlgorithmConfig(name=algorithm, **settings)
    start = np.array(theta, np.float32).ravel()
    cluster_config = ClusterConfig(name="inline") if workers == 1 else ClusterConfig(workers=workers)
    with ExitStack() as outer, ExitStack() as stack:
        cluster = stack.enter_context(open_cluster(cluster_config, function))
        # Made after the workers' parent, as it has threads; given back after the workers, which read it.
        table = outer.enter_context(NoiseTable(max(2**20, 256 * len(start)), seed=0, shared=True))
        cluster.start(_plan(seed, len(start), config.population_size), table)
        search = algorithms.make(
            config, optimizer or OptimizerConfig(), start, table, seed=seed, threads=usable_cores()
        )
        history = np.empty(generations)
        for generation in range(generations):
            population = search.ask()
            batch = _batch(generation, population.offsets, population.scales, search.theta)
            results = cluster.evaluate(batch)
            if results.failed == len(population):
                reason = results.errors[0] if results.errors else "their workers were killed or hung"
                raise TaskError(f"the function failed for all {results.failed} members: {reason}")
            search.tell(results.returns)
            history[generation] = np.nanmean(results.returns)
        center = cluster.evaluate(_batch(generations, np.zeros(1, np.int64), np.zeros(1, np.float32), search.theta))
        return Maximum(search.theta, float(center.returns[0]), history)


def _plan(seed: int, dim: int, capacity: int) -> Plan:
    return Plan(seed=seed, dim=dim, capacity=capacity, episodes=1, observation_size=0, statistics_rows=0, policy=None)


def _batch(
    generation: int, offsets: NDArray[np.int64], scales: NDArray[np.float32], theta: NDArray[np.float32]
) -> Batch:
    seeds = np.zeros((len(offsets), 1), np.int64)
    return Batch(generation=generation, offsets=offsets, scales=scales, seeds=seeds, theta=theta, limit=1)
