"""Optimisers: how an ascent direction moves theta. The kernels do the arithmetic; the state is here.

Weight decay, one convention for all of them: *decoupled* decay (Loshchilov & Hutter 2019) takes
``learning_rate * weight_decay * theta`` off theta at each step, whatever the gradient's scale; *classic* decay adds
``-weight_decay * theta`` to the gradient, whose scale depends on the population (it is ``sum(weight * noise) /
population_size``, not divided by sigma), as in the published OpenAI code.
"""

from collections.abc import Iterator
from typing import Any, Literal, Protocol

import numpy as np

from pyes import _core
from pyes.algorithms.population import Vector
from pyes.config import OptimizerConfig, OptimizerForm
from pyes.errors import ConfigError


class Optimizer(Protocol):
    """Moves theta along a gradient, uphill."""

    @property
    def moments(self) -> tuple[Vector, ...]:
        """What it keeps of all gradients so far: each float32 (dim,)."""

    def step(self, theta: Vector, gradient: Vector, learning_rate: float, weight_decay: float) -> None:
        """Move theta in place; ``weight_decay`` is the decoupled one."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to go on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1), ascending."""

    def __init__(self, dim: int, beta1: float, beta2: float, epsilon: float) -> None:
        self._m, self._v = np.zeros(dim, np.float32), np.zeros(dim, np.float32)
        self._steps = 0
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon

    def step(self, theta: Vector, gradient: Vector, learning_rate: float, weight_decay: float) -> None:
        """Move theta in place."""
        self._steps += 1
        _core.adam_step(
            theta,
            gradient,
            self._m,
            self._v,
            self._steps,
            learning_rate,
            self._beta1,
            self._beta2,
            self._epsilon,
            weight_decay,
        )

    @property
    def moments(self) -> tuple[Vector, ...]:
        """Means of the gradient and of its squares."""
        return self._m, self._v

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the step count."""
        return {"m": self._m.copy(), "v": self._v.copy(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        _check_keys(state, "m", "v", "steps")
        self._m[:], self._v[:], self._steps = state["m"], state["v"], int(state["steps"])


class SGD:
    """Gradient ascent with momentum: ``velocity = momentum * velocity + gradient``."""

    _SAVED = "velocity"  # its name in the state

    def __init__(self, dim: int, momentum: float) -> None:
        self._velocity = np.zeros(dim, np.float32)
        self._momentum = momentum

    def step(self, theta: Vector, gradient: Vector, learning_rate: float, weight_decay: float) -> None:
        """Move theta in place."""
        _core.sgd_step(theta, gradient, self._velocity, learning_rate, self._momentum, weight_decay)

    @property
    def moments(self) -> tuple[Vector, ...]:
        """The velocity."""
        return (self._velocity,)

    def state_dict(self) -> dict[str, Any]:
        """Return the velocity."""
        return {self._SAVED: self._velocity.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        _check_keys(state, self._SAVED)
        self._velocity[:] = state[self._SAVED]


class ClipUp(SGD):
    """ClipUp (Toklu et al. 2020): normalised gradient, momentum, velocity clipped to ``max_speed``."""

    _SAVED = "clipped_velocity"  # a length of theta, where that of SGD is a sum of gradients

    def __init__(self, dim: int, momentum: float, max_speed: float) -> None:
        super().__init__(dim, momentum)
        self._max_speed = max_speed

    def step(self, theta: Vector, gradient: Vector, learning_rate: float, weight_decay: float) -> None:
        """Move theta in place."""
        _core.clipup_step(theta, gradient, self._velocity, learning_rate, self._momentum, self._max_speed, weight_decay)


def _check_keys(state: dict[str, Any], *expected: str) -> None:
    """Refuse the state of another kind of optimiser."""
    if state.keys() != set(expected):
        raise ConfigError(
            f"optimizer: got a state of {', '.join(state)}, expected {', '.join(expected)}: it is of another optimizer"
        )


def make(form: OptimizerForm | None, dim: int, default: str = "adam") -> Optimizer:
    """Make an optimiser; one without a name is the ``default``.

    Raises
    ------
    ConfigError
        See `OptimizerConfig.of`.
    """
    config = OptimizerConfig.of(form, default)
    if config.name == "adam":
        return Adam(dim, config.beta1, config.beta2, config.epsilon)
    if config.name == "sgd":
        return SGD(dim, config.momentum)
    return ClipUp(dim, config.momentum, config.max_speed)


def learned(optimizer: Optimizer) -> Iterator[tuple[str, Vector]]:
    """Yield the moments of an optimiser with what a message calls them."""
    for each in optimizer.moments:
        yield "a moment of the optimizer", each


def ascend(
    optimizer: Optimizer,
    theta: Vector,
    gradient: Vector,
    learning_rate: float,
    weight_decay: float,
    mode: Literal["decoupled", "classic"],
) -> None:
    """Move theta along a gradient, in place, with either kind of weight decay; the gradient may be overwritten."""
    if mode == "classic":
        gradient -= np.float32(weight_decay) * theta
        weight_decay = 0.0
    optimizer.step(theta, gradient, learning_rate, weight_decay)
