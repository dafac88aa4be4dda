"""Batches for clusters, the workers that evaluate them, and whether two results are the same."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from pyes.algorithms.population import Population
from pyes.episodes.batch import Batch, Results


def make_batch(theta: np.ndarray, members: int, generation: int = 0, **settings: Any) -> Batch:
    """Return members around theta, with two seeds each."""
    rng = np.random.default_rng(generation)
    return Batch(
        Population.around(generation, theta, rng.integers(0, 40_000, members), np.full(members, 0.1, np.float32)),
        seeds=np.arange(2 * members, dtype=np.int64).reshape(members, 2),
        limit=200,
        statistics_stride=1,
        **settings,
    )


def check_same(first: Results, second: Results) -> None:
    """Check that two results are the same, but for how long they took."""
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_array_equal(first.lengths, second.lengths)
    np.testing.assert_array_equal(first.status, second.status)
    np.testing.assert_array_equal(first.sums, second.sums)
    np.testing.assert_array_equal(first.sum_lengths, second.sum_lengths)


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started, the dead ones that it has not looked after included."""
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def workers_now() -> list[int]:
    """Return the processes two steps below this one: the nursery's children."""
    (workers,) = [found for child in children_of(os.getpid()) if (found := children_of(child))]
    return workers
