"""Tasks from the registry of Gym, which Gymnasium has replaced.

Owns the choice of an adapter: Shimmy has one for environments of Gym 0.26, and one for 0.21 and before. Everything else
is as for environments from Gymnasium's registry.
"""

import contextlib
import copy
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import spaces

from pyes.config.registry import TASKS
from pyes.errors import ConfigError, missing
from pyes.tasks.gymnasium import GymnasiumConfig
from pyes.tasks.wrapped import WrappedTask


@dataclass(frozen=True)
class GymConfig(GymnasiumConfig):
    """Settings of an environment from Gym's registry."""

    name: str = "gym"


@TASKS.register("gym")
class GymTask(WrappedTask):
    """An environment registered with Gym as a task; see `pyes.tasks.base.Task`.

    Parameters
    ----------
    config : GymConfig
        Settings.
    render_mode : str or None
        "rgb_array" for videos.

    Raises
    ------
    ConfigError
        A package is missing, the id is not registered, or the environment or its spaces cannot be used.
    TaskError
        The environment could not be made.
    """

    Config = GymConfig

    def __init__(self, config: GymConfig, render_mode: str | None = None) -> None:
        self._gym, self._shimmy = _import_packages(config.env_id)
        super().__init__(config, render_mode)

    def _label(self) -> str:
        return f"task.env_id: {self._config.env_id!r}"

    def _create(self, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        with self._making(self._gym.error.Error):
            adapter = self._adapt(dict(arguments))
            actions = adapter.gym_env.action_space
            if getattr(actions, "start", 0):  # ignored by Shimmy
                adapter.action_space = spaces.Discrete(int(actions.n), start=int(actions.start))
        env: gymnasium.Env[Any, Any] = adapter
        return env

    def _adapt(self, arguments: dict[str, Any]) -> Any:
        """Return the environment in the adapter for its API."""
        render_mode = arguments.pop("render_mode", None)
        env = self._bare(**arguments)
        if _is_old(env, self._label()):
            adapter = self._shimmy.GymV21CompatibilityV0(env=env, render_mode=render_mode)
            adapter.metadata = {"render_fps": adapter.metadata.get("video.frames_per_second"), **adapter.metadata}
            return adapter
        if render_mode is not None:  # constructors of old environments do not accept it
            env.close()
            env = self._bare(**arguments, render_mode=render_mode)
        return self._shimmy.GymV26CompatibilityV0(env=env)

    def _bare(self, **arguments: Any) -> Any:
        """Make the environment without Gym's wrappers, whose work the rollout does."""
        spec = copy.deepcopy(self._spec())
        spec.max_episode_steps, spec.order_enforce = None, False
        # The checker does not run with NumPy 2.
        return self._gym.make(spec, disable_env_checker=True, **arguments)

    def _spec(self) -> Any:
        """Look up the id; for "module:id" the module is imported first, which registers it."""
        module, _, name = self._config.env_id.rpartition(":")
        if module:
            importlib.import_module(module)
        return self._gym.spec(name)

    def _own_limit(self) -> int | None:
        limit: int | None = self._spec().max_episode_steps
        return limit

    def _innermost(self) -> Any:
        adapter: Any = self._env.unwrapped
        return adapter.gym_env.unwrapped


def _is_old(env: Any, label: str) -> bool:
    """Whether an environment has the API of Gym 0.21 and before: reset() without seed, step() with one ``done``."""
    parameters = inspect.signature(env.unwrapped.reset).parameters
    if "return_info" in parameters:
        raise ConfigError(f"{label} has the reset of Gym 0.22 to 0.25 (return_info), expected that of 0.26 or 0.21")
    if "seed" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return False
    if not hasattr(env, "seed"):
        raise ConfigError(f"{label} cannot be seeded: it has neither reset(seed=...) nor seed(); give it one of them")
    return True


def _import_packages(env_id: str) -> tuple[Any, Any]:
    """Return the modules of Gym and of Shimmy's adapters."""
    with contextlib.suppress(ImportError):
        # Notices that Gym prints when it is imported.
        importlib.import_module("gym_notices.notices").notices.clear()
    try:
        return importlib.import_module("gym"), importlib.import_module("shimmy.openai_gym_compatibility")
    except ImportError as error:
        raise missing(f"task.env_id: {env_id!r}", "gym and shimmy", "gym", error) from error
