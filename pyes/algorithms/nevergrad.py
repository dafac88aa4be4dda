"""The optimisers of Nevergrad (Rapin and Teytaud 2018) that can be asked for many points at once."""

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import Vector
from pyes.algorithms.library import LibraryAlgorithm
from pyes.config import NevergradConfig, refusal
from pyes.errors import ConfigError, missing


class Nevergrad(LibraryAlgorithm):
    """Any optimiser of Nevergrad's registry.

    The center is what the optimiser recommends: for many of them the best point seen, which in a noisy task is one that
    was lucky.

    Parameters
    ----------
    theta : float32 (dim,)    where to start, unless told otherwise; copied
    seed : int                decides, with the returns, every number of the run
    **settings                keys of `pyes.config.NevergradConfig`: optimizer, population_size, sigma, init, budget

    Raises
    ------
    ConfigError    Nevergrad is missing, it has no such optimiser, or the optimiser cannot do with these settings

    Examples
    --------
    >>> search = pyes.Nevergrad(np.zeros(3, np.float32), optimizer="TwoPointsDE", population_size=30, sigma=0.5)
    >>> for _ in range(100):
    ...     population = search.ask()
    ...     search.tell([function(search.member(i)) for i in range(len(population))])
    """

    def __init__(self, theta: NDArray[np.float32], *, seed: int = 0, **settings: Any) -> None:
        self._config = NevergradConfig(**settings)
        super().__init__(
            theta, seed, self._config.population_size, f"algorithm=nevergrad (optimizer={self._config.optimizer})"
        )

    @property
    def _advice(self) -> str:
        return "another optimizer or population_size" + (", or budget=N" if self._config.budget is None else "")

    def _open(self, start: NDArray[np.float64], generator: np.random.RandomState) -> None:
        nevergrad, config = _import_package(), self._config
        registry = nevergrad.optimizers.registry
        if config.optimizer not in registry:
            raise _unknown(config.optimizer, registry)
        space = nevergrad.p.Array(shape=start.shape)
        if config.init == "theta":
            space = nevergrad.p.Array(init=start).set_mutation(sigma=config.sigma)
        space.random_state = generator
        make = _sized(registry[config.optimizer], config.population_size)
        self._optimizer = make(space, budget=config.budget, num_workers=config.population_size)

    def _points(self) -> NDArray[np.float64]:
        self._asked = [self._optimizer.ask() for _ in range(self._config.population_size)]
        return np.stack([candidate.value for candidate in self._asked])

    def _minimize(self, losses: NDArray[np.float64]) -> Vector:
        for candidate, loss in zip(self._asked, losses.tolist(), strict=True):
            self._optimizer.tell(candidate, loss)
        center: Vector = self._optimizer.provide_recommendation().value.astype(np.float32)
        return center


def _unknown(name: str, names: Iterable[str]) -> ConfigError:
    """Return the refusal of an optimiser that is not there; hundreds are, so only those that are alike are named."""
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
