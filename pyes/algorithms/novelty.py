"""Novelty search in evolution strategies (Conti et al. 2018): NS-ES, NSR-ES and NSRA-ES.

Owns the centers, which of them moves, and the weights of returns and of novelty. A center moves as that of OpenAI-ES
does; how novel a behaviour is, the archive knows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms import optimizers
from pyes.algorithms.archive import Archive
from pyes.algorithms.base import Algorithm, Optimized, accepts
from pyes.algorithms.gradient import estimate_gradient
from pyes.algorithms.population import Population, Vector
from pyes.config import AlgorithmConfig, AtLeastOne, NotNegative, OptimizerForm, Positive, Range, Scheduled, Share
from pyes.config.registry import ALGORITHMS
from pyes.errors import ConfigError
from pyes.numerics import shaping, streams
from pyes.numerics.noise import NoiseTable

_UNIT = 2**53


@dataclass(frozen=True, kw_only=True)
class NoveltyConfig(AlgorithmConfig):
    """Settings that the three kinds of novelty search have in common."""

    grows = True
    optimized = True
    needs_behaviours = True

    sigma: Annotated[float | str, Scheduled(Positive, norm=True)] = 0.3
    learning_rate: Annotated[float | str, Scheduled(Positive, norm=True)] = 0.1
    weight_decay: Annotated[float | str, Scheduled(NotNegative)] = 0.0
    weight_decay_mode: Literal["decoupled", "classic"] = "decoupled"
    mirrored: bool = True  # members 2k and 2k + 1 are center + sigma * eps and center - sigma * eps
    parents: Annotated[int, AtLeastOne] = 5  # centers, of which one moves in a generation
    neighbours: Annotated[int, AtLeastOne] = 10  # nearest behaviours of the archive, whose mean distance is the novelty

    @property
    def pairs(self) -> bool:
        """Whether members 2k and 2k + 1 are a mirrored pair."""
        return self.mirrored

    def capacity(self, population_size: int) -> int:
        """Return how many members a generation has at most: in the first one every center as well."""
        return population_size + self.parents

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of."""
        return self.parents

    def is_fixed(self, key: str) -> bool:
        """Return whether a run cannot go on with another value: each center has a state of its own."""
        return key == "parents"


class NoveltySearch(Algorithm):
    """What the three have in common (Conti et al. 2018, algorithms 1 to 3).

    Each generation one of the ``parents`` centers is chosen, with a probability in proportion to its novelty, and moves
    along its ``population_size`` perturbations, weighted by the centered ranks of their returns and of their novelty.
    The first center begins at theta, the others at ``theta + sigma * eps``.

    A generation has one member more, its last: the center that moved in the generation before, as it is now (in the
    first generation all centers). So each place that a center moves to enters the archive, as in the paper, though not
    until the next generation, which saves an evaluation that everything would have to wait for. A center that was just
    moved is chosen by where it was before.

    theta is the center with the highest return of its own, the latest known.

    Parameters
    ----------
    theta, table, seed, threads
        As for `pyes.Algorithm`.
    optimizer : OptimizerConfig, mapping or str
        How the gradient moves a center; Adam by default. Each center has one of its own.
    **settings
        The fields of `Config`: population_size, sigma, parents, ...
    """

    config: NoveltyConfig
    saved: ClassVar[tuple[str, ...]] = (
        "_centers", "_archive", "_unseen", "_own_returns", "_own_behaviours",
    )  # fmt: skip
    sigma: float
    learning_rate: float
    weight_decay: float
    #: Weight of the returns; the rest is that of novelty.
    return_weight: float

    def __init__(
        self,
        theta: Vector,
        table: NoiseTable | None = None,
        *,
        optimizer: OptimizerForm | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(theta, table, **settings)
        config, dim = self.config, len(self.theta)
        self.gradient_norm = 0.0
        self._gradient = np.empty_like(self.theta)
        self._centers = self._starts(config.parents)
        self._optimizers = [optimizers.make(optimizer, dim, config.default_optimizer) for _ in range(config.parents)]
        self._archive = Archive(config.neighbours)
        self._unseen = list(range(config.parents))  # centers that are evaluated in this generation
        self._own_returns = np.full(config.parents, np.nan)
        self._own_behaviours: NDArray[np.float32] | None = None
        self._told: NDArray[np.float32] | None = None

    def _starts(self, count: int) -> NDArray[np.float32]:
        """Return where the centers begin: float32 (count, dim)."""
        offsets = streams.starts(self._seed, count, self._bound)
        scales = np.full(count, self.sigma, np.float32)
        scales[0] = 0
        population = Population.around(0, self.theta, offsets, scales)
        centers = np.empty((count, len(self.theta)), np.float32)
        for index, out in enumerate(centers):
            population.member(index, self._table.array).write(out)
        return centers

    def _learned(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        yield "a center", self._centers
        for each in self._optimizers:
            yield from optimizers.learned(each)

    def _draw(self) -> Population:
        around, own = self.perturbed(self.sigma, mirrored=self.config.mirrored), len(self._unseen)
        rows = np.full(len(around), self._choose())
        return Population(
            self.generation,
            self._centers.copy(),
            np.append(rows, self._unseen),
            np.append(around.offsets, np.zeros(own, np.int64)),
            np.append(around.scales, np.zeros(own, np.float32)),
        )

    def _choose(self) -> int:
        """Choose the center that moves, with a probability in proportion to its novelty (section 3.1)."""
        count = len(self._centers)
        share = float(streams.parents(self._seed, self.generation, 1, _UNIT)[0]) / _UNIT
        novelties = np.zeros(count)
        if self._own_behaviours is not None:
            novelties = self._archive.novelty(self._own_behaviours)
            known = novelties[~np.isnan(novelties)]
            novelties[np.isnan(novelties)] = known.max(initial=0.0)  # an unevaluated center counts as the most novel
        bounds = np.add.accumulate(novelties)
        if bounds[-1] == 0:
            return int(share * count)
        return min(int(np.searchsorted(bounds, share * bounds[-1], side="right")), count - 1)

    def tell(
        self,
        returns: NDArray[np.float64] | list[float],
        behaviours: NDArray[np.float32] | None = None,
        *,
        timesteps: int | None = None,
    ) -> None:
        """Learn from the returns and behaviours of all members, in member order, and go on to the next generation.

        Parameters
        ----------
        returns : (n,)
            NaN where a member failed.
        behaviours : (n, size)
            What characterises each member; one that is not finite counts as the least novel.

        Raises
        ------
        ValueError
            One of them is missing or of another shape.
        """
        count, size = len(self.ask()), None if self._own_behaviours is None else self._own_behaviours.shape[1]
        self._told = None if behaviours is None else np.asarray(behaviours, np.float32)
        shape = None if self._told is None else self._told.shape
        if shape is None or len(shape) != 2 or shape[0] != count or not shape[1] or shape[1] != (size or shape[1]):
            got = "None" if shape is None else f"shape {shape}"
            raise ValueError(
                f"behaviours: got {got}, expected ({count}, {size or 'numbers of a behaviour'}), one row a member"
            )
        super().tell(returns, timesteps=timesteps)

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        assert self._told is not None
        count, chosen = len(population) - len(self._unseen), int(population.rows[0])
        self._note(returns[count:], self._told[count:])
        ranks = shaping.centered_ranks(returns[:count])
        novelty_ranks = shaping.centered_ranks(self._archive.novelty(self._told[:count]))
        weights = np.float32(self.return_weight) * ranks + np.float32(1 - self.return_weight) * novelty_ranks
        self._move(chosen, population.offsets[:count], weights)
        self._unseen = [chosen]
        if not np.isnan(self._own_returns).all():
            self.theta[:] = self._centers[np.nanargmax(self._own_returns)]

    def _note(self, returns: NDArray[np.float64], behaviours: NDArray[np.float32]) -> None:
        """Store the results of the centers that had not been evaluated where they are now."""
        if self._own_behaviours is None:
            self._own_behaviours = np.full((len(self._centers), behaviours.shape[1]), np.nan, np.float32)
        self._own_returns[self._unseen] = returns
        self._own_behaviours[self._unseen] = behaviours
        self._archive.add(behaviours)

    def _move(self, chosen: int, offsets: NDArray[np.int64], weights: NDArray[np.float32]) -> None:
        """Move a center along its weighted perturbations."""
        config = self.config
        estimate_gradient(self._table, offsets, weights, self._gradient, self._threads, config.mirrored)
        self.gradient_norm = shaping.norm(self._gradient)
        optimizers.ascend(
            self._optimizers[chosen],
            self._centers[chosen],
            self._gradient,
            self.learning_rate,
            self.weight_decay,
            config.weight_decay_mode,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to go on, as arrays and numbers; a copy."""
        states = {str(index): each.state_dict() for index, each in enumerate(self._optimizers)}
        return super().state_dict() | {"optimizer": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises
        ------
        ConfigError
            It is of another number of centers.
        """
        self._check_saved(state, "optimizer")
        saved = len(state["centers"])
        if saved != len(self._centers):
            raise ConfigError(f"algorithm.parents: got {len(self._centers)}, expected {saved}, as many as there are")
        for index, each in enumerate(self._optimizers):
            each.load_state_dict(state["optimizer"][str(index)])
        super().load_state_dict(state)


@dataclass(frozen=True, kw_only=True)
class NSESConfig(NoveltyConfig):
    """Settings of NS-ES."""

    name: Literal["ns_es"] = "ns_es"


@dataclass(frozen=True)
class _NSESArguments(NSESConfig, Optimized): ...


@ALGORITHMS.register("ns_es")
class NSES(NoveltySearch):
    """NS-ES (Conti et al. 2018, algorithm 1): the centers seek new behaviours; returns have no weight."""

    Config = NSESConfig
    config: NSESConfig
    title = "NS-ES"
    return_weight = 0.0

    @accepts(_NSESArguments)
    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)


@dataclass(frozen=True, kw_only=True)
class NSRESConfig(NoveltyConfig):
    """Settings of NSR-ES."""

    name: Literal["nsr_es"] = "nsr_es"


@dataclass(frozen=True)
class _NSRESArguments(NSRESConfig, Optimized): ...


@ALGORITHMS.register("nsr_es")
class NSRES(NoveltySearch):
    """NSR-ES (Conti et al. 2018, algorithm 2): returns and novelty have one half of the weight each."""

    Config = NSRESConfig
    config: NSRESConfig
    title = "NSR-ES"
    return_weight = 0.5

    @accepts(_NSRESArguments)
    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)


@dataclass(frozen=True, kw_only=True)
class NSRAESConfig(NoveltyConfig):
    """Settings of NSRA-ES."""

    name: Literal["nsra_es"] = "nsra_es"
    return_weight: Annotated[float, Range(0, 1)] = 1.0  # of the returns, at first; the rest is that of novelty
    return_weight_step: Annotated[float, Share] = 0.05  # more on a new best return, less ...
    return_weight_patience: Annotated[int, AtLeastOne] = 50  # ... after as many generations without one


@dataclass(frozen=True)
class _NSRAESArguments(NSRAESConfig, Optimized): ...


@ALGORITHMS.register("nsra_es")
class NSRAES(NoveltySearch):
    """NSRA-ES (Conti et al. 2018, algorithm 3): novelty gains weight while no center has a new best return."""

    Config = NSRAESConfig
    config: NSRAESConfig
    title = "NSRA-ES"
    saved = (*NoveltySearch.saved, "return_weight", "_best", "_waited")

    @accepts(_NSRAESArguments)
    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)
        self.return_weight = self.config.return_weight
        self._best: float | None = None  # return of a center
        self._waited = 0  # generations

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        count = len(population) - len(self._unseen)
        super()._learn(population, returns)
        self._adapt(returns[count:])

    def _adapt(self, returns: NDArray[np.float64]) -> None:
        """Shift the weight by the returns of the centers (algorithm 3, from line 12)."""
        config, known = self.config, returns[~np.isnan(returns)]
        best = float(known.max(initial=-np.inf))
        if self._best is None:
            self._best = best
        elif best > self._best:
            self._best, self._waited = best, 0
            self.return_weight = min(1.0, self.return_weight + config.return_weight_step)
        else:
            self._waited += 1
        if self._waited >= config.return_weight_patience:
            self._waited = 0
            self.return_weight = max(0.0, self.return_weight - config.return_weight_step)
