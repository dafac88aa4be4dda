"""Tasks of Gymnasium's MuJoCo environments.

Owns what avoids needless work of the simulator: messages on standard error and in a file of the working directory,
unused forces, and a window on machines without a display; and which tasks `mujoco_timestep` steps. Invariant: every
episode equals that of the environment bit for bit.
"""

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.errors import TaskError, missing
from pyes.tasks.gymnasium import Family, GymnasiumConfig
from pyes.tasks.mujoco_timestep import timestep_in_c

#: Whether the environment reads contact forces, which MuJoCo computes separately.
FEELS_CONTACTS = {
    "Ant": True,
    "HalfCheetah": False,
    "Hopper": False,
    "Humanoid": True,
    "HumanoidStandup": True,
    "InvertedDoublePendulum": False,
    "InvertedPendulum": False,
    "Pusher": False,
    "Reacher": False,
    "Swimmer": False,
    "Walker2d": False,
}
_VERSION = "-v5"

_log = logging.getLogger(__name__)
_logged: set[str] = set()


class MujocoTask(Family):
    """A MuJoCo environment of Gymnasium as a task; see `pyes.tasks.base.Task`.

    Parameters
    ----------
    config : GymnasiumConfig
        ``env_id`` as accepted by `knows`.
    render_mode : str or None
        Gymnasium's; "rgb_array" for videos.

    Raises
    ------
    ConfigError
        The package is missing, or an argument of the environment is not known.
    TaskError
        The environment could not be made.
    """

    VERIFIED = {"gymnasium": ("1.4.0",), "mujoco": ("4.0.0",)}  # noqa: RUF012

    def __init__(self, config: GymnasiumConfig, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode)
        if render_mode is None and self._levels is None and not config.remake:
            self.native = timestep_in_c(self._env, self, self.frame_skip, set(config.env_kwargs))

    @classmethod
    def knows(cls, env_id: str) -> bool:
        """Whether an id is like ``Ant-v5``."""
        return env_id.endswith(_VERSION) and env_id.removesuffix(_VERSION) in FEELS_CONTACTS

    def _make(self) -> Any:
        mujoco = _import_package(self._config.env_id)
        mujoco.set_mju_user_warning(partial(_log_once, logging.INFO))  # warnings about models, which users cannot fix
        env: Any = super()._make()
        mujoco.set_mju_user_warning(partial(_log_once, logging.WARNING))
        if not FEELS_CONTACTS[self._config.env_id.removesuffix(_VERSION)]:
            env.unwrapped.do_simulation = _simulation_without_forces(env.unwrapped, mujoco.mj_step)
        if not {"camera_id", "camera_name"} & set(self._config.env_kwargs):
            # The model's own camera, if any, follows the robot; Gymnasium's default stays where it is.
            camera = mujoco.mj_name2id(env.unwrapped.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
            env.unwrapped.mujoco_renderer.camera_id = camera
        return env

    def _traits(self) -> dict[str, tuple[int, Callable[[], NDArray[Any]]]]:
        try:
            torso = self._innermost().model.body("torso").id
        except KeyError:  # a robot that does not move around
            return {}
        return {"final_position": (2, lambda: self._innermost().data.xpos[torso, :2].copy())}

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3); TaskError if no OpenGL backend works."""
        try:
            return super().render()
        except Exception as error:  # each backend raises its own type
            raise TaskError(_cannot_draw(self._config.env_id, error)) from error


def _import_package(env_id: str) -> Any:
    try:
        import mujoco
    except ImportError as error:
        raise missing(f"task.env_id: {env_id!r}", "mujoco", "mujoco", error) from error
    except Exception as error:  # MUJOCO_GL names a missing backend; each raises its own type
        raise TaskError(_cannot_draw(env_id, error)) from error
    return mujoco


def _cannot_draw(env_id: str, error: Exception) -> str:
    backend, reason = os.environ.get("MUJOCO_GL"), " ".join(str(error).split())
    return (
        f"task.env_id: {env_id!r} cannot be drawn with MUJOCO_GL={backend} ({type(error).__name__}: {reason}); "
        "try egl, osmesa or glfw"
    )


def _log_once(level: int, message: str) -> None:
    """Log each kind of message once: MuJoCo repeats some in every episode of an unstable simulation."""
    kind = message.partition(".")[0]
    if kind not in _logged:
        _logged.add(kind)
        _log.log(level, "MuJoCo: %s", message)


def _simulation_without_forces(env: Any, advance: Callable[..., None]) -> Callable[[Any, int], None]:
    """Return a ``do_simulation`` without ``mj_rnePostConstraint``, whose results (cacc, cfrc_*) no timestep reads."""
    model, data, checked = env.model, env.data, env.do_simulation
    shape = (model.nu,)

    def simulate(ctrl: Any, n_frames: int) -> None:
        if np.shape(ctrl) != shape:
            checked(ctrl, n_frames)  # raises a readable error
        data.ctrl[:] = ctrl
        advance(model, data, nstep=n_frames)

    return simulate
