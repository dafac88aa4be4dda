"""Algorithms that other libraries implement, behind the interface of this package.

Owns what such a library lacks: a state of values instead of code, random numbers that nobody else draws from, silence,
and failures of one line. Must not know any library. Invariant: what it has come to follows from the start, the seed and
the returns told; so these are the state, and loading one asks and tells again.
"""

import random
import textwrap
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import Algorithm, Vector
from pyes.algorithms.population import Population
from pyes.errors import ConfigError
from pyes.numerics import streams
from pyes.system.text import reason


class LibraryAlgorithm(Algorithm):
    """An optimiser of another library: it minimises, in float64, and draws from NumPy's legacy generator.

    Members are its points as float32. What it is told about are the points that it asked, in float64: telling it of the
    rounded ones would make them strangers to its own bookkeeping, and they differ by less than any step it takes.

    Parameters
    ----------
    theta : float32 (dim,)    where to start; copied
    seed : int                decides, with the returns, every number of the run
    size : int                members a generation
    title : str               what the optimiser is called in a message

    Raises
    ------
    ConfigError    the library is missing, or cannot do with these settings
    """

    def __init__(self, theta: Vector, seed: int, size: int, title: str) -> None:
        super().__init__(theta)
        self._size, self._title = size, title
        self._begin(self.theta.copy(), seed)

    def _begin(self, start: Vector, seed: int) -> None:
        """Start afresh."""
        self._start, self._seed = start, seed
        self.theta[:] = start
        self.generation = 0
        self._population = None
        self._told: list[NDArray[np.float64]] = []
        self._failure: Exception | None = None
        number = streams.library_seed(seed)
        self._generators = _Generators(number)
        with self._calling(), self._failing():
            self._open(start.astype(np.float64), np.random.RandomState(number))

    @property
    def _advice(self) -> str:
        """What to try when the library fails."""
        return "other settings or another algorithm"

    @abstractmethod
    def _open(self, start: NDArray[np.float64], generator: np.random.RandomState) -> None:
        """Make the library's optimiser."""

    @abstractmethod
    def _points(self) -> NDArray[np.float64]:
        """Ask the optimiser for the points of a generation: (population_size, dim)."""

    @abstractmethod
    def _minimize(self, losses: NDArray[np.float64]) -> Vector:
        """Tell the optimiser what its points cost, (population_size,); return its center as float32."""

    def _draw(self) -> Population:
        with self._failing():
            if self._failure is not None:
                raise self._failure
            with self._calling():
                points = self._points().astype(np.float32)
            if not np.isfinite(points).all():
                raise FloatingPointError("its points are no longer finite")
        return Population.of(self.generation, points)

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        self._told.append(returns.copy())
        try:
            with self._calling():
                self.theta[:] = self._minimize(_losses(returns))
        except Exception as error:
            # Said when members are asked for: what these returns lead to is then well defined, theta as it was.
            self._failure = error

    def member(self, index: int) -> Vector:
        """Return theta of one member of the current generation: float32 (dim,), a new array."""
        vector: Vector = self.ask().bases[index].copy()
        return vector

    def state_dict(self) -> dict[str, Any]:
        """Return where it started and all that it was told, as arrays and numbers; a copy."""
        told = np.array(self._told, np.float64).reshape(-1, self._size)
        return super().state_dict() | {"start": self._start.copy(), "seed": self._seed, "told": told}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, in the time that the library took to get there.

        Raises
        ------
        ConfigError    the same returns lead to another theta here
        """
        self._begin(np.array(state["start"], np.float32), int(state["seed"]))
        for returns in state["told"]:
            self.tell(returns)
        if not np.array_equal(self.theta, state["theta"], equal_nan=True):
            raise ConfigError(
                f"{self._title}: the returns of its {self.generation} generations lead to another theta here than "
                "where they were saved; go on with the same versions of its libraries, on the same kind of processor"
            )

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Let the library draw from the algorithm's own generators, and keep its warnings to itself."""
        with self._generators.installed(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Say in one line what the library raises."""
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{self._title} failed at generation {self.generation} with {len(self.theta):,} parameters and "
                f"algorithm.population_size={self._size} ({textwrap.shorten(reason(error), 160)}); try {self._advice}"
            ) from error


class _Generators:
    """Python's and NumPy's global generators, in a state of one's own: libraries draw from them here and there."""

    def __init__(self, seed: int) -> None:
        self._states = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put this state into the global generators for a while; afterwards they are as they were."""
        outer = random.getstate(), np.random.get_state()
        self._install(self._states)
        try:
            yield
        finally:
            self._states = random.getstate(), np.random.get_state()
            self._install(outer)

    @staticmethod
    def _install(states: tuple[Any, Any]) -> None:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _losses(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what is minimised: float64, all finite; a member that failed did as badly as the worst of the others."""
    known = returns[np.isfinite(returns)]
    if not len(known):
        return np.zeros(len(returns))
    losses: NDArray[np.float64] = -np.nan_to_num(np.clip(returns, known.min(), known.max()), nan=known.min())
    return losses
