"""Plain functions of theta as tasks.

Owns the environment of one timestep whose action is theta: the output of a linear network without bias for the
observation 1 is theta. Everything that runs, records and replays policies then works for functions, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pyes.config import NetworkConfig, TaskConfig, refusal
from pyes.config.registry import TASKS
from pyes.config.section import AtLeastOne
from pyes.errors import ConfigError, TaskError
from pyes.system.lookup import find
from pyes.system.text import literal, no_number
from pyes.tasks.base import Step, Task

_ONE = np.ones(1, np.float32)
_EXPECTED = "MODULE:FUNCTION, for example 'my_functions:f'"
#: Settings of the network whose output is its parameters.
_NETWORK = {"name": "linear", "bias": False, "output_activation": "identity"}


@dataclass(frozen=True)
class FunctionConfig(TaskConfig):
    """Settings of a function of theta."""

    #: A layer without bias is theta itself; a deterministic function needs one call per center.
    RUN_DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "network": {"name": "linear", "bias": False, "init": "zero"},
        "evaluation": {"episodes": 1},
    }

    name: str = "function"
    factory: str = ""  # MODULE:FUNCTION, called as FUNCTION(theta, **env_kwargs); theta is float32 (dim,)
    dim: Annotated[int, AtLeastOne] | None = None  # length of theta

    def check(self) -> None:
        """Reject a missing ``factory`` or ``dim``."""
        super().check()
        if not self.factory:
            raise refusal("task.factory", self.factory, _EXPECTED)
        if self.dim is None:
            raise refusal("task.dim", None, "an integer >= 1: how many numbers the function takes")

    def check_beside(self, network: NetworkConfig, entries: int | None) -> None:
        """Reject networks whose output is not theta, and more parameters than the noise table serves."""
        for key, value in _NETWORK.items():
            got = getattr(network, key)
            if got != value:
                raise refusal(f"network.{key}", got, f"{literal(value)} with task.name=function")
        if entries is not None and self.dim is not None and 2 * self.dim > entries:
            raise refusal("task.dim", self.dim, f"at most half of noise.entries, which is {entries}")


def value_of(function: Callable[..., Any], theta: NDArray[np.float32]) -> float:
    """Return the value of a user's function at theta.

    Raises
    ------
    TaskError
        It is no number.
    """
    value = function(theta)
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TaskError(f"the function returned {no_number(value)}, expected a number") from error


@TASKS.register("function")
class FunctionTask(Task):
    """``task.factory`` (MODULE:FUNCTION) of theta as a task; see `pyes.tasks.base.Task`.

    Parameters
    ----------
    config : FunctionConfig
        factory, dim, env_kwargs.
    render_mode : str or None
        Must be None.

    Raises
    ------
    ConfigError
        The function cannot be imported or called, or frames are wanted.
    """

    Config = FunctionConfig
    deterministic = True

    def __init__(self, config: FunctionConfig, render_mode: str | None = None) -> None:
        if render_mode is not None:
            raise ConfigError(f"{config.title} is a function, which has no pictures; plot or map the run instead")
        function = find("task.factory", config.factory, _EXPECTED)
        if not callable(function):
            raise ConfigError(f"task.factory={config.factory} is {type(function).__name__}, expected a function")
        assert config.dim is not None
        self._function = partial(function, **config.env_kwargs)
        self.observation_shape = (1,)
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (config.dim,), np.float32)
        self.max_timesteps = 1
        self.render_fps = 1

    def reset(self, seed: int) -> NDArray[np.float32]:
        """Begin an episode, independent of ``seed``; returns the observation 1."""
        return _ONE

    def step(self, action: NDArray[np.float32]) -> Step:
        """Call the function with theta."""
        return _ONE, value_of(self._function, action), True, False, {}
