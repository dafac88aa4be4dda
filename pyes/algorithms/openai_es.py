"""OpenAI's evolution strategy (Salimans et al. 2017, algorithm 2) on the shared noise table."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms import optimizers
from pyes.algorithms.attempts import Attempts
from pyes.algorithms.base import Optimized, accepts
from pyes.algorithms.gradient import estimate_gradient
from pyes.algorithms.population import Population, Vector
from pyes.config import AlgorithmConfig, NotNegative, OptimizerForm, Positive, RestartConfig, Scheduled
from pyes.config.registry import ALGORITHMS
from pyes.numerics import shaping
from pyes.numerics.noise import NoiseTable


@dataclass(frozen=True, kw_only=True)
class OpenAIESConfig(AlgorithmConfig):
    """Settings of OpenAI-ES."""

    grows = True
    optimized = True

    name: Literal["openai_es"] = "openai_es"
    sigma: Annotated[float | str, Scheduled(Positive, norm=True)] = 0.3
    learning_rate: Annotated[float | str, Scheduled(Positive, norm=True)] = 0.1
    weight_decay: Annotated[float | str, Scheduled(NotNegative)] = 0.0
    weight_decay_mode: Literal["decoupled", "classic"] = "decoupled"
    mirrored: bool = True  # members 2k and 2k + 1 are theta + sigma * eps and theta - sigma * eps
    shaping: Literal["centered_ranks", "z_score", "none"] = "centered_ranks"
    restart: RestartConfig = field(default_factory=RestartConfig)

    @property
    def pairs(self) -> bool:
        """Whether members 2k and 2k + 1 are a mirrored pair."""
        return self.mirrored

    @property
    def relative(self) -> bool:
        """Whether returns are shaped, and no attempt is given up for them."""
        return self.shaping != "none" and self.restart.after is None


@dataclass(frozen=True)
class _Arguments(OpenAIESConfig, Optimized): ...


@ALGORITHMS.register("openai_es")
class OpenAIES(Attempts):
    """Evolution strategy with one sigma, shaped returns and a first-order optimiser.

    The gradient estimate is ``sum_i weight_i * eps_i / population_size``, where a weight is a member's shaped return
    (for mirrored pairs the difference within the pair); it is not divided by sigma.

    Parameters
    ----------
    theta, table, seed, threads
        As for `pyes.Algorithm`.
    optimizer : OptimizerConfig, mapping or str
        How the gradient moves theta; Adam by default.
    **settings
        The fields of `OpenAIESConfig`: population_size, sigma, learning_rate ...

    Examples
    --------
    >>> es = pyes.OpenAIES(np.zeros(3, np.float32), population_size=50, sigma=0.1, learning_rate=0.05)
    >>> for _ in range(200):
    ...     population = es.ask()
    ...     es.tell([function(es.member(i)) for i in range(len(population))])
    """

    Config = OpenAIESConfig
    config: OpenAIESConfig
    title = "OpenAI-ES"
    saved = ("_optimizer",)
    sigma: float
    learning_rate: float
    weight_decay: float

    @accepts(_Arguments)
    def __init__(
        self,
        theta: Vector,
        table: NoiseTable | None = None,
        *,
        optimizer: OptimizerForm | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(theta, table, **settings)
        self._optimizer_form = optimizer
        self._gradient = np.empty_like(self.theta)
        self._begin()

    def _begin(self) -> None:
        self._optimizer = optimizers.make(self._optimizer_form, len(self.theta), self.config.default_optimizer)
        self.gradient_norm = 0.0

    def _learned(self) -> Iterator[tuple[str, Vector]]:
        yield from super()._learned()
        yield from optimizers.learned(self._optimizer)

    def _draw(self) -> Population:
        return self.perturbed(self.sigma, mirrored=self.config.mirrored)

    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        if self._given_up(returns):
            return
        config = self.config
        weights = shaping.SHAPINGS[config.shaping](returns)
        estimate_gradient(self._table, population.offsets, weights, self._gradient, self._threads, config.mirrored)
        self.gradient_norm = shaping.norm(self._gradient)
        optimizers.ascend(
            self._optimizer,
            self.theta,
            self._gradient,
            self.learning_rate,
            self.weight_decay,
            config.weight_decay_mode,
        )
