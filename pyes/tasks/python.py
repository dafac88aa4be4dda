"""Tasks made by a user's own function.

Owns the call of that function. Everything else is as for environments from Gymnasium's registry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from pyes.config import refusal
from pyes.config.registry import TASKS
from pyes.errors import ConfigError, TaskError
from pyes.system.lookup import find
from pyes.system.text import reason
from pyes.system.user_code import let_through
from pyes.tasks.wrapped import WrappedConfig, WrappedTask

_EXPECTED = "MODULE:FUNCTION, for example 'my_tasks:make'"


@dataclass(frozen=True)
class PythonConfig(WrappedConfig):
    """Settings of an environment made by a user's own function."""

    name: str = "python"
    factory: str = ""  # MODULE:FUNCTION, called as FUNCTION(**env_kwargs)

    def check(self) -> None:
        """Reject a missing function."""
        super().check()
        if not self.factory:
            raise refusal("task.factory", self.factory, _EXPECTED)


@TASKS.register("python")
class PythonTask(WrappedTask):
    """The environment returned by ``task.factory`` (MODULE:FUNCTION) as a task; see `WrappedTask`.

    The function takes ``task.env_kwargs``, and ``render_mode`` only when frames are wanted.

    Raises
    ------
    ConfigError
        The function cannot be imported, returns no environment, or the spaces cannot be used.
    TaskError
        The function raised.
    """

    Config = PythonConfig

    def _label(self) -> str:
        return f"task.factory={self._config.factory}"

    def _create(self, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        factory = find("task.factory", self._config.factory, _EXPECTED)
        try:
            env = factory(**arguments)
        except BaseException as error:
            let_through(error)
            raise TaskError(f"{self._label()} failed: {reason(error)}") from error
        if not isinstance(env, gymnasium.Env):
            raise ConfigError(f"{self._label()} returned {type(env).__name__}, expected a gymnasium.Env")
        return env

    def _own_limit(self) -> int | None:
        if self._env.spec is not None:
            limit: int | None = self._env.spec.max_episode_steps
            return limit
        name = "_max_episode_steps"  # of gymnasium.wrappers.TimeLimit
        own = self._env.get_wrapper_attr(name) if self._env.has_wrapper_attr(name) else None
        return None if own is None else int(own)
