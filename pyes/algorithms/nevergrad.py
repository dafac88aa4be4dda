"""The optimisers of Nevergrad (Rapin and Teytaud 2018) that can be asked for many points at once."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import Common, accepts
from pyes.algorithms.library import LibraryAlgorithm, LibraryConfig
from pyes.algorithms.population import Vector
from pyes.config import AtLeastOne, Positive, refusal
from pyes.config.registry import ALGORITHMS
from pyes.errors import ConfigError, missing
from pyes.numerics.noise import NoiseTable


@dataclass(frozen=True, kw_only=True)
class NevergradConfig(LibraryConfig):
    """Settings of Nevergrad: which of its optimisers, and where it starts."""

    packages = ("nevergrad", "cma", "scipy")

    name: Literal["nevergrad"] = "nevergrad"
    optimizer: str = "ES"  # any name of Nevergrad's registry
    sigma: Annotated[float, Positive] = 0.3  # with init=theta: unit of the search, a standard deviation
    init: Literal["theta", "own"] = "theta"  # own: Nevergrad's, which is 0 and a unit of 1
    budget: Annotated[int, AtLeastOne] | None = None  # evaluations, for optimisers that plan by it


@dataclass(frozen=True)
class _Arguments(NevergradConfig, Common): ...


@ALGORITHMS.register("nevergrad")
class Nevergrad(LibraryAlgorithm):
    """Any optimiser of Nevergrad's registry.

    The center is what the optimiser recommends: for many of them the best point seen, which in a noisy task owes much
    to luck.

    Parameters
    ----------
    theta, table, seed, threads
        As for `pyes.Algorithm`.
    **settings
        The fields of `NevergradConfig`: optimizer, population_size, sigma, init, budget.

    Raises
    ------
    ConfigError
        Nevergrad is missing, it has no such optimiser, or the optimiser refuses these settings.

    Examples
    --------
    >>> search = pyes.Nevergrad(np.zeros(3, np.float32), optimizer="TwoPointsDE", population_size=30, sigma=0.5)
    >>> for _ in range(100):
    ...     population = search.ask()
    ...     search.tell([function(search.member(i)) for i in range(len(population))])
    """

    Config = NevergradConfig
    config: NevergradConfig
    title = "Nevergrad"

    @accepts(_Arguments)
    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)

    @property
    def _name(self) -> str:
        return f"algorithm=nevergrad (optimizer={self.config.optimizer})"

    @property
    def _advice(self) -> str:
        return "another optimizer or population_size" + (", or budget=N" if self.config.budget is None else "")

    def _open(self, start: NDArray[np.float64], generator: np.random.RandomState) -> None:
        nevergrad, config = _import_package(), self.config
        registry = nevergrad.optimizers.registry
        if config.optimizer not in registry:
            raise _unknown(config.optimizer, registry)
        space = nevergrad.p.Array(shape=start.shape)
        if config.init == "theta":
            space = nevergrad.p.Array(init=start).set_mutation(sigma=config.sigma)
        space.random_state = generator
        make = _sized(registry[config.optimizer], self.population_size)
        self._optimizer = make(space, budget=config.budget, num_workers=self.population_size)

    def _points(self) -> NDArray[np.float64]:
        self._asked = [self._optimizer.ask() for _ in range(self.population_size)]
        return np.stack([candidate.value for candidate in self._asked])

    def _minimize(self, losses: NDArray[np.float64]) -> Vector:
        for candidate, loss in zip(self._asked, losses.tolist(), strict=True):
            self._optimizer.tell(candidate, loss)
        center: Vector = self._optimizer.provide_recommendation().value.astype(np.float32)
        return center


def _unknown(name: str, names: Iterable[str]) -> ConfigError:
    """Return the refusal of an unknown optimiser; there are hundreds, so only similar names are listed."""
    close = difflib.get_close_matches(name, sorted(names), n=3) or ["OldCMA", "TwoPointsDE", "PSO"]
    expected = f"a name of Nevergrad's registry, for example {', '.join(map(repr, close))}"
    return refusal("algorithm.optimizer", name, expected)


def _sized(entry: Any, size: int) -> Any:
    """Return an optimiser with a population of ``size`` where its settings have one, else as it is."""
    settings = entry.config() if hasattr(entry, "config") else {}
    if "popsize" not in settings:
        return entry
    if settings.get("offsprings"):
        # There, popsize are the parents: as many of the offspring as by default.
        parents = max(1, size * settings["popsize"] // settings["offsprings"])
        settings |= {"popsize": parents, "offsprings": size}
    else:
        settings["popsize"] = size
    return type(entry)(**settings).set_name(entry.name)


def _import_package() -> Any:
    try:
        import nevergrad
    except ImportError as error:
        raise missing("algorithm=nevergrad", "nevergrad", "nevergrad", error) from error
    return nevergrad
