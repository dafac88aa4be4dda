"""Tasks that a function of the user's own makes.

Owns the call of that function. Everything else is as for an environment from Gymnasium's registry, clean slates too.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium

from pyes.errors import ConfigError, TaskError
from pyes.system.lookup import find
from pyes.system.text import reason
from pyes.tasks.gymnasium import GymnasiumTask


class PythonTask(GymnasiumTask):
    """What ``task.factory`` (PACKAGE:FUNCTION) returns, as a task; see `pyes.tasks.base.Task`.

    The function takes ``task.env_kwargs``, and ``render_mode`` only when frames are wanted.

    Raises
    ------
    ConfigError    the function cannot be imported, makes no environment, or the spaces cannot be used
    TaskError      the function raised
    """

    def _label(self) -> str:
        return f"task.factory={self._config.factory}"

    def _create(self, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        factory = find("task.factory", self._config.title, "PACKAGE:FUNCTION, for example 'my_tasks:make'")
        try:
            env = factory(**arguments)
        except Exception as error:
            raise TaskError(f"{self._label()} failed: {reason(error)}") from error
        if not isinstance(env, gymnasium.Env):
            raise ConfigError(f"{self._label()} returned {type(env).__name__}, expected a gymnasium.Env")
        return env

    def _own_limit(self) -> int | None:
        return None if self._env.spec is None else self._env.spec.max_episode_steps
