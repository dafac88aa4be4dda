"""Tasks of Gymnasium's LunarLander and BipedalWalker.

Owns the choice between a timestep of ours, in C or in Python, and the environment's own. Invariant: every episode
equals that of the environment bit for bit.
"""

import importlib
import platform
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium

from pyes._core import CompiledEnvironment
from pyes.errors import ConfigError, missing
from pyes.system import lookup
from pyes.tasks.box2d_steps import Stepper, stepper_of
from pyes.tasks.gymnasium import Family, GymnasiumConfig
from pyes.tasks.parity import verified_in_c

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

    def __init__(self, config: GymnasiumConfig, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode)
        if self._stepper is not None and self._levels is None and not config.remake:
            self.native = self._timestep_in_c(self._stepper)

    def _timestep_in_c(self, stepper: Stepper) -> CompiledEnvironment | None:
        """Return an environment in C with the timesteps of this task, or None where Python takes them."""
        # C reads the bodies of these versions, of programs with addresses of 64 bits.
        if not self._is_verified() or sys.maxsize < 2**32:
            return None

        def made() -> CompiledEnvironment:
            stepper.in_c = stepper.made_in_c()
            return CompiledEnvironment(stepper.in_c.address, self.frame_skip, _Simulator(self, stepper.in_c))

        native = verified_in_c(self, made)
        if native is None and stepper.in_c is not None:
            stepper.in_c.give_back()  # the episode with which it was compared
            stepper.in_c = None
        return native

    @classmethod
    def _is_verified(cls) -> bool:
        """Whether the tests have compared every environment with the versions that are installed."""
        return all(lookup.version(name) in versions for name, versions in cls.VERIFIED.items())

    @classmethod
    def knows(cls, env_id: str) -> bool:
        """Whether an id is one of these environments."""
        return env_id in _LANDERS + _WALKERS

    def _create(self, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        if self._config.env_id not in gymnasium.registry:
            raise ConfigError(
                f"{self._label()} is not in gymnasium {gymnasium.__version__} any more; "
                f'pip install "gymnasium<=1.4"{_OTHERS}'
            )
        try:
            importlib.import_module("Box2D")
        except ImportError as error:
            raise missing(self._label(), "Box2D", "box2d", error, _OTHERS) from error
        return super()._create(arguments)

    def _make(self) -> Any:
        env = super()._make()
        # A comparison of some timesteps does not see all of a walker's ground, which the stepper lays.
        steps_itself = self._config.env_id in _WALKERS and not self._is_verified()
        self._stepper = None if steps_itself else _stepper(env)
        if self._stepper is not None:
            env.step, env.reset = self._stepper.step, self._stepper.reset
        return env

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; see `pyes.tasks.wrapped.WrappedTask.reset`."""
        if self._stepper is not None:
            self._stepper.end()  # before a clean slate replaces its world
        return super().reset(seed)


class _Simulator:
    """What Python does when an episode in C begins, and the owner of what C reads."""

    def __init__(self, task: Box2DTask, timestep: Any) -> None:
        self._task, self._timestep = task, timestep

    def begin(self, seed: int) -> None:
        """Reset the environment."""
        self._task.reset(seed)

    @property
    def error(self) -> BaseException | None:
        """Why the last step that failed did."""
        return self._timestep.error  # type: ignore[no-any-return]


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
