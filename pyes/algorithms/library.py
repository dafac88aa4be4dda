"""Algorithms that other libraries implement, behind the interface of this package.

Owns what such a library lacks: a state of values instead of code, random numbers that nothing else draws from, linear
algebra that no number of threads changes, silence, and failures of one line. Must not know any library. Invariant: the
search follows from the start, the seed and the returns told in this attempt (`start_of` gives the next one its start);
so these are the state, and loading one asks and tells again.
"""

import math
import random
import sys
import textwrap
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from pyes.algorithms.base import Algorithm
from pyes.algorithms.population import Population, Vector
from pyes.config import AlgorithmConfig
from pyes.errors import ConfigError
from pyes.numerics import shaping, streams
from pyes.numerics.noise import NoiseTable
from pyes.system.process_wide import in_turn, warnings_as
from pyes.system.text import reason

#: Loss of a member that fails before any has not: large, but below what libraries cut losses off at (5e20).
_WORSE_THAN_ALL = 1e20


@dataclass(frozen=True, kw_only=True)
class LibraryConfig(AlgorithmConfig):
    """What the settings of these algorithms have in common."""

    on_table = False

    def is_fixed(self, key: str) -> bool:
        """Return True: the search is known only as what it was told under these settings."""
        return True


class LibraryAlgorithm(Algorithm):
    """An optimiser of another library: it minimises, in float64, and draws from NumPy's legacy generator.

    Members are its points as float32. It is told of the points that it proposed, in float64: rounded ones would be
    unknown to its own bookkeeping, and they differ by less than any step it takes.

    Parameters
    ----------
    theta, table, seed, threads
        As for `pyes.Algorithm`; there is no use for a table and for threads.
    **settings
        The fields of `Config`.

    Raises
    ------
    ConfigError
        The library is missing, or refuses these settings.
    """

    def __init__(self, theta: Vector, table: NoiseTable | None = None, *, seed: int = 0, **settings: Any) -> None:
        super().__init__(theta, table, seed=seed, **settings)
        self._begin(self.theta.copy(), self._seed)

    def _begin(self, start: Vector, seed: int, attempt: tuple[int, int] = (0, 0)) -> None:
        """Start afresh, at the generation and the timesteps with which an attempt began."""
        self._start, self._seed = start, seed
        self._attempt = self.generation, self.timesteps = attempt
        self._population = None
        self._search(self.generation)

    def _search(self, generation: int) -> None:
        """Begin the attempt of a generation: from the start, with random numbers of its own."""
        start = self._start
        self.theta[:] = start
        self._told: list[NDArray[np.float64]] = []
        self._worst = -math.inf  # loss so far
        self._failure: Exception | None = None
        number = streams.library_seed(self._seed, generation)
        self._generators = _Generators(number)
        self._blas = ThreadpoolController()
        with self._calling(), self._failing():
            self._open(start.astype(np.float64), np.random.RandomState(number))
        self._blas = ThreadpoolController()  # with what the library has loaded

    @property
    def _name(self) -> str:
        """What a message calls the optimiser."""
        return f"algorithm={self.config.name}"

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
        """Tell the optimiser the losses of its points, (population_size,); return its center as float32."""

    def _draw(self) -> Population:
        with self._failing():
            if self._failure is not None:
                raise self._failure
            with self._calling():
                points = self._points().astype(np.float32)
            if not np.isfinite(points).all():
                raise FloatingPointError("its points are no longer finite")
        return Population.of(self.generation, points)

    def _gives_up(self, mean: float) -> bool:
        """Return whether the attempt is given up, by the mean return of its generation."""
        return False

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        if self._gives_up(shaping.mean(returns)):
            following = self.generation + 1
            if self.start_of is not None:
                self._start = self.start_of(following).copy()
            self._search(following)
            self._restarted = True
            return
        self._told.append(returns.copy())
        try:
            with self._calling():
                self.theta[:] = self._minimize(self._losses(returns))
        except Exception as error:
            # Raised by the next ask: theta after these returns is then well defined, as it was before them.
            self._failure = error

    def _losses(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what is minimised: float64, all finite; a failed member is worse than any that did not fail so far."""
        known = np.isfinite(returns)
        self._worst = max([self._worst, *(-returns[known]).tolist()])
        if math.isfinite(self._worst):
            failed = min(math.nextafter(self._worst, math.inf), sys.float_info.max)
        else:
            failed = _WORSE_THAN_ALL
        return np.where(known, -returns, failed)

    def state_dict(self) -> dict[str, Any]:
        """Return the start and all returns that it was told in this attempt, as arrays and numbers; a copy."""
        told = np.array(self._told, np.float64).reshape(-1, self.population_size)
        return super().state_dict() | {"start": self._start.copy(), "told": told}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, and with its seed, in the time that the library took to get there.

        Raises
        ------
        ConfigError
            It is of another size of theta or of a generation; or the same returns lead to another theta here, where the
            search then is.
        """
        self._check_saved(state | {"seed": self._seed}, "told", vector="start")
        members = state["told"].shape[1]
        if members != self.population_size:
            raise ConfigError(
                f"algorithm.population_size: got {self.population_size}, expected {members} as it was saved"
            )
        began, at = state["attempt"]
        self._begin(np.array(state["start"], np.float32), int(state["seed"]), (int(began), int(at)))
        for returns in state["told"]:
            self.tell(returns)
        self.timesteps = int(state["timesteps"])
        if not np.array_equal(self.theta, state["theta"], equal_nan=True):
            raise ConfigError(
                f"{self._name}: the returns of its {self.generation} generations lead to another theta here than "
                "where they were saved; go on with the same versions of its libraries, on the same kind of processor"
            )

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Let the library draw from the algorithm's own generators, in one thread, and keep its warnings to itself.

        With more threads BLAS adds in other orders.
        """
        with self._generators.installed(), self._blas.limit(limits=1, user_api="blas"), warnings_as("ignore"):
            yield

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn what the library raises into an error of one line."""
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{self._name} failed at generation {self.generation} with {len(self.theta):,} parameters and "
                f"algorithm.population_size={self.population_size} ({textwrap.shorten(reason(error), 160)}); "
                f"try {self._advice}"
            ) from error


class _Generators:
    """Own states of Python's and NumPy's global generators, from which libraries draw here and there."""

    def __init__(self, seed: int) -> None:
        self._states = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put these states into the global generators for a while; afterwards they are as they were."""
        with in_turn():
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
