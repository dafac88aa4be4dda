"""Policy gradients with parameter-based exploration (Sehnke et al. 2010), as Toklu et al. 2020 use it with ClipUp."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.algorithms import optimizers
from pyes.algorithms.base import Optimized, accepts
from pyes.algorithms.population import Population, Vector
from pyes.algorithms.separate_sigmas import SeparateSigmas
from pyes.config import AlgorithmConfig, NotNegative, OptimizerForm, Positive, Range, RestartConfig, Scheduled
from pyes.config.registry import ALGORITHMS
from pyes.numerics import noise, shaping
from pyes.numerics.noise import NoiseTable


@dataclass(frozen=True, kw_only=True)
class PGPEConfig(AlgorithmConfig):
    """Settings of PGPE."""

    grows = True
    default_optimizer = "clipup"
    optimized = True
    scaled = True
    pairs = True

    name: Literal["pgpe"] = "pgpe"
    sigma: Annotated[float, Positive] = 0.3  # of every parameter, at first
    sigma_learning_rate: Annotated[float, NotNegative] = 0.1
    sigma_max_change: Annotated[float, Range(0, 1, open_maximum=True)] = 0.2  # share of sigma, a generation
    learning_rate: Annotated[float | str, Scheduled(Positive, norm=True)] = 0.15
    shaping: Literal["centered_ranks", "z_score", "none"] = "centered_ranks"
    restart: RestartConfig = field(default_factory=RestartConfig)

    @property
    def relative(self) -> bool:
        """Whether returns are shaped, and no attempt is given up for them."""
        return self.shaping != "none" and self.restart.after is None


@dataclass(frozen=True)
class _Arguments(PGPEConfig, Optimized): ...


@ALGORITHMS.register("pgpe")
class PGPE(SeparateSigmas):
    """Mirrored sampling with a sigma of each parameter, which follows its own gradient.

    With the shaped returns ``w+`` and ``w-`` of a pair and their mean ``b`` over all members, the gradient of theta is
    the mean over pairs of ``(w+ - w-) / 2 * sigma * eps``, that of sigma the mean of
    ``((w+ + w-) / 2 - b) * sigma * (eps**2 - 1)`` (Sehnke et al. 2010, whose learning rates are in proportion to
    sigma squared). The optimiser moves theta; sigma changes by at most ``sigma_max_change`` of itself.

    Parameters
    ----------
    theta, table, seed, threads
        As for `pyes.Algorithm`.
    optimizer : OptimizerConfig, mapping or str
        How the gradient moves theta; ClipUp by default.
    **settings
        The fields of `PGPEConfig`: population_size, sigma, learning_rate ...

    Attributes
    ----------
    deviation : float32 (dim,)
        The sigma of each parameter; ``sigma`` is their mean.
    """

    Config = PGPEConfig
    config: PGPEConfig
    title = "PGPE"
    saved = ("_optimizer",)
    learning_rate: float

    @accepts(_Arguments)
    def __init__(
        self,
        theta: Vector,
        table: NoiseTable | None = None,
        *,
        optimizer: OptimizerForm | None = None,
        **settings: Any,
    ) -> None:
        self._optimizer_form = optimizer
        super().__init__(theta, table, **settings)

    def _begin(self) -> None:
        super()._begin()
        self._optimizer = optimizers.make(self._optimizer_form, len(self.theta), self.config.default_optimizer)

    def _learned(self) -> Iterator[tuple[str, Vector]]:
        yield from super()._learned()
        yield from optimizers.learned(self._optimizer)

    def _draw(self) -> Population:
        return self.perturbed(1.0, mirrored=True, deviation=self.deviation)

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        if self._given_up(returns):
            return
        config, size = self.config, len(population)
        weights = shaping.SHAPINGS[config.shaping](returns).astype(np.float64)
        plus, minus = weights[::2], weights[1::2]
        spread = (plus + minus - 2 * shaping.ordered_sum(weights) / size) / size
        noise.weighted_moments(
            self._table,
            np.ascontiguousarray(population.offsets[::2]),
            ((plus - minus) / size).astype(np.float32),
            spread.astype(np.float32),
            self._gradient,
            self._deviation_gradient,
            self._threads,
        )
        self._gradient *= self.deviation
        self.gradient_norm = shaping.norm(self._gradient)
        self._optimizer.step(self.theta, self._gradient, self.learning_rate, 0.0)
        _core.deviation_step(
            self.deviation, self._deviation_gradient, config.sigma_learning_rate, config.sigma_max_change
        )
