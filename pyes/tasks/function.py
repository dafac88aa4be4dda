"""Tasks that are a plain function of theta.

Owns what makes it an environment of one timestep, whose action is theta: a linear network without biases that observes
a 1 has theta as its output. All that runs, records and replays policies then serves functions, too.
"""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pyes.config import TaskConfig
from pyes.errors import ConfigError
from pyes.system.lifetime import Closing
from pyes.system.lookup import find
from pyes.tasks.base import Step

_ONE = np.ones(1, np.float32)


class FunctionTask(Closing):
    """``task.factory`` (PACKAGE:FUNCTION) of theta as a task; see `pyes.tasks.base.Task`.

    Parameters
    ----------
    config : TaskConfig       factory, called as FUNCTION(theta, **env_kwargs); dim, the length of theta
    render_mode : str | None  None: there is nothing to see

    Raises
    ------
    ConfigError    the function cannot be imported or called, or frames are wanted
    """

    observation_size = 1
    observation_shape: tuple[int, ...] = (1,)
    max_timesteps: int | None = 1
    render_fps: float = 1
    behaviour_size = 0

    def __init__(self, config: TaskConfig, render_mode: str | None = None) -> None:
        if render_mode is not None:
            raise ConfigError(f"{config.title} is a function, which has no pictures; plot or map the run instead")
        function = find("task.factory", config.title, "PACKAGE:FUNCTION, for example 'my_functions:f'")
        if not callable(function):
            raise ConfigError(f"task.factory={config.title} is {type(function).__name__}, expected a function")
        assert config.dim is not None
        self._function = partial(function, **config.env_kwargs)
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-np.inf, np.inf, (config.dim,), np.float32)

    def reset(self, seed: int) -> NDArray[np.float32]:
        """Begin an episode; the function depends on no seed. Returns a 1."""
        return _ONE

    def step(self, action: NDArray[np.float32]) -> Step:
        """Call the function with theta."""
        return _ONE, float(self._function(action)), True, False, {}

    def behaviour(self, observation: NDArray[np.float32]) -> NDArray[Any]:
        """Return nothing: a call has a value and no more."""
        return np.empty(0)

    def render(self) -> Any:
        """Never called: frames are refused at once."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""
