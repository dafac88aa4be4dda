"""OpenAI's evolution strategy (Salimans et al. 2017, algorithm 2) on the shared noise table."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms import optimizers
from pyes.algorithms.gradient import GradientAlgorithm
from pyes.algorithms.population import Population
from pyes.config import OpenAIESConfig, OptimizerConfig
from pyes.numerics import shaping
from pyes.numerics.noise import NoiseTable


class OpenAIES(GradientAlgorithm):
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
    **settings                       keys of `pyes.config.OpenAIESConfig`: population_size, sigma, learning_rate ...

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
        self._config = OpenAIESConfig(**settings)
        super().__init__(theta, table, self._config, seed=seed, threads=threads)
        self._optimizer_config = optimizer or OptimizerConfig()
        self._start = self.theta.copy()
        self._begin()

    def _begin(self) -> None:
        """Begin an attempt: everything as it was at the start, but for the noise, which never repeats."""
        self.theta[:] = self._start
        self._optimizer = optimizers.make(self._optimizer_config, len(self.theta))
        self._begin_schedules()
        self._age = 0  # generations of the attempt

    def _draw(self) -> Population:
        return Population.around(self.generation, self.theta, *self._perturbations())

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        config = self._config
        if self._age == config.restart.after and shaping.mean(returns) < config.restart.below:
            self._begin()
            return
        self._age += 1
        weights = shaping.SHAPINGS[config.shaping](returns)
        self._climb(self.theta, self._optimizer, population.offsets, weights)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as arrays and numbers; a copy."""
        return super().state_dict() | {"age": self._age, "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self._age = int(state["age"])
        self._optimizer.load_state_dict(state["optimizer"])
