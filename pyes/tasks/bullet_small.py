"""Timesteps of the pendulums and of Reacher with as few calls of the engine as possible.

Like `pyes.tasks.bullet_walkers`, for the smaller environments. Invariant: results equal those of the environment's own
`step` bit for bit.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.tasks.base import Step
from pyes.tasks.bullet_parts import Motors, body_of, joint_states


class Pendulum:
    """InvertedPendulum and its swing-up: a cart on a rail that balances a pole."""

    def __init__(self, env: Any) -> None:
        client, robot = env._p, env.robot
        self._swingup = robot.swingup
        self._simulate = client.stepSimulation
        self._motors = Motors(client, [robot.slider], [100])
        self._joint_states = joint_states(client, [robot.slider, robot.j1])

    def begin(self) -> None:
        """Nothing is kept from the reset."""

    def step(self, action: NDArray[Any]) -> Step:
        """Apply one action for one timestep."""
        self._motors.drive(action)
        self._simulate()
        (x, vx, *_), (theta, theta_dot, *_) = self._joint_states()
        cosine = np.cos(theta)
        observation = np.array([x, vx, cosine, np.sin(theta), theta_dot], np.float32)
        if self._swingup:
            return observation, float(cosine), False, False, {}
        return observation, 1.0, abs(theta) > 0.2, False, {}


class DoublePendulum:
    """InvertedDoublePendulum: a cart on a rail that balances two poles, one on the other."""

    def __init__(self, env: Any) -> None:
        client, robot = env._p, env.robot
        self._simulate = client.stepSimulation
        self._motors = Motors(client, [robot.slider], [200])
        self._joint_states = joint_states(client, [robot.slider, robot.j1, robot.j2])
        self._pole_state = partial(client.getLinkState, body_of(robot.pole2), robot.pole2.bodyPartIndex)

    def begin(self) -> None:
        """Nothing is kept from the reset."""

    def step(self, action: NDArray[Any]) -> Step:
        """Apply one action for one timestep."""
        self._motors.drive(action)
        self._simulate()
        (x, vx, *_), (theta, theta_dot, *_), (gamma, gamma_dot, *_) = self._joint_states()
        pole_x, _, pole_z = map(np.float64, self._pole_state()[0])
        angles = [np.cos(theta), np.sin(theta), theta_dot, np.cos(gamma), np.sin(gamma), gamma_dot]
        # NumPy's squares, as in the environment: C's pow might round differently.
        penalty = 0.01 * pole_x**2 + (pole_z + 0.3 - 2) ** 2
        observation = np.array([x, vx, pole_x, *angles], np.float32)
        return observation, 10.0 - float(penalty), bool(pole_z + 0.3 <= 1), False, {}


class Reacher:
    """Reacher: an arm of two joints whose fingertip should reach a target."""

    def __init__(self, env: Any) -> None:
        client, robot = env._p, env.robot
        arm = [robot.central_joint, robot.elbow_joint]
        target = [robot.jdict["target_x"], robot.jdict["target_y"]]
        self._env = env
        self._simulate = client.stepSimulation
        self._motors = Motors(client, arm, [0.05, 0.05])
        self._arm_states = joint_states(client, arm)
        self._ranges = [(joint.lowerLimit, joint.upperLimit - joint.lowerLimit) for joint in arm]
        self._target_states = joint_states(client, target)
        self._fingertip_state = partial(client.getLinkState, body_of(robot.fingertip), robot.fingertip.bodyPartIndex)
        self._target_state = partial(client.getLinkState, body_of(robot.target), robot.target.bodyPartIndex)
        self.begin()

    def begin(self) -> None:
        """Take over after the environment's own reset."""
        self._potential = self._env.potential

    def step(self, action: NDArray[Any]) -> Step:
        """Apply one action for one timestep."""
        self._motors.drive(action)
        self._simulate()
        (theta, theta_dot), (gamma, gamma_dot) = map(_relative, self._ranges, self._arm_states())
        (target_x, *_), (target_y, *_) = self._target_states()
        to_target = np.array(self._fingertip_state()[0]) - np.array(self._target_state()[0])
        before = self._potential
        self._potential = -100 * math.sqrt(to_target.dot(to_target))
        work = np.abs(action[0] * theta_dot) + np.abs(action[1] * gamma_dot)
        cost = -0.10 * work - 0.01 * (np.abs(action[0]) + np.abs(action[1]))
        stuck = -0.1 if abs(abs(gamma) - 1) < 0.01 else 0.0
        place = [target_x, target_y, to_target[0], to_target[1]]
        observation = np.array([*place, np.cos(theta), np.sin(theta), theta_dot, gamma, gamma_dot], np.float32)
        return observation, float(self._potential - before) + float(cost) + stuck, False, False, {}


def _relative(limits: tuple[float, float], joint: Sequence[Any]) -> tuple[float, float]:
    """Return a joint's position scaled from its limits to [-1, 1], and its speed in units of 10 rad/s."""
    low, span = limits
    return 2 * (joint[0] - low) / span - 1.0, 0.1 * joint[1]
