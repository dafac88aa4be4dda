"""Tasks of pybullet_envs_gymnasium.

Owns the world, which is built once, and resets that restore its initial state without building it again. Must not know
how a timestep is computed (see `bullet_walkers` and `bullet_small`). Invariant: every episode equals, bit for bit, the
first episode of a new environment of that id.
"""

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pyes.errors import missing
from pyes.tasks import bullet_small, bullet_walkers
from pyes.tasks.bullet_output import silenced
from pyes.tasks.bullet_parts import Stepper
from pyes.tasks.gymnasium import Family, GymnasiumConfig

_STEPPERS: dict[str, Callable[[Any], Stepper]] = {
    "AntBulletEnv-v0": bullet_walkers.Walker,
    "HalfCheetahBulletEnv-v0": bullet_walkers.Walker,
    "HopperBulletEnv-v0": bullet_walkers.Walker,
    "HumanoidBulletEnv-v0": bullet_walkers.Walker,
    "InvertedDoublePendulumBulletEnv-v0": bullet_small.DoublePendulum,
    "InvertedPendulumBulletEnv-v0": bullet_small.Pendulum,
    "InvertedPendulumSwingupBulletEnv-v0": bullet_small.Pendulum,
    "ReacherBulletEnv-v0": bullet_small.Reacher,
    "Walker2DBulletEnv-v0": bullet_walkers.Walker,
}


class BulletTask(Family):
    """An environment of pybullet_envs_gymnasium as a task; see `pyes.tasks.base.Task`.

    Parameters
    ----------
    config : GymnasiumConfig
        ``env_id`` is one of `_STEPPERS`.
    render_mode : str or None
        Gymnasium's; "rgb_array" for videos.

    Raises
    ------
    ConfigError
        The package is missing.
    TaskError
        The environment could not be made.
    """

    PACKAGE = "pybullet_envs_gymnasium"
    VERIFIED = {"pybullet": ("3.2.7",), "pybullet-envs-gymnasium": ("0.6.0",)}  # noqa: RUF012

    def __init__(self, config: GymnasiumConfig, render_mode: str | None = None) -> None:
        _import_package(config.env_id)
        super().__init__(config, render_mode)

    @classmethod
    def knows(cls, env_id: str) -> bool:
        """Whether an id is one of these environments."""
        return env_id in _STEPPERS

    @classmethod
    def original(cls, config: GymnasiumConfig) -> gymnasium.Env[Any, Any]:
        """Make the environment; only its first episode starts from a new world."""
        return super().original(config).unwrapped

    def _make(self) -> Any:
        env = super()._make()
        env.reset(seed=0)  # builds the world
        self._take_over(env)
        return env

    def _take_over(self, env: Any) -> None:
        """Replace the environment's ``step`` by ours."""
        self._world = env.unwrapped
        self._start = self._world._p.saveState()
        self._stepper = _STEPPERS[self._config.env_id](self._world)
        env.step = self._stepper.step
        if isinstance(self._stepper, bullet_small.Reacher):  # 20 cm long; the environment films it from 3 m away
            self._world._cam_dist, self._world._cam_pitch = 0.6, -89.0
        self._clean()

    def reset(self, seed: int) -> Any:
        """Restore the initial world and begin the episode of ``seed``; returns the first observation."""
        if not self._config.remake:
            self._clean()
        observation = super().reset(seed)
        self._stepper.begin()
        return observation

    def _clean(self) -> None:
        """Restore the world to its state right after it was built.

        ``restoreState`` restores neither the engine's order of contacts, which affects the last bits of its results,
        nor the environment's own state: it adds the floor to the robot's parts after the first observation.
        """
        client, robot = self._world._p, self._world.robot
        set_filter = client.setCollisionFilterPair
        for body in robot.objects:
            for link in range(-1, client.getNumJoints(body)):
                # Makes the engine drop the link's cached pairs; the filter itself changes nothing.
                set_filter(body, body, link, link, 1)
        client.restoreState(self._start)
        robot.parts.pop("floor", None)

    def _traits(self) -> dict[str, tuple[int, Callable[[], NDArray[Any]]]]:
        walks = isinstance(self._stepper, bullet_walkers.Walker)
        return {"final_position": (2, self._position)} if walks else {}

    def _position(self) -> NDArray[np.float64]:
        """Return x and y of the robot's torso."""
        return np.array(self._world.robot.robot_body.pose().xyz()[:2])

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""
        robot = self._world.robot
        if hasattr(robot, "body_real_xyz"):  # the camera's target, which our step does not update
            robot.body_real_xyz = robot.robot_body.pose().xyz()
        return super().render()


def _import_package(env_id: str) -> None:
    """Import the package, which registers its environments, and the engine."""
    try:
        with silenced(1), silenced(2):  # prints its build date
            importlib.import_module("pybullet")
            importlib.import_module(BulletTask.PACKAGE)
    except ImportError as error:
        raise missing(f"task.env_id: {env_id!r}", BulletTask.PACKAGE, "bullet", error, ", on Python 3.11") from error
