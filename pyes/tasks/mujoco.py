"""Tasks of Gymnasium's MuJoCo environments.

Owns what keeps the simulator from doing needless things: messages on standard error and in a file of the working
directory, forces that are used nowhere, and a window where there is no display. Invariant: every episode is, bit for
bit, that of the environment.
"""

import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.errors import TaskError, missing
from pyes.tasks.gymnasium import Family

#: By name: whether the environment reads the forces of contacts, which MuJoCo computes separately.
_FEELS_CONTACTS = {
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
        env_id, one that `knows` knows; the rest as for any environment.
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

    @classmethod
    def knows(cls, env_id: str) -> bool:
        """Whether an id is like ``Ant-v5``."""
        return env_id.endswith(_VERSION) and env_id.removesuffix(_VERSION) in _FEELS_CONTACTS

    def _make(self) -> Any:
        mujoco = _import_package(self._config.env_id)
        mujoco.set_mju_user_warning(partial(_log_once, logging.INFO))  # about the models, which users cannot change
        env: Any = super()._make()
        mujoco.set_mju_user_warning(partial(_log_once, logging.WARNING))
        if not _FEELS_CONTACTS[self._config.env_id.removesuffix(_VERSION)]:
            env.unwrapped.do_simulation = _simulation_without_forces(env.unwrapped, mujoco.mj_step)
        return env

    def _traits(self) -> dict[str, tuple[int, Callable[[], NDArray[Any]]]]:
        try:
            torso = self._innermost().model.body("torso").id
        except KeyError:  # the robot stays where it is
            return {}
        return {"final_position": (2, lambda: self._innermost().data.xpos[torso, :2].copy())}

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3); TaskError where there is nothing to draw with."""
        if sys.platform == "linux" and not os.environ.get("DISPLAY"):
            os.environ.setdefault("MUJOCO_GL", "egl")  # the default would ask for a window
        try:
            return super().render()
        except Exception as error:  # each backend has its own kind
            raise TaskError(_cannot_draw(self._config.env_id, error)) from error


def _import_package(env_id: str) -> Any:
    try:
        import mujoco
    except ImportError as error:
        raise missing(f"task.env_id: {env_id!r}", "mujoco", "mujoco", error) from error
    except Exception as error:  # MUJOCO_GL names what is not there; each backend has its own kind
        raise TaskError(_cannot_draw(env_id, error)) from error
    return mujoco


def _cannot_draw(env_id: str, error: Exception) -> str:
    backend, reason = os.environ.get("MUJOCO_GL"), " ".join(str(error).split())
    return (
        f"task.env_id: {env_id!r} cannot be drawn with MUJOCO_GL={backend} ({type(error).__name__}: {reason}); "
        "try egl, osmesa or glfw"
    )


def _log_once(level: int, message: str) -> None:
    """Log one message of each kind: MuJoCo repeats some in every episode of an unstable simulation."""
    kind = message.partition(".")[0]
    if kind not in _logged:
        _logged.add(kind)
        _log.log(level, "MuJoCo: %s", message)


def _simulation_without_forces(env: Any, advance: Callable[..., None]) -> Callable[[Any, int], None]:
    """Return a ``do_simulation`` that leaves out ``mj_rnePostConstraint``.

    No timestep depends on what that computes: cacc, cfrc_int, cfrc_ext.
    """
    model, data, checked = env.model, env.data, env.do_simulation
    shape = (model.nu,)

    def simulate(ctrl: Any, n_frames: int) -> None:
        if np.shape(ctrl) != shape:
            checked(ctrl, n_frames)  # says what is wrong
        data.ctrl[:] = ctrl
        advance(model, data, nstep=n_frames)

    return simulate
