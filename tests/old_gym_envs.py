"""Environments registered with Gym, some for the API it had before 0.26; needs gym: in_old_gym alone imports it."""

from typing import Any

import gym
import numpy as np
from gym import spaces


class Corridor:
    """Walk to the origin, by the API of Gym 0.21: seed(), reset() -> observation, step() -> four things.

    No subclass of ``gym.Env``, which has changed since.
    """

    metadata = {"render.modes": ["rgb_array"], "video.frames_per_second": 12}  # noqa: RUF012
    observation_space = spaces.Box(-10, 10, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    closed = 0

    def __init__(self, length: float = 5.0) -> None:
        self._length = length
        self._resets = 0

    @property
    def unwrapped(self) -> "Corridor":
        return self

    def seed(self, seed: int | None = None) -> list[int | None]:
        self._random = np.random.RandomState(seed)
        return [seed]

    def reset(self) -> np.ndarray:
        self._position = self._random.uniform(-self._length, self._length)
        self._resets += 1
        return self._observe()

    def _observe(self) -> np.ndarray:
        return np.array([self._position, 0], np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        self._position += float(action[0]) + 0.01 * self._random.normal()
        return self._observe(), -abs(self._position), abs(self._position) > 9, {}

    def render(self, mode: str = "human") -> np.ndarray | None:
        return np.full((16, 16, 3), 7, np.uint8) if mode == "rgb_array" else None

    def close(self) -> None:
        type(self).closed += 1


class Tired(Corridor):
    """Remembers all episodes before."""

    def _observe(self) -> np.ndarray:
        return np.array([self._position, self._resets], np.float32)


class Unseeded(gym.Env):
    """Of Gym 0.21, where the class of all environments still had a seed()."""

    observation_space, action_space = Corridor.observation_space, Corridor.action_space

    def reset(self) -> np.ndarray:
        return np.zeros(2, np.float32)


class Between(gym.Env):
    """Of Gym 0.22 to 0.25."""

    observation_space, action_space = Corridor.observation_space, Corridor.action_space

    def reset(self, *, seed: int | None = None, return_info: bool = False, options: Any = None) -> np.ndarray:
        return np.zeros(2, np.float32)


class Counting(gym.Env):
    """Of Gym 0.26; actions are 3 and 4, observations a mapping."""

    observation_space = spaces.Dict({"here": spaces.Discrete(3), "there": spaces.Box(-1, 1, (2,), np.float32)})
    action_space = spaces.Discrete(2, start=3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observe(), {}

    def _observe(self) -> dict[str, Any]:
        return {"here": int(self.np_random.integers(3)), "there": np.zeros(2, np.float32)}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observe(), float({3: 1, 4: -1}[action]), False, False, {}


gym.register("Corridor-v0", Corridor, max_episode_steps=30)
gym.register("Tired-v0", Tired, max_episode_steps=30)
gym.register("Unseeded-v0", Unseeded)
gym.register("Between-v0", Between)
gym.register("Counting-v0", Counting, max_episode_steps=10)
