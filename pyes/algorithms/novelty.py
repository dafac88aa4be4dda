"""Novelty search in evolution strategies (Conti et al. 2018): NS-ES, NSR-ES and NSRA-ES.

Owns the meta-population of centers, who of them moves, and what counts of returns and of novelty. How a center moves is
that of OpenAI-ES; what is novel, the archive's affair.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms import optimizers
from pyes.algorithms.archive import Archive
from pyes.algorithms.gradient import GradientAlgorithm
from pyes.algorithms.population import Population
from pyes.config import NoveltyConfig, NSESConfig, NSRAESConfig, NSRESConfig, OptimizerConfig
from pyes.errors import ConfigError
from pyes.numerics import shaping, streams
from pyes.numerics.noise import NoiseTable

_UNIT = 2**53


class NoveltySearch(GradientAlgorithm):
    """What the three share (Conti et al. 2018, algorithms 1 to 3).

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
    theta, table, seed, threads    as for `pyes.OpenAIES`
    optimizer : OptimizerConfig    as there; each center has one of its own
    **settings                     keys of the algorithm's class in `pyes.config`: population_size, sigma, parents, ...

    Raises
    ------
    ConfigError    an impossible setting, or a table smaller than theta
    """

    CONFIG: ClassVar[type[NoveltyConfig]]

    def __init__(
        self,
        theta: NDArray[np.float32],
        table: NoiseTable | None = None,
        *,
        seed: int = 0,
        optimizer: OptimizerConfig | None = None,
        threads: int = 1,
        **settings: Any,
    ) -> None:
        config = self._config = self.CONFIG(**settings)
        super().__init__(theta, table, config, seed=seed, threads=threads)
        count, dim = config.parents, len(self.theta)
        self._centers = self._starts(count)
        self._optimizers = [optimizers.make(optimizer or OptimizerConfig(), dim) for _ in range(count)]
        self._archive = Archive(config.neighbours)
        self._unseen = list(range(count))  # centers that are evaluated in this generation
        self._own_returns = np.full(count, np.nan)
        self._own_behaviours: NDArray[np.float32] | None = None
        self._told: NDArray[np.float32] | None = None

    def _starts(self, count: int) -> NDArray[np.float32]:
        """Return where the centers begin: float32 (count, dim)."""
        offsets = streams.starts(self._seed, count, self._bound)
        scales = np.full(count, self.sigma, np.float32)
        scales[0] = 0
        population, centers = (
            Population.around(0, self.theta, offsets, scales),
            np.empty((count, len(self.theta)), "f4"),
        )
        for index, out in enumerate(centers):
            population.member(index, self._table.array, out)
        return centers

    def _draw(self) -> Population:
        offsets, scales = self._perturbations()
        rows, own = np.full(len(offsets), self._choose()), len(self._unseen)
        return Population(
            self.generation,
            self._centers,
            np.append(rows, self._unseen),
            np.append(offsets, np.zeros(own, np.int64)),
            np.append(scales, np.zeros(own, np.float32)),
        )

    def _choose(self) -> int:
        """Choose the center that moves, with a probability in proportion to its novelty (section 3.1)."""
        count = len(self._centers)
        share = float(streams.parents(self._seed, self.generation, 1, _UNIT)[0]) / _UNIT
        novelties = np.zeros(count)
        if self._own_behaviours is not None:
            novelties = self._archive.novelty(self._own_behaviours)
            known = novelties[~np.isnan(novelties)]
            novelties[np.isnan(novelties)] = known.max(initial=0.0)  # where nobody has come to could be anything
        bounds = np.add.accumulate(novelties)
        if bounds[-1] == 0:
            return int(share * count)
        return min(int(np.searchsorted(bounds, share * bounds[-1], side="right")), count - 1)

    def tell(self, returns: NDArray[np.float64] | list[float], behaviours: NDArray[np.float32] | None = None) -> None:
        """Take what the members came to, in member order, and go on to the next generation.

        Parameters
        ----------
        returns : (n,)               NaN: the member failed
        behaviours : (n, size)       what characterises each member; not finite: it counts as the least novel

        Raises
        ------
        ValueError    one of them is missing or of another shape
        """
        size = len(self.ask())
        self._told = None if behaviours is None else np.asarray(behaviours, np.float32)
        if self._told is None or self._told.ndim != 2 or len(self._told) != size:
            got = "None" if self._told is None else f"shape {self._told.shape}"
            raise ValueError(f"behaviours: got {got}, expected ({size}, numbers of a behaviour), one row a member")
        super().tell(returns)

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        assert self._told is not None
        count, chosen = len(population) - len(self._unseen), int(population.rows[0])
        self._meet(returns[count:], self._told[count:])
        ranks = shaping.centered_ranks(returns[:count])
        novelty_ranks = shaping.centered_ranks(self._archive.novelty(self._told[:count]))
        share = self._return_share
        weights = np.float32(share) * ranks + np.float32(1 - share) * novelty_ranks
        self._climb(self._centers[chosen], self._optimizers[chosen], population.offsets[:count], weights)
        self._unseen = [chosen]
        if not np.isnan(self._own_returns).all():
            self.theta[:] = self._centers[np.nanargmax(self._own_returns)]

    @property
    def _return_share(self) -> float:
        """What the returns count for; the rest is for novelty."""
        raise NotImplementedError

    def _meet(self, returns: NDArray[np.float64], behaviours: NDArray[np.float32]) -> None:
        """Take what the centers came to that had not been evaluated where they are now."""
        if self._own_behaviours is None:
            self._own_behaviours = np.full((len(self._centers), behaviours.shape[1]), np.nan, np.float32)
        self._own_returns[self._unseen] = returns
        self._own_behaviours[self._unseen] = behaviours
        self._archive.add(behaviours)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as arrays and numbers; a copy."""
        own = self._own_behaviours
        return super().state_dict() | {
            "centers": self._centers.copy(),
            "optimizer": {str(index): each.state_dict() for index, each in enumerate(self._optimizers)},
            "archive": self._archive.behaviours.copy(),
            "unseen": list(self._unseen),
            "own_returns": self._own_returns.copy(),
            "own_behaviours": None if own is None else own.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises
        ------
        ConfigError    it is of another number of centers
        """
        if len(state["centers"]) != len(self._centers):
            saved = len(state["centers"])
            raise ConfigError(f"algorithm.parents: got {len(self._centers)}, expected {saved}, as many as there are")
        super().load_state_dict(state)
        self._centers[:], self._own_returns[:] = state["centers"], state["own_returns"]
        for index, each in enumerate(self._optimizers):
            each.load_state_dict(state["optimizer"][str(index)])
        self._archive.behaviours, self._unseen = state["archive"].copy(), [int(index) for index in state["unseen"]]
        own = state["own_behaviours"]
        self._own_behaviours = None if own is None else own.copy()


class NSES(NoveltySearch):
    """NS-ES (Conti et al. 2018, algorithm 1): the centers go where none has been; returns count for nothing.

    Its keys are those of `pyes.config.NSESConfig`.
    """

    CONFIG = NSESConfig

    @property
    def _return_share(self) -> float:
        return 0.0


class NSRES(NoveltySearch):
    """NSR-ES (Conti et al. 2018, algorithm 2): returns and novelty count for one half each.

    Its keys are those of `pyes.config.NSRESConfig`.
    """

    CONFIG = NSRESConfig

    @property
    def _return_share(self) -> float:
        return 0.5


class NSRAES(NoveltySearch):
    """NSRA-ES (Conti et al. 2018, algorithm 3): novelty counts for more while no center has a new best return.

    Its keys are those of `pyes.config.NSRAESConfig`.
    """

    CONFIG = NSRAESConfig
    _config: NSRAESConfig

    def __init__(self, theta: NDArray[np.float32], table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)
        self._weight = self._config.return_weight
        self._best: float | None = None  # return of a center
        self._waited = 0  # generations

    @property
    def _return_share(self) -> float:
        return self._weight

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        count = len(population) - len(self._unseen)
        super()._learn(population, returns)
        self._adapt(returns[count:])

    def _adapt(self, returns: NDArray[np.float64]) -> None:
        """Shift the weight by what the centers came to (algorithm 3, from line 12)."""
        config, known = self._config, returns[~np.isnan(returns)]
        best = float(known.max(initial=-np.inf))
        if self._best is None:
            self._best = best
        elif best > self._best:
            self._best, self._waited = best, 0
            self._weight = min(1.0, self._weight + config.return_weight_step)
        else:
            self._waited += 1
        if self._waited >= config.return_weight_patience:
            self._waited = 0
            self._weight = max(0.0, self._weight - config.return_weight_step)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as arrays and numbers; a copy."""
        return super().state_dict() | {"return_weight": self._weight, "best": self._best, "waited": self._waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self._weight, self._best, self._waited = state["return_weight"], state["best"], int(state["waited"])
