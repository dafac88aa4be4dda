"""The values that the head and the nodes exchange.

A `Plan` is sent once per run; a `Batch` is sent, and `Results` are returned, once per generation or evaluation.
"""

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.population import Population
from pyes.networks.spec import PolicySpec


class Status(IntEnum):
    """How the evaluation of a member ended."""

    OK = 0
    RAISED = 1  # the environment or the function raised
    NOT_FINITE = 2  # its return was NaN or infinite
    KILLED = 3  # it crashed or hung its worker, or used up the memory, cluster.attempts times


@dataclass(frozen=True)
class Plan:
    """Information that a node needs to evaluate members of one run."""

    seed: int
    dim: int
    capacity: int  # members of the largest batch
    episodes: int  # maximum per member
    observation_size: int
    statistics_rows: int  # maximum number of members in a batch whose observations are summed
    policy: PolicySpec | None  # None: members are plain vectors for a function
    vector: int = 1  # maximum number of members that a worker evaluates at once, if the task supports it
    reference_batch: NDArray[Any] | None = None  # for the statistics of virtual batch normalisation
    bases: int = 1  # maximum number of vectors that the members of a batch are perturbations of
    scaled: bool = False  # whether populations have a deviation
    behaviour_size: int = 0  # size of an episode's behaviour; 0 if none is wanted
    halves: bool = False  # whether the mean return of each half of a member's episodes is wanted


@dataclass(frozen=True)
class Batch:
    """Members to evaluate, and how.

    Attributes
    ----------
    population : Population
    seeds : int64 (n, episodes)
        Environment seed of each member's episodes.
    mean, inverse_std : float32 (observation_size,) or None
        Normalisation of observations.
    limit : int
        Maximum timesteps of an episode.
    statistics_stride : int
        Observations are summed for members whose index is a multiple of this; 0: for none.
    evaluation : bool
        Whether these are evaluation episodes of the center, without action noise.
    reward_min : float
        Smaller rewards of a timestep count as this one; -inf: none do.
    """

    population: Population
    seeds: NDArray[np.int64]
    limit: int
    mean: NDArray[np.float32] | None = None
    inverse_std: NDArray[np.float32] | None = None
    statistics_stride: int = 0
    evaluation: bool = False
    reward_min: float = -math.inf

    @property
    def generation(self) -> int:
        """The generation of the members."""
        return self.population.generation


@dataclass(frozen=True)
class Results:
    """Results of a batch or of some of its members, in member order.

    Attributes
    ----------
    members : int64 (n,)
        Indices of the members.
    returns : float64 (n,)
        Mean undiscounted return over the member's episodes; NaN where it failed.
    lengths : int64 (n,)
        Total timesteps of its episodes.
    status : uint8 (n,)
        See `Status`.
    sums : float64 (rows, 2, observation_size)
        Sums of observations and of their squares.
    sum_lengths : int64 (rows,)
        Timesteps in each row of sums.
    behaviours : float32 (n, behaviour_size)
        Mean behaviour over the member's episodes; NaN where it failed.
    halves : float64 (n, 2)
        Mean return over each half of the member's episodes (the second half has one more if their number is odd); NaN
        where it failed or has only one episode; (n, 0) if not wanted.
    busy_seconds : float
        Time that workers spent on members, summed over all workers.
    """

    members: NDArray[np.int64]
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    status: NDArray[np.uint8]
    sums: NDArray[np.float64]
    sum_lengths: NDArray[np.int64]
    behaviours: NDArray[np.float32]
    halves: NDArray[np.float64]
    busy_seconds: float
    errors: list[str] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Members that failed."""
        return int(np.count_nonzero(self.status))

    @property
    def reason(self) -> str:
        """Why members failed."""
        return self.errors[0] if self.errors else "their workers were killed or hung"
