"""Timesteps of Ant, HalfCheetah, Hopper, Walker2D and Humanoid with as few calls of the engine as possible.

Owns the arithmetic of one timestep: torques, observation, reward, end. Joints, strengths, costs and the condition for
being alive are read from the environment's own objects. One call each reads all joints, all links and all contacts,
where the environment makes a call for each part.
Must not know how a world is built or reset. Invariant: results of `step` equal those of the environment's own `step`
bit for bit. NumPy is therefore called wherever the environment calls it, with the same type, shape and strides, since
another cosine or order of summation may change the last bits; everything else uses plain floats.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.tasks.base import Step
from pyes.tasks.bullet_parts import Motors, body_of, finite_values, joint_states

Vector = tuple[float, float, float]
_LOW, _HIGH = np.float32(-5), np.float32(5)
_AT_LIMIT = float(np.float32(0.99))  # the environment compares joint positions in single precision


class Walker:
    """Ant, HalfCheetah, Hopper, Walker2D and Humanoid: a robot that runs along the x axis.

    The environment must have been reset at least once, so that its parts and joints are known.
    """

    def __init__(self, env: Any) -> None:
        client, robot = env._p, env.robot
        body = body_of(robot.robot_body)
        floor = robot.parts["floor"]
        self._env, self._robot = env, robot
        self._simulate = client.stepSimulation
        self._motors = _walker_motors(client, robot)
        self._joint_states = joint_states(client, robot.ordered_joints)
        self._ranges = [(joint.lowerLimit, joint.upperLimit - joint.lowerLimit) for joint in robot.ordered_joints]
        self._joint_slice = slice(8, 8 + 2 * len(self._ranges))
        self._contacts = partial(client.getContactPoints, body, body_of(floor))
        self._feet_links = [robot.parts[foot].bodyPartIndex for foot in robot.foot_list]
        self._euler = client.getEulerFromQuaternion
        self._turn = np.eye(3)
        self._place_parts(client, robot, body)
        self.begin()

    def _place_parts(self, client: Any, robot: Any, body: int) -> None:
        """Find the source of each part's position: a link, the base of the body, or the fixed floor."""
        indices = [part.bodyPartIndex for part in robot.parts.values() if body_of(part) == body]
        links = [index for index in indices if index >= 0]
        self._link_states = partial(client.getLinkStates, body, links)
        self._base_place = indices.index(-1) if -1 in indices else None
        self._base_pose = partial(client.getBasePositionAndOrientation, body)
        self._parts_xy = np.empty((len(indices) + 1, 3))[:, :2]  # x and y of each part, with the strides of x, y, z
        self._parts_xy[-1] = robot.parts["floor"].initialPosition[:2]
        root = robot.robot_body.bodyPartIndex
        self._root_place = links.index(root) if root >= 0 else None
        self._base_velocity = partial(client.getBaseVelocity, body)
        self._root_velocity = partial(client.getLinkState, body, root, computeLinkVelocity=1)

    def begin(self) -> None:
        """Take over after the environment's own reset."""
        self._potential = self._env.potential
        self._feet_contact = self._robot.feet_contact
        self._initial_z = float(self._robot.initial_z)

    def step(self, action: NDArray[Any]) -> Step:
        """Apply one action for one timestep."""
        env, robot = self._env, self._robot
        self._motors.drive(action)
        self._simulate()
        unclipped, pitch = self._observe()
        observation = np.minimum(np.maximum(unclipped, _LOW), _HIGH)
        alive = env._alive = float(robot.alive_bonus(observation[0] + robot.initial_z, pitch))
        # Clipped observations are finite or NaN: their sum of squares is finite unless one is NaN.
        terminated = bool(env._isDone()) or not math.isfinite(observation.dot(observation))
        progress = float(self._progress())
        self._feel_floor()
        reward = alive + progress + self._power_cost(action, unclipped) + self._limit_cost(unclipped)
        return observation, reward, terminated, False, {}

    def _observe(self) -> tuple[NDArray[np.float32], float]:
        """Return the unclipped observation and the pitch of the torso."""
        robot = self._robot
        (_, _, z), orientation, velocity = self._look()
        roll, pitch, yaw = self._euler(orientation)
        angle = np.arctan2(robot.walk_target_y - self._y, robot.walk_target_x - self._x) - yaw
        turn = self._turn
        turn[0, 0] = turn[1, 1] = np.cos(-yaw)
        turn[1, 0] = sine = np.sin(-yaw)
        turn[0, 1] = -sine
        vx, vy, vz = np.dot(turn, np.array(velocity)).tolist()
        values = [z - self._initial_z, np.sin(angle), np.cos(angle), 0.3 * vx, 0.3 * vy, 0.3 * vz, roll, pitch]
        for (low, span), joint in zip(self._ranges, self._joint_states(), strict=True):
            values.append(2 * (joint[0] - low) / span - 1.0)
            values.append(0.1 * joint[1])
        values += self._feet_contact.tolist()
        return np.array(values, np.float32), pitch

    def _look(self) -> tuple[Vector, Sequence[float], Vector]:
        """Return position, orientation and velocity of the torso; store the mean position of all parts."""
        links = self._link_states()
        positions = [link[0] for link in links]
        if self._root_place is None:
            position, orientation = self._base_pose()
            velocity = self._base_velocity()[0]
        else:
            position, orientation = links[self._root_place][:2]
            velocity = self._root_velocity()[6]
        if self._base_place is not None:
            positions.insert(self._base_place, position if self._root_place is None else self._base_pose()[0])
        xy = self._parts_xy
        xy[:-1, 0] = [position[0] for position in positions]
        xy[:-1, 1] = [position[1] for position in positions]
        self._x, self._y = _mean(xy[:, 0]), _mean(xy[:, 1])
        return position, orientation, velocity

    def _progress(self) -> float:
        """Return the change of the environment's potential, which rises towards the target."""
        robot = self._robot
        to_target = np.array([robot.walk_target_y - self._y, robot.walk_target_x - self._x])
        before = self._potential
        self._potential = -math.sqrt(to_target.dot(to_target)) / self._env.scene.dt
        return float(self._potential - before)

    def _feel_floor(self) -> None:
        """Store which feet touch the floor, for the next observation."""
        touching = {contact[3] for contact in self._contacts()}
        self._feet_contact[:] = [link in touching for link in self._feet_links]

    def _power_cost(self, action: NDArray[Any], unclipped: NDArray[np.float32]) -> float:
        speeds = unclipped[self._joint_slice][1::2]
        moving = self._env.electricity_cost * _mean(np.abs(action * speeds))
        return float(moving + self._env.stall_torque_cost * _mean(np.square(action)))

    def _limit_cost(self, unclipped: NDArray[np.float32]) -> float:
        positions = unclipped[self._joint_slice].tolist()[0::2]
        return float(self._env.joints_at_limit_cost * sum(abs(position) > _AT_LIMIT for position in positions))


class _HumanoidMotors(Motors):
    """Motors whose torques are computed in the action's own type, possibly single precision."""

    def drive(self, action: NDArray[Any]) -> None:
        """Set torques proportional to the action, clipped to [-1, 1]."""
        finite_values(action)
        clipped = np.clip(action, -1, 1)
        self._set(forces=[float(strength * x) for strength, x in zip(self._strengths, clipped, strict=True)])


def _walker_motors(client: Any, robot: Any) -> Motors:
    if hasattr(robot, "motors"):
        return _HumanoidMotors(client, robot.motors, [power * robot.power for power in robot.motor_power])
    strengths = [robot.power * joint.power_coef for joint in robot.ordered_joints]
    return Motors(client, robot.ordered_joints, strengths)


def _mean(values: NDArray[Any]) -> float:
    """Return ``values.mean()``, by the same summation but without its overhead."""
    return float(np.add.reduce(values) / values.dtype.type(len(values)))
