"""The genetic algorithm of Such et al. (2017, algorithm 1): truncation selection, mutations from the noise table."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms import lineage
from pyes.algorithms.base import Algorithm, Common, accepts, standard_deviations
from pyes.algorithms.lineage import Lineage
from pyes.algorithms.population import Population, Vector
from pyes.config import AlgorithmConfig, AtLeastOne, Positive, Scheduled, refusal
from pyes.config.registry import ALGORITHMS
from pyes.numerics import streams
from pyes.numerics.noise import NoiseTable


@dataclass(frozen=True, kw_only=True)
class GAConfig(AlgorithmConfig):
    """Settings of the genetic algorithm."""

    relative = True

    name: Literal["ga"] = "ga"
    sigma: Annotated[float | str, Scheduled(Positive, norm=True)] = 0.1  # standard deviation of a mutation
    parents: Annotated[int, AtLeastOne] = 4  # the best of a generation, which have offspring in the next
    elites: Annotated[int, AtLeastOne] = 1  # the best of a generation, which are evaluated again in the next

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of."""
        return self.parents

    def check(self) -> None:
        """Refuse more parents than members, more elites than parents."""
        super().check()
        size = self.population_min
        if self.parents > size:
            expected = f"at most algorithm.population_size, which is {size}"
            raise refusal("algorithm.parents", self.parents, expected)
        if self.elites > self.parents or self.elites == size:
            most = min(self.parents, size - 1)
            expected = f"at most {most}: elites are parents, and not the whole population"
            raise refusal("algorithm.elites", self.elites, expected)


@dataclass(frozen=True)
class _Arguments(GAConfig, Common): ...


@ALGORITHMS.register("ga")
class GA(Algorithm):
    """Genetic algorithm without crossover.

    A generation has the elites first: the ``elites`` best members of the last one, as they are, so that each gets a
    return of its own again. All others are ``parent + sigma * eps``, the parent drawn uniformly from the ``parents``
    best of the last generation; in the first generation it is theta. Of equal members, the first one is the better; one
    that failed is never a parent. theta is the elite with the best return of its second evaluation (in the paper, of
    ten elites over 30 episodes more; here it costs no episodes beside those of the population); after the first
    generation, its best member. A return is what `tell` is told: in a run with ``task.reward_offset_per_step``.

    Parameters
    ----------
    theta, table, seed, threads
        As for `pyes.Algorithm`; theta is what the first generation mutates.
    **settings
        The fields of `GAConfig`: population_size, sigma, parents, elites, ...

    Notes
    -----
    A saved state holds theta as it was at first and the mutations of each parent since, 12 bytes each.
    """

    Config = GAConfig
    config: GAConfig
    title = "GA"
    sigma: float

    @accepts(_Arguments)
    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)
        self._origin = self.theta.copy()
        self._center = Lineage.none()
        self._lineages = [Lineage.none()]  # of the parents, the best one first
        self._parents = self._origin[None]  # the same as vectors

    def _draw(self) -> Population:
        size, elites = self.population_size, self._elites
        rows = streams.parents(self._seed, self.generation, size, len(self._parents))
        scales = standard_deviations(np.full(size, self.sigma))
        rows[:elites], scales[:elites] = np.arange(elites), 0
        return Population(self.generation, self._parents, rows, self.offsets(size), scales)

    @property
    def _elites(self) -> int:
        """Members of this generation that are elites of the last."""
        return min(self.config.elites, len(self._parents)) if self.generation else 0

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        order = np.argsort(-returns, kind="stable")  # NaN last
        order = order[~np.isnan(returns[order])]
        if len(order):
            candidates = order[order < self._elites]
            self._settle(population, int(candidates[0] if len(candidates) else order[0]))
            self._select(population, order[: self.config.parents].tolist())

    def _settle(self, population: Population, member: int) -> None:
        """Make a member the center."""
        population.member(member, self._table.array).write(self.theta)
        self._center = self._lineage(population, member)

    def _select(self, population: Population, members: list[int]) -> None:
        """Make these members the parents of the next generation."""
        parents = np.empty((len(members), len(self.theta)), np.float32)
        for member, out in zip(members, parents, strict=True):
            population.member(member, self._table.array).write(out)
        self._lineages = [self._lineage(population, member) for member in members]
        self._parents = parents

    def _lineage(self, population: Population, member: int) -> Lineage:
        parent = self._lineages[int(population.rows[member])]
        return parent.mutated(int(population.offsets[member]), float(population.scales[member]))

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to go on, as arrays and numbers; a copy."""
        state = super().state_dict() | {"origin": self._origin.copy()}
        del state["theta"]  # the center's lineage leads to it
        return state | {"lineages": lineage.pack([self._center, *self._lineages])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; of more parents than the settings allow, the best ones stay.

        Raises
        ------
        ConfigError
            It is of another seed, or another size of theta.
        """
        self._check_saved(state, "lineages", vector="origin")
        self._origin[:] = state["origin"]
        self._center, *lineages = lineage.unpack(state["lineages"])
        self._lineages = lineages[: self.config.parents]
        self._parents = np.empty((len(self._lineages), len(self.theta)), np.float32)
        for each, out in zip([self._center, *self._lineages], [self.theta, *self._parents], strict=True):
            each.rebuild(self._origin, self._table, out, self._threads)
        super().load_state_dict(state | {"theta": self.theta})
