"""Policy gradients with parameter-based exploration (Sehnke et al. 2010), as Toklu et al. 2020 use it with ClipUp."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.algorithms import optimizers
from pyes.algorithms.deviating import DeviatingAlgorithm
from pyes.algorithms.population import Population
from pyes.config import OptimizerConfig, PGPEConfig
from pyes.numerics import shaping
from pyes.numerics.noise import NoiseTable


class PGPE(DeviatingAlgorithm):
    """Mirrored sampling with a sigma of each parameter, which follows its own gradient.

    With the shaped returns ``w+`` and ``w-`` of a pair and their mean ``b`` over all members, the gradient of theta is
    the mean over pairs of ``(w+ - w-) / 2 * sigma * eps``, that of sigma the mean of
    ``((w+ + w-) / 2 - b) * sigma * (eps**2 - 1)`` (Sehnke et al. 2010, whose learning rates are in proportion to
    sigma squared). The optimiser moves theta; sigma changes by at most ``sigma_max_change`` of itself.

    Parameters
    ----------
    theta : float32 (dim,)           where to start; copied
    table : NoiseTable               where the perturbations come from; None builds a private one
    seed : int                       decides, with the returns, every number of the run
    optimizer : OptimizerConfig      ClipUp unless told otherwise
    threads : int                    for large sums; the result does not depend on it
    **settings                       keys of `pyes.config.PGPEConfig`: population_size, sigma, learning_rate ...

    Raises
    ------
    ConfigError    an impossible setting, or a table smaller than theta
    """

    population_size: int
    learning_rate: float

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
        self._config = PGPEConfig(**settings)
        super().__init__(theta, table, self._config.sigma, seed=seed, threads=threads)
        self._optimizer = optimizers.make(optimizer or OptimizerConfig(name="clipup"), len(self.theta))
        self.learning_rate = self._config.learning_rate
        self.population_size = self._config.population_size

    def _draw(self) -> Population:
        offsets, scales = self._pairs(self.population_size, 1.0)
        return Population.around(self.generation, self.theta, offsets, scales, self.deviation)

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        config, size = self._config, len(population)
        weights = shaping.SHAPINGS[config.shaping](returns).astype(np.float64)
        plus, minus = weights[::2], weights[1::2]
        spread = (plus + minus - 2 * shaping.ordered_sum(weights) / size) / size
        offsets = np.ascontiguousarray(population.offsets[::2])
        self._moments(offsets, ((plus - minus) / size).astype(np.float32), spread.astype(np.float32))
        self._gradient *= self.deviation
        self.gradient_norm = float(np.linalg.norm(self._gradient))
        self._optimizer.step(self.theta, self._gradient, self.learning_rate, 0.0)
        _core.deviation_step(
            self.deviation, self._deviation_gradient, config.sigma_learning_rate, config.sigma_max_change
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as arrays and numbers; a copy."""
        return super().state_dict() | {"optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self._optimizer.load_state_dict(state["optimizer"])
