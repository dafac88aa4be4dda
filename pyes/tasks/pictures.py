"""Pictures of the environments in C that come with pyes.

Owns who draws each: an environment in Python with the same numbers as its state, or a function. Must not step anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError
from pyes.system.lifetime import Closing
from pyes.tasks import slime_volley


def _show_state(env: Any, numbers: NDArray[np.float64]) -> Any:
    env.state, env.last_u = numbers, None  # the pendulum's torque, an arrow that is left out
    return env.render()


def _show_swing_up(env: Any, numbers: NDArray[np.float64]) -> Any:
    env.length = 0.3  # half the pole's: Gymnasium's is longer, and would hang out of the picture
    return _show_state(env, numbers * [1, 1, -1, -1])  # its pole leans to the left where the angle is positive


def _show_path(env: Any, numbers: NDArray[np.float64]) -> Any:
    env.position = tuple(numbers.tolist())
    env.path.append(env.position)
    return env.render()


@dataclass(frozen=True)
class _Artist:
    env_id: str  # of the environment that draws; "" for none
    numbers: int  # float64, at the beginning of the state
    draw: Callable[[Any, NDArray[np.float64]], Any] = _show_state
    fps: float | None = None  # None: those of the environment that draws


_ARTISTS = {
    "Acrobot-v1": _Artist("Acrobot-v1", 4),
    "CartPole-v1": _Artist("CartPole-v1", 4),
    "CartPoleSwingUp": _Artist("CartPole-v1", 4, _show_swing_up, fps=100.0),
    "Maze": _Artist("pyes.tasks.maze:Maze-v0", 2, _show_path),
    "MountainCar-v0": _Artist("MountainCar-v0", 2),
    "MountainCarContinuous-v0": _Artist("MountainCarContinuous-v0", 2),
    "Pendulum-v1": _Artist("Pendulum-v1", 2),
    "SlimeVolley": _Artist("", 15, lambda _, numbers: slime_volley.draw(numbers), fps=30.0),
}


class Picture(Closing):
    """Draws the state of an environment in C.

    Parameters
    ----------
    name : str
        Of the environment.

    Attributes
    ----------
    fps : float
        Timesteps per second in real time.

    Raises
    ------
    ConfigError
        Nothing draws it.
    """

    def __init__(self, name: str) -> None:
        if name not in _ARTISTS:
            raise ConfigError(f"{name} is an environment in C, which draws no pictures; evaluate it instead")
        self._artist = _ARTISTS[name]
        self._env: Any = None
        if env_id := self._artist.env_id:
            self._env = gymnasium.make(env_id, render_mode="rgb_array", disable_env_checker=True).unwrapped
        self.fps = self._artist.fps or float(self._env.metadata["render_fps"])

    def begin(self) -> None:
        """Forget the episode before."""
        if self._env is not None:
            self._env.reset(seed=0)
        if hasattr(self._env, "path"):
            self._env.path.clear()

    def draw(self, state: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a picture of a state, uint8 (height, width, 3)."""
        numbers = state[: 8 * self._artist.numbers].view(np.float64).copy()
        return np.asarray(self._artist.draw(self._env, numbers))

    def close(self) -> None:
        """Close what draws."""
        if self._env is not None:
            self._env.close()
