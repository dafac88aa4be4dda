"""The genetic algorithm of Such et al. (2017, algorithm 1): truncation selection, mutations from the noise table."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms import lineage
from pyes.algorithms.base import TableAlgorithm
from pyes.algorithms.lineage import Lineage
from pyes.algorithms.population import Population
from pyes.config import GAConfig
from pyes.numerics import streams
from pyes.numerics.noise import NoiseTable


class GA(TableAlgorithm):
    """Genetic algorithm without crossover.

    A generation has the elites first: the ``elites`` best members of the last one, as they are, so that each gets a
    return of its own again. All others are ``parent + sigma * eps``, the parent drawn uniformly from the ``parents``
    best of the last generation; in the first generation it is theta. Of equal members, the first one is the better; one
    that failed is never a parent. theta is the elite with the best return of its second evaluation (in the paper, of
    ten elites over 30 episodes more; here it costs no episodes beside those of the population); after the first
    generation, its best member.

    Parameters
    ----------
    theta : float32 (dim,)           what the first generation mutates; copied
    table : NoiseTable               where the mutations come from; None builds a private one
    seed : int                       decides, with the returns, every number of the run
    threads : int                    for large sums; the result does not depend on it
    **settings                       keys of `pyes.config.GAConfig`: population_size, sigma, parents, elites, ...

    Raises
    ------
    ConfigError    an impossible setting, or a table smaller than theta

    Notes
    -----
    A saved state holds theta as it was at first and the mutations of each parent since, 12 bytes each.
    """

    sigma: float

    def __init__(
        self,
        theta: NDArray[np.float32],
        table: NoiseTable | None = None,
        *,
        seed: int = 0,
        threads: int = 1,
        **settings: Any,
    ) -> None:
        super().__init__(theta, table, seed=seed, threads=threads)
        self._config = GAConfig(**settings)
        self._origin = self.theta.copy()
        self._lineages = [Lineage.none()]  # of the parents, the best one first
        self._parents = self._origin[None]  # the same as vectors
        self._center = Lineage.none()
        self.sigma = self._config.sigma

    def _draw(self) -> Population:
        size, elites = self._config.population_size, self._elites
        rows = streams.parents(self._seed, self.generation, size, len(self._parents))
        scales = np.full(size, self.sigma, np.float32)
        rows[:elites], scales[:elites] = np.arange(elites), 0
        return Population(self.generation, self._parents, rows, self._offsets(size), scales)

    @property
    def _elites(self) -> int:
        """Members of this generation that are elites of the last."""
        return min(self._config.elites, len(self._parents)) if self.generation else 0

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        order = np.argsort(-returns, kind="stable")  # NaN last
        order = order[~np.isnan(returns[order])]
        if len(order):
            candidates = order[order < self._elites]
            self._settle(population, int(candidates[0] if len(candidates) else order[0]))
            self._select(population, order[: self._config.parents].tolist())
        self.sigma = max(self.sigma * self._config.sigma_decay, self._config.sigma_min)

    def _settle(self, population: Population, member: int) -> None:
        """Make a member the center."""
        population.member(member, self._table.array, self.theta)
        self._center = self._lineage(population, member)

    def _select(self, population: Population, members: list[int]) -> None:
        """Make these members the parents of the next generation."""
        parents = np.empty((len(members), len(self.theta)), np.float32)
        for member, out in zip(members, parents, strict=True):
            population.member(member, self._table.array, out)
        self._lineages = [self._lineage(population, member) for member in members]
        self._parents = parents

    def _lineage(self, population: Population, member: int) -> Lineage:
        parent = self._lineages[int(population.rows[member])]
        return parent.mutated(int(population.offsets[member]), float(population.scales[member]))

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as arrays and numbers; a copy."""
        return {
            "generation": self.generation,
            "sigma": self.sigma,
            "origin": self._origin.copy(),
            "lineages": lineage.pack([self._center, *self._lineages]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; of more parents than there are to be, the best ones stay."""
        self._origin[:] = state["origin"]
        self._center, *lineages = lineage.unpack(state["lineages"])
        self._lineages = lineages[: self._config.parents]
        self._parents = np.empty((len(self._lineages), len(self.theta)), np.float32)
        for each, out in zip([self._center, *self._lineages], [self.theta, *self._parents], strict=True):
            each.rebuild(self._origin, self._table, out, self._threads)
        super().load_state_dict({"theta": self.theta, "generation": state["generation"]})
        self.sigma = float(state["sigma"])
