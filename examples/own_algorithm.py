"""An algorithm of one's own: the (1+1)-ES with the 1/5 success rule (Rechenberg 1973).

python examples/own_algorithm.py
"""

from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Any

import numpy as np

import pyes
from pyes.config import Positive, Range


@dataclass(frozen=True, kw_only=True)
class OnePlusOneConfig(pyes.AlgorithmConfig):
    population_size: Annotated[int, Range(minimum=2)] = 2  # the parent and its children
    sigma: Annotated[float, Positive] = 0.3  # at first
    factor: Annotated[float, Range(minimum=1)] = 1.5  # by which sigma grows after a success


class OnePlusOne(pyes.Algorithm):
    Config = OnePlusOneConfig
    saved = ("sigma",)

    def __init__(self, theta: np.ndarray, *arguments: Any, **settings: Any) -> None:
        super().__init__(theta, *arguments, **settings)
        self.sigma = self.config.sigma

    def _draw(self) -> pyes.Population:
        return self.perturbed([0.0] + [self.sigma] * (self.population_size - 1))  # member 0 is the parent

    def _learn(self, population: pyes.Population, returns: np.ndarray) -> None:
        parent, *children = np.where(np.isnan(returns), -np.inf, returns)  # NaN: the member failed
        if np.isfinite(children).any() and max(children) >= parent:
            self.theta[:] = self.member(1 + int(np.argmax(children)))
        success = np.mean(np.greater(children, parent)) > 1 / 5
        self.sigma *= self.config.factor if success else 1 / sqrt(sqrt(self.config.factor))


if __name__ == "__main__":
    best = pyes.maximize(lambda x: -float(x @ x), np.ones(5), "own_algorithm:OnePlusOne", generations=300)
    print(best.theta, best.value)
