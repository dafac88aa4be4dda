"""From settings to an algorithm; and what one from outside of pyes must keep to.

Owns the rehearsal: before a run begins, an algorithm of the user's own goes through a few generations with made-up
returns, so that one that breaks the contract ends in a line that says how, and not as a wrong result days later.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from pyes.algorithms.base import Algorithm
from pyes.algorithms.population import Population, Vector
from pyes.config import AlgorithmConfig, OptimizerConfig, algorithm_class
from pyes.errors import ConfigError, DivergedError, PyesError
from pyes.numerics.noise import NoiseTable
from pyes.system import packing
from pyes.system.text import reason

_GENERATIONS = 3


def make(
    config: AlgorithmConfig,
    optimizer: OptimizerConfig | None,
    theta: Vector,
    table: NoiseTable,
    *,
    seed: int,
    threads: int = 1,
) -> Algorithm:
    """Make the algorithm that a configuration names; without an optimiser it takes its own, if it has one."""
    settings: dict[str, Any] = dict(vars(config)) | ({"optimizer": optimizer} if config.optimized else {})
    algorithm: Algorithm = algorithm_class(config.name, config.factory)(
        theta, table=table, seed=seed, threads=threads, **settings
    )
    return algorithm


def check_contract(
    config: AlgorithmConfig,
    optimizer: OptimizerConfig | None,
    theta: Vector,
    table: NoiseTable,
    *,
    seed: int,
    behaviour_size: int = 0,
) -> None:
    """Refuse an algorithm from outside of pyes that breaks the contract of `Algorithm`; those of pyes are tested.

    Raises
    ------
    ConfigError
        Settings, members, theta or state are not what they must be, or equal returns led to another theta. The message
        is one line.
    """
    kind = algorithm_class(config.name, config.factory)
    if not kind.__module__.startswith("pyes."):
        Rehearsal(
            f"{config.chosen} ({kind.__qualname__})",
            lambda: make(config, optimizer, theta, table, seed=seed),
            len(theta),
            len(table),
            behaviour_size,
        ).run()


class Rehearsal:
    """A few generations of copies of an algorithm, which must agree.

    Parameters
    ----------
    what : str
        The algorithm, for messages.
    new : callable
        Makes it.
    dim, entries : int
        Lengths of theta and of the noise table.
    behaviour_size : int
        Numbers that characterise a member.
    """

    def __init__(self, what: str, new: Callable[[], Algorithm], dim: int, entries: int, behaviour_size: int) -> None:
        self._what, self._new, self._dim, self._entries, self._behaviours = what, new, dim, entries, behaviour_size

    def run(self) -> None:
        """Compare one that goes straight on, its equal, and one that is restored from the saved state each time.

        Raises
        ------
        ConfigError
            They differ, or one breaks the contract.
        """
        first, equal = self._made(), self._made()
        random = np.random.default_rng(0)
        for generation in range(_GENERATIONS):
            self._check_theta(first)
            self._check_population(first)
            restored = self._restored(first)
            returns = random.standard_normal(len(first.ask()))
            returns[random.integers(len(returns))] = np.nan  # a member that failed
            behaviours = random.standard_normal((len(returns), self._behaviours)).astype(np.float32)
            for each in (first, equal, restored):
                with self._failing("tell"):
                    each.tell(returns.copy(), behaviours.copy())
            if first.generation != generation + 1:
                self._refuse(
                    f"generation is {first.generation} after {generation + 1} tell", "override _learn, not tell"
                )
            self._check_same(first, equal, "another one made alike", "draw all random numbers from the seed")
            self._check_same(first, restored, "one restored from state_dict()", "name all that changes in `saved`")

    def _check_population(self, algorithm: Algorithm) -> None:
        with self._failing("ask"):
            population: Any = algorithm.ask()
            again = algorithm.ask()
        if not isinstance(population, Population):
            got = type(population).__name__
            self._refuse(f"ask returned {got}, expected a pyes.Population", "return self.perturbed(sigma)")
        size, least, most = (
            len(population),
            algorithm.population_size,
            algorithm.config.capacity(algorithm.population_size),
        )
        if not least <= size <= most:
            expected = str(least) if least == most else f"{least} to {most}"
            self._refuse(
                f"ask returned {size} members, expected {expected}, its population_size",
                "change the members or the setting",
            )
        if problem := population.problem(self._dim, self._entries):
            self._refuse(f"ask returned a Population whose {problem}", "see pyes.Population")
        if len(population.bases) > algorithm.config.bases:
            self._refuse(
                f"ask returned {len(population.bases)} bases, expected at most {algorithm.config.bases}",
                "set on_table = False in its Config if they are its members, else override `bases` there",
            )
        if not _equal(population, again):
            self._refuse("asking twice gave different members", "override _draw, not ask")

    def _check_theta(self, algorithm: Algorithm) -> None:
        theta: Any = getattr(algorithm, "theta", None)
        if theta is None:
            self._refuse("it has no theta", "call super().__init__(theta, table, seed=seed, ...) in its constructor")
        if not (isinstance(theta, np.ndarray) and theta.dtype == np.float32 and theta.shape == (self._dim,)):
            got = f"{theta.dtype} {theta.shape}" if isinstance(theta, np.ndarray) else type(theta).__name__
            self._refuse(f"theta is {got}, expected float32 ({self._dim},)", "change it in place: self.theta[:] = ...")

    def _made(self) -> Algorithm:
        with self._failing("the constructor"):
            return self._new()

    def _restored(self, algorithm: Algorithm) -> Algorithm:
        """Return another one in the same state, which went the way of a snapshot."""
        with self._failing("state_dict"):
            state = algorithm.state_dict()
        try:
            state = packing.unpack(packing.pack(state))
        except (TypeError, ValueError, AttributeError) as error:
            self._refuse(
                f"state_dict() cannot be saved ({reason(error)})",
                "keep arrays, numbers, strings, lists and dicts in it",
            )
        other = self._made()
        with self._failing("load_state_dict"):
            other.load_state_dict(state)
            again = packing.unpack(packing.pack(other.state_dict()))
        if not _equal(state, again):
            self._refuse("state_dict() is another one after it was saved and loaded", "load all that it has")
        return other

    def _check_same(self, first: Algorithm, other: Algorithm, which: str, advice: str) -> None:
        with self._failing("ask"):
            same = _equal(first.ask(), other.ask())
        if not same or not _equal(first.theta, other.theta):
            self._refuse(f"{which} differs after equal returns", advice)

    @contextmanager
    def _failing(self, where: str) -> Iterator[None]:
        try:
            yield
        except DivergedError:
            self._refuse(
                "theta or what else it learned is not finite after returns of which one is NaN, a member that failed",
                "have _learn count NaN as the worst return",
            )
        except PyesError:
            raise
        except Exception as error:
            raise ConfigError(f"{self._what}: {where} failed with {reason(error)}") from error

    def _refuse(self, problem: str, advice: str) -> NoReturn:
        raise ConfigError(f"{self._what}: {problem}; {advice}")


def _equal(first: Any, second: Any) -> bool:
    """Whether two values, states or populations are the same, NaN being equal to NaN."""
    if isinstance(first, Population):
        return _equal(vars(first), vars(second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_equal(value, second[key]) for key, value in first.items())
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=True)
    return bool(first == second or (first != first and second != second))
