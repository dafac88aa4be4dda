"""Tasks of Gymnasium's LunarLander and BipedalWalker.

Owns the choice between a timestep of ours and the environment's own. Invariant: every episode equals that of the
environment bit for bit.
"""

import importlib
import platform
from collections.abc import Mapping
from typing import Any

import gymnasium

from pyes.errors import ConfigError, missing
from pyes.tasks.box2d_steps import stepper_of
from pyes.tasks.gymnasium import Family

_LANDERS, _WALKERS = ("LunarLander-v3", "LunarLanderContinuous-v3"), ("BipedalWalker-v3", "BipedalWalkerHardcore-v3")
_OTHERS = "; without it: task=cart_pole, or any other task that is not of Box2D"


class Box2DTask(Family):
    """A Box2D environment of Gymnasium as a task; see `pyes.tasks.base.Task`.

    Parameters
    ----------
    config : GymnasiumConfig
        ``env_id`` is one of LunarLander's and BipedalWalker's.
    render_mode : str or None
        Gymnasium's; "rgb_array" for videos.

    Raises
    ------
    ConfigError
        Box2D is missing, or Gymnasium has no such environment any more.
    TaskError
        The environment could not be made.
    """

    VERIFIED = {"gymnasium": ("1.4.0",), "Box2D": ("2.3.10",)}  # noqa: RUF012

    @classmethod
    def knows(cls, env_id: str) -> bool:
        """Whether an id is one of these environments."""
        return env_id in _LANDERS + _WALKERS

    def _create(self, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        if self._config.env_id not in gymnasium.registry:
            raise ConfigError(
                f"{self._label()} is not in gymnasium {gymnasium.__version__} any more; "
                f"pip install 'gymnasium<=1.4'{_OTHERS}"
            )
        try:
            importlib.import_module("Box2D")
        except ImportError as error:
            raise missing(self._label(), "Box2D", "box2d", error, _OTHERS) from error
        return super()._create(arguments)

    def _make(self) -> Any:
        env = super()._make()
        self._stepper = _stepper(env)
        if self._stepper is not None:
            env.step = self._stepper.step
        return env

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; returns the first observation."""
        if self._stepper is None:
            return super().reset(seed)
        self._stepper.stop()
        observation = super().reset(seed)
        self._stepper.begin()
        return observation


def _stepper(env: Any) -> Any:
    """Return what computes the timesteps of an environment, or None if it does so itself.

    A subclass or a wrapper under the same id does. With pictures it adds particles to the lander's world. Other
    processors may round Box2D's rays differently.
    """
    if (
        getattr(env, "enable_wind", False)
        or env.render_mode is not None
        or platform.machine() not in ("x86_64", "AMD64")
    ):
        return None
    return stepper_of(env)
