"""What every algorithm offers to the training loop: ask, tell, and a state that can be saved."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.population import Population
from pyes.numerics import noise, streams
from pyes.numerics.noise import NoiseTable

Vector = NDArray[np.float32]


class Algorithm(ABC):
    """Proposes members and learns from their returns. Equal returns give equal bytes of theta, anywhere.

    Attributes
    ----------
    theta : float32 (dim,)         the center: the policy that the run has come to
    generation : int               the next one to be told
    population_size : int or None  members of the next generation to be asked for; None where it never changes
    sigma, learning_rate, gradient_norm : float or None    for the metrics; None where the algorithm has none
    """

    population_size: int | None = None
    sigma: float | None = None
    learning_rate: float | None = None
    gradient_norm: float | None = None

    def __init__(self, theta: Vector) -> None:
        self.theta = np.array(theta, np.float32)
        self.generation = 0
        self._population: Population | None = None

    def ask(self) -> Population:
        """Return the members of the current generation; asking twice gives the same."""
        if self._population is None:
            self._population = self._draw()
        return self._population

    def tell(self, returns: NDArray[np.float64] | list[float], behaviours: NDArray[np.float32] | None = None) -> None:
        """Take what the members came to, in member order, and go on to the next generation.

        Parameters
        ----------
        returns : (n,)               NaN: the member failed
        behaviours : (n, size)       what characterises each member, for the algorithms that ask for it

        Raises
        ------
        ValueError    the number of returns is not the population size
        """
        population = self.ask()
        returns = np.asarray(returns, np.float64)
        if returns.shape != (len(population),):
            raise ValueError(f"returns: got shape {returns.shape}, expected ({len(population)},), one a member")
        self._learn(population, returns)
        self._population = None
        self.generation += 1

    @abstractmethod
    def _draw(self) -> Population:
        """Draw the members of the current generation."""

    @abstractmethod
    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        """Move theta, and whatever else the algorithm keeps."""

    @abstractmethod
    def member(self, index: int) -> Vector:
        """Return theta of one member of the current generation: float32 (dim,), a new array."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as arrays and numbers; a copy."""
        state = {"theta": self.theta.copy(), "generation": self.generation}
        return state if self.population_size is None else state | {"population_size": self.population_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._population = None
        self.theta[:] = state["theta"]
        self.generation = int(state["generation"])
        if self.population_size is not None:
            self.population_size = int(state["population_size"])


class TableAlgorithm(Algorithm):
    """An algorithm whose perturbations are slices of a noise table.

    Parameters
    ----------
    theta : float32 (dim,)    where to start; copied
    table : NoiseTable        where the perturbations come from; None builds a private one
    seed : int                decides, with the returns, every number of the run
    threads : int             for large sums; the result does not depend on it

    Raises
    ------
    ConfigError    a table smaller than theta
    """

    def __init__(self, theta: Vector, table: NoiseTable | None, *, seed: int, threads: int) -> None:
        super().__init__(theta)
        dim = len(self.theta)
        self._table = NoiseTable(max(2**20, 256 * dim), seed=0) if table is None else table
        self._bound = self._table.offset_bound(dim)
        self._seed, self._threads = seed, threads

    def _offsets(self, count: int) -> NDArray[np.int64]:
        """Draw the offsets of this generation: int64 (count,)."""
        return streams.offsets(self._seed, self.generation, count, self._bound)

    def _pairs(self, size: int, sigma: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Draw offsets and scales of mirrored pairs, (size,) each."""
        scales = np.full(size, sigma, np.float32)
        scales[1::2] *= -1
        return np.repeat(self._offsets(size // 2), 2), scales

    def _weighted_sum(self, offsets: NDArray[np.int64], weights: NDArray[np.float32], out: Vector) -> None:
        """Sum slices, in the order given."""
        noise.weighted_sum(self._table, offsets, weights, out, self._threads)

    def member(self, index: int) -> Vector:
        """Return theta of one member of the current generation: float32 (dim,), a new array."""
        out = np.empty_like(self.theta)
        self.ask().member(index, self._table.array, out)
        return out
