"""OpenAI's evolution strategy (Salimans et al. 2017, algorithm 2) on the shared noise table."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import _core, noise, optimizers, shaping, streams
from pyes.config import AlgorithmConfig, OptimizerConfig
from pyes.noise import NoiseTable
from pyes.population import Population


class OpenAIES:
    """Evolution strategy with one sigma, shaped returns and a first-order optimiser.

    The gradient estimate is ``sum_i weight_i * eps_i / population_size``, where a weight is a member's shaped return
    (for mirrored pairs the difference within the pair); it is not divided by sigma.

    Parameters
    ----------
    theta : float32 (dim,)           where to start; copied
    table : NoiseTable               where the perturbations come from; None builds a private one
    seed : int                       decides, with the returns, every number of the run
    optimizer : OptimizerConfig      Adam unless told otherwise
    threads : int                    for large sums; the result does not depend on it
    **settings                       keys of `pyes.config.AlgorithmConfig`: population_size, sigma, learning_rate ...

    Raises
    ------
    ConfigError    an impossible setting, or a table smaller than theta

    Examples
    --------
    >>> es = pyes.OpenAIES(np.zeros(3, np.float32), population_size=50, sigma=0.1, learning_rate=0.05)
    >>> for _ in range(200):
    ...     population = es.ask()
    ...     es.tell([function(es.member(i)) for i in range(len(population))])
    """

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
        self._config = AlgorithmConfig(**settings)
        self.theta = np.array(theta, np.float32)
        dim = len(self.theta)
        self._table = NoiseTable(max(2**20, 256 * dim), seed=0) if table is None else table
        self._bound = self._table.offset_bound(dim)
        self._seed, self._threads = seed, threads
        self._optimizer = optimizers.make(optimizer or OptimizerConfig(), dim)
        self._gradient = np.empty(dim, np.float32)
        self._population: Population | None = None
        self.generation = 0
        self.sigma = self._config.sigma
        self.learning_rate = self._config.learning_rate
        self.gradient_norm = 0.0

    def ask(self) -> Population:
        """Return the members of the current generation."""
        if self._population is None:
            self._population = self._draw()
        return self._population

    def _draw(self) -> Population:
        config, size = self._config, self._config.population_size
        offsets = streams.offsets(self._seed, self.generation, size // 2 if config.mirrored else size, self._bound)
        scales = np.full(size, self.sigma, np.float32)
        if config.mirrored:
            offsets = np.repeat(offsets, 2)
            scales[1::2] *= -1
        return Population(self.generation, offsets, scales)

    def member(self, index: int) -> NDArray[np.float32]:
        """Return theta of one member of the current generation, float32 (dim,), a new array."""
        population = self.ask()
        out = np.empty_like(self.theta)
        _core.perturb(
            self.theta, self._table.array, int(population.offsets[index]), float(population.scales[index]), out
        )
        return out

    def tell(self, returns: NDArray[np.float64] | list[float]) -> None:
        """Move theta by the members' returns, in member order; NaN marks a member that failed.

        Raises
        ------
        ValueError    the number of returns is not the population size
        """
        config, population = self._config, self.ask()
        returns = np.asarray(returns, np.float64)
        if returns.shape != (len(population),):
            raise ValueError(f"returns: got shape {returns.shape}, expected ({len(population)},), one a member")
        weights = shaping.SHAPINGS[config.shaping](returns)
        offsets = population.offsets
        if config.mirrored:
            weights, offsets = weights[::2] - weights[1::2], np.ascontiguousarray(offsets[::2])
        weights /= np.float32(len(population))
        noise.weighted_sum(self._table, offsets, weights, self._gradient, self._threads)
        self.gradient_norm = float(np.linalg.norm(self._gradient))
        decay = config.weight_decay
        if config.weight_decay_mode == "classic":
            self._gradient -= np.float32(decay) * self.theta
            decay = 0.0
        self._optimizer.step(self.theta, self._gradient, self.learning_rate, decay)
        self._advance()

    def _advance(self) -> None:
        config = self._config
        self._population = None
        self.generation += 1
        self.sigma = max(self.sigma * config.sigma_decay, config.sigma_min)
        self.learning_rate = max(self.learning_rate * config.learning_rate_decay, config.learning_rate_min)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as arrays and numbers; a copy."""
        return {
            "theta": self.theta.copy(),
            "generation": self.generation,
            "sigma": self.sigma,
            "learning_rate": self.learning_rate,
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._population = None
        self.theta[:] = state["theta"]
        self.generation = int(state["generation"])
        self.sigma, self.learning_rate = float(state["sigma"]), float(state["learning_rate"])
        self._optimizer.load_state_dict(state["optimizer"])
