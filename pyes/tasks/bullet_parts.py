"""Shared parts of the timesteps of all Bullet environments: one call sets all motors, one reads all joints.

Must not know any environment. Invariant: the engine gets the same torques as from the environment itself.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyes.errors import TaskError
from pyes.tasks.base import Step


class Stepper(Protocol):
    """Computes the timesteps of an environment."""

    def begin(self) -> None:
        """Take over after the environment's own reset."""

    def step(self, action: NDArray[Any]) -> Step:
        """Apply one action for one timestep."""


class Motors:
    """The motors of one body, set by one call."""

    def __init__(self, client: Any, joints: Sequence[Any], strengths: Sequence[float]) -> None:
        indices = [joint.jointIndex for joint in joints]
        self._set = partial(client.setJointMotorControlArray, body_of(joints[0]), indices, client.TORQUE_CONTROL)
        self._strengths = strengths

    def drive(self, action: NDArray[Any]) -> None:
        """Set torques proportional to the action, clipped to [-1, 1]."""
        clipped = [-1.0 if x < -1.0 else 1.0 if x > 1.0 else x for x in finite_values(action)]
        self._set(forces=[strength * x for strength, x in zip(self._strengths, clipped, strict=True)])


def body_of(part: Any) -> int:
    """Return the engine's index of the body of a part or joint."""
    return int(part.bodies[part.bodyIndex])


def joint_states(client: Any, joints: Sequence[Any]) -> Callable[[], Any]:
    """Return a function that reads the states of joints of one body."""
    return partial(client.getJointStates, body_of(joints[0]), [joint.jointIndex for joint in joints])


def finite_values(action: ArrayLike) -> list[float]:
    """Return the components of an action; TaskError unless all are finite."""
    values: list[float] = np.asarray(action).tolist()
    if not math.isfinite(sum(values)):
        raise TaskError(f"the action is {values}, expected finite numbers")
    return values
