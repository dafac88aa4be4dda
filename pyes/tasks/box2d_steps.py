"""Timesteps of LunarLander and BipedalWalker with as few calls of the engine as possible.

Half of a timestep, and more of the walker's, is Python around ``b2World.Step``: NumPy on single numbers, attributes
that are read several times, and ten rays that call Python back for each shape that they meet. Invariant: results equal
those of the environment's own ``step`` bit for bit, and it can take the next timestep. The same timesteps in C read and
write the bodies where Box2D keeps them, and hear of contacts there.
"""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.system.libraries import address_of, library_of, of_libm
from pyes.tasks.base import Step
from pyes.tasks.box2d_terrain import Terrain

_DRAWN = 128  # random numbers at once

#: Constants of gymnasium/envs/box2d/lunar_lander.py and bipedal_walker.py, which cannot be imported without Box2D.
_LANDING = SimpleNamespace(
    FPS=50, SCALE=30.0, VIEWPORT_W=600, VIEWPORT_H=400, LEG_DOWN=18, MAIN_ENGINE_POWER=13.0, SIDE_ENGINE_POWER=0.6,
    SIDE_ENGINE_HEIGHT=14, SIDE_ENGINE_AWAY=12, MAIN_ENGINE_Y_LOCATION=4,
)  # fmt: skip
_WALKING = SimpleNamespace(
    FPS=50, SCALE=30.0, VIEWPORT_W=600, VIEWPORT_H=400, MOTORS_TORQUE=80, SPEED_HIP=4, SPEED_KNEE=6,
    LIDAR_RANGE=160 / 30.0, TERRAIN_STEP=14 / 30.0, TERRAIN_LENGTH=200, TERRAIN_GRASS=10,
)  # fmt: skip


class Stepper:
    """Takes over the timesteps of an environment between two resets.

    Attributes
    ----------
    in_c : LanderTimestep, WalkerTimestep or None
        The same in C, which takes over, too; None until somebody wants it.
    """

    in_c: Any = None

    def __init__(self, env: Any) -> None:
        self._env, self._own_step, self._own_reset = env, env.step, env.reset
        self._begun = False

    def made_in_c(self) -> Any:
        """Return a new `in_c`; errors are those of `ctypes`, where the simulator has no such functions."""
        raise NotImplementedError

    def end(self) -> None:
        """Leave the episode to the environment, as far as it is."""
        self._begun = False
        if self.in_c is not None:
            self.in_c.give_back()

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the environment by its own reset, which takes a timestep, and take over."""
        self.end()
        observation, info = self._own_reset(**arguments)
        self._begin(observation)
        self._begun = True
        return observation, info

    def _begin(self, observation: Any) -> None:
        """Find the bodies of a new episode, whose first observation is given."""
        raise NotImplementedError

    def _takes_over(self) -> bool:
        """Whether the bodies are known; Python hears of contacts from here on."""
        if self.in_c is not None:
            self.in_c.give_back()
        return self._begun


class Lander(Stepper):
    """LunarLander, with discrete or continuous actions, without wind."""

    _HALF_WIDTH = _LANDING.VIEWPORT_W / _LANDING.SCALE / 2
    _HALF_HEIGHT = _LANDING.VIEWPORT_H / _LANDING.SCALE / 2
    _ENGINE_Y = _LANDING.MAIN_ENGINE_Y_LOCATION / _LANDING.SCALE
    _TIME = (1.0 / _LANDING.FPS, 6 * 30, 2 * 30)

    def made_in_c(self) -> Any:
        """Return a new `LanderTimestep`."""
        discrete = not self._env.continuous
        return _core.LanderTimestep(**_of_the_world(), discrete=discrete, sine=of_libm("sin"), cosine=of_libm("cos"))

    def _begin(self, observation: Any) -> None:
        """Find the bodies of a new episode, whose first observation is given."""
        env = self._env
        self._lander, (self._left, self._right) = env.lander, env.legs
        self._advance = env.world.Step
        self._ground = env.helipad_y + _LANDING.LEG_DOWN / _LANDING.SCALE
        self._random: list[float] = []
        if self.in_c is not None:
            legs = [(leg, _address(leg)) for leg in env.legs]
            world, body = _address(env.world), _address(self._lander)
            self.in_c.attach(env, legs, observation, world=world, body=body, ground=self._ground)

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        if not self._takes_over():
            return self._own_step(action)  # type: ignore[no-any-return]
        main, direction, side = self._engines(action)
        self._fire(main, direction, side)
        self._advance(*self._TIME)
        return self._outcome(main, side)

    def _engines(self, action: Any) -> tuple[float, float, float]:
        """Return the power of the main engine, and the direction and power of those at the sides."""
        if not self._env.continuous:
            choice = int(action)
            if choice != action or not 0 <= choice < 4:
                self._own_step(action)  # which refuses it
            return float(choice == 2), float(choice - 2), float(choice in (1, 3))
        main, turn = np.asarray(action, np.float64).tolist()
        power = (min(main, 1.0) + 1.0) * 0.5 if main > 0.0 else 0.0
        strength = abs(turn)
        return power, math.copysign(1.0, turn), min(strength, 1.0) if strength > 0.5 else 0.0

    def _fire(self, main: float, direction: float, side: float) -> None:
        """Draw the dispersion and apply the impulses of the engines."""
        if not self._random:
            self._random = self._env.np_random.random(_DRAWN).tolist()[::-1]
        draw = self._random.pop
        first, second = (-1.0 + 2.0 * draw()) / _LANDING.SCALE, (-1.0 + 2.0 * draw()) / _LANDING.SCALE
        if not main and not side:
            return
        lander = self._lander
        angle, position = lander.angle, lander.position
        x, y, sine, cosine = position.x, position.y, math.sin(angle), math.cos(angle)
        if main:
            along = self._ENGINE_Y + 2 * first
            ox, oy = sine * along + -cosine * second, -cosine * along - sine * second
            power = _LANDING.MAIN_ENGINE_POWER
            lander.ApplyLinearImpulse((-ox * power * main, -oy * power * main), (x + ox, y + oy), True)
        if side:
            across = 3 * second + direction * _LANDING.SIDE_ENGINE_AWAY / _LANDING.SCALE
            ox, oy = sine * first + -cosine * across, -cosine * first - sine * across
            place = (
                x + ox - sine * 17 / _LANDING.SCALE,
                y + oy + cosine * _LANDING.SIDE_ENGINE_HEIGHT / _LANDING.SCALE,
            )
            power = _LANDING.SIDE_ENGINE_POWER
            lander.ApplyLinearImpulse((-ox * power * side, -oy * power * side), place, True)

    def _outcome(self, main: float, side: float) -> Step:
        env, lander = self._env, self._lander
        position, velocity = lander.position, lander.linearVelocity
        x, y = (position.x - self._HALF_WIDTH) / self._HALF_WIDTH, (position.y - self._ground) / self._HALF_HEIGHT
        vx = velocity.x * self._HALF_WIDTH / _LANDING.FPS
        vy = velocity.y * self._HALF_HEIGHT / _LANDING.FPS
        angle = lander.angle
        left, right = float(self._left.ground_contact), float(self._right.ground_contact)
        state = (x, y, vx, vy, angle, 20.0 * lander.angularVelocity / _LANDING.FPS, left, right)
        far, fast = math.sqrt(x * x + y * y), math.sqrt(vx * vx + vy * vy)
        shaping = -100 * far - 100 * fast - 100 * abs(angle) + 10 * left + 10 * right
        reward = shaping - env.prev_shaping - main * 0.30 - side * 0.03
        env.prev_shaping = shaping
        terminated = env.game_over or abs(x) >= 1.0
        if terminated:
            reward = -100.0
        if not lander.awake:
            terminated, reward = True, 100.0
        return np.array(state, np.float32), reward, terminated, False, {}


class Walker(Stepper):
    """BipedalWalker, also hardcore."""

    _RAYS = tuple(
        (math.sin(1.5 * i / 10.0) * _WALKING.LIDAR_RANGE, -math.cos(1.5 * i / 10.0) * _WALKING.LIDAR_RANGE)
        for i in range(10)
    )
    _WIDTH, _HEIGHT = _WALKING.VIEWPORT_W / _WALKING.SCALE, _WALKING.VIEWPORT_H / _WALKING.SCALE
    _END = (_WALKING.TERRAIN_LENGTH - _WALKING.TERRAIN_GRASS) * _WALKING.TERRAIN_STEP
    _SPEEDS = (_WALKING.SPEED_HIP, _WALKING.SPEED_KNEE, _WALKING.SPEED_HIP, _WALKING.SPEED_KNEE)
    _EFFORT = np.float32(0.00035 * _WALKING.MOTORS_TORQUE)
    _TIME = (1.0 / _WALKING.FPS, 6 * 30, 2 * 30)

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._terrain = Terrain(env)

    def made_in_c(self) -> Any:
        """Return a new `WalkerTimestep`."""
        speed, torque = _functions("_ZN15b2RevoluteJoint13SetMotorSpeedEf", "_ZN15b2RevoluteJoint17SetMaxMotorTorqueEf")
        return _core.WalkerTimestep(**_of_the_world(), set_speed=speed, set_most_torque=torque)

    def _begin(self, observation: Any) -> None:
        """Find the bodies of a new episode, whose first observation is given."""
        env = self._env
        self._hull, self._joints = env.hull, env.joints
        _, self._left, _, self._right = env.legs
        self._advance = env.world.Step
        self._rays = _core.Rays(np.array(self._RAYS), self._terrain.segments, self._terrain.quads)
        if self.in_c is not None:
            joints = [(*map(_address, (j, j.bodyA, j.bodyB)), j.GetReferenceAngle()) for j in self._joints]
            legs = [(leg, _address(leg)) for leg in (self._left, self._right)]
            world, hull = _address(env.world), _address(self._hull)
            self.in_c.attach(env, legs, observation, world=world, hull=hull, joints=joints, rays=self._rays)

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        action = np.asarray(action)
        if (
            not self._takes_over() or action.dtype != np.float32 or not np.isfinite(action).all()
        ):  # rewards have the action's type
            return self._own_step(action)  # type: ignore[no-any-return]
        efforts = np.minimum(np.abs(action), np.float32(1.0))
        for joint, speed, torque, number in zip(
            self._joints, self._SPEEDS, efforts.tolist(), action.tolist(), strict=True
        ):
            joint.motorSpeed = math.copysign(speed, number) if number else 0.0
            joint.maxMotorTorque = _WALKING.MOTORS_TORQUE * torque
        self._advance(*self._TIME)
        return self._outcome(efforts)

    def _outcome(self, efforts: NDArray[np.float32]) -> Step:
        env, hull = self._env, self._hull
        position, velocity = hull.position, hull.linearVelocity
        x, angle = position.x, hull.angle
        hip, knee, other_hip, other_knee = self._joints
        observation = np.empty(24, np.float32)
        observation[:14] = (
            angle,
            2.0 * hull.angularVelocity / _WALKING.FPS,
            0.3 * velocity.x * self._WIDTH / _WALKING.FPS,
            0.3 * velocity.y * self._HEIGHT / _WALKING.FPS,
            hip.angle,
            hip.speed / _WALKING.SPEED_HIP,
            knee.angle + 1.0,
            knee.speed / _WALKING.SPEED_KNEE,
            self._left.ground_contact,
            other_hip.angle,
            other_hip.speed / _WALKING.SPEED_HIP,
            other_knee.angle + 1.0,
            other_knee.speed / _WALKING.SPEED_KNEE,
            self._right.ground_contact,
        )
        self._rays.cast(x, position.y, observation[14:])
        shaping = 130 * x / _WALKING.SCALE - 5.0 * abs(angle)
        reward: Any = np.float32(shaping - env.prev_shaping)
        for cost in self._EFFORT * efforts:  # float32 from here on, as in the environment
            reward -= cost
        env.prev_shaping = shaping
        terminated = env.game_over or x < 0
        if terminated:
            reward = -100
        return observation, reward, terminated or x > self._END, False, {}


def _of_the_world() -> dict[str, int]:
    """Return the addresses of the world's functions that C calls, by their names there."""
    names = ("_ZN7b2World4StepEfii", "_ZN7b2World18SetContactListenerEP17b2ContactListener")
    return dict(zip(("step", "set_listener"), _functions(*names), strict=True))


def _functions(*names: str) -> list[int]:
    """Return the addresses of functions of Box2D."""
    from Box2D import _Box2D

    library = library_of(_Box2D)
    return [address_of(getattr(library, name)) for name in names]


def _address(wrapped: Any) -> int:
    """Return the address of an object of Box2D."""
    return int(wrapped.this)


#: By the name of the environment's class; a subclass is another.
_STEPPERS: dict[str, type[Stepper]] = {
    "gymnasium.envs.box2d.lunar_lander.LunarLander": Lander,
    "gymnasium.envs.box2d.bipedal_walker.BipedalWalker": Walker,
}


def stepper_of(env: Any) -> Stepper | None:
    """Return what steps an environment, or None for any other class."""
    kind = _STEPPERS.get(f"{type(env).__module__}.{type(env).__qualname__}")
    if kind is Walker and np.lib.NumpyVersion(np.__version__) < "2.0.0":
        return None  # by whose rules of promotion its rewards are doubles
    return None if kind is None else kind(env)
