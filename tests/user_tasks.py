"""Functions that return environments; ``task.factory`` is "user_tasks:NAME", with this folder on the path."""

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.envs.registration import WrapperSpec


class Unclosable(gymnasium.Env[np.ndarray, np.ndarray]):
    """Raise when closed, but for the last one, which its task closes."""

    action_space = spaces.Box(-1, 1, (1,))
    observation_space = spaces.Box(-1, 1, (1,))
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self._number = type(self).made

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def close(self) -> None:
        if self._number < 3:
            raise RuntimeError("it cannot be closed")


class Point(gymnasium.Env[np.ndarray, np.ndarray]):
    """Bring a point to the origin within ten timesteps."""

    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, size: int = 1) -> None:
        self.observation_space = spaces.Box(-10, 10, (size,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = self.np_random.uniform(-5, 5)
        self._time = 0
        return self._observe(), {}

    def _observe(self) -> np.ndarray:
        return np.full(self.observation_space.shape, self._position, np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._time += 1
        self._position += float(action[0])
        return self._observe(), -abs(self._position), False, self._time >= 10, {}


def point(size: int = 1) -> gymnasium.Env[Any, Any]:
    return Point(size)


def limited(env_id: str, steps: int) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(env_id, max_episode_steps=steps)


def wrapped(steps: int) -> gymnasium.Env[Any, Any]:
    """Return an environment that is not registered, with a time limit around it."""
    return gymnasium.wrappers.ClipAction(gymnasium.wrappers.TimeLimit(PendulumEnv(), steps))


def rendered(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", **kwargs)


def shown_to_people_only(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    assert render_mode in (None, "human")
    return Point()


class Tired(Point):
    """Remembers all episodes before: every reset starts farther out."""

    resets = 0

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(**kwargs)
        self.resets += 1
        self._position += self.resets
        return self._observe(), {}


class Infinite(Point):
    """Sees an infinity, as a sensor does that finds no wall."""

    def _observe(self) -> np.ndarray:
        return np.full(self.observation_space.shape, np.inf, np.float32)


def tired() -> gymnasium.Env[Any, Any]:
    return Tired()


def without_spaces() -> gymnasium.Env[Any, Any]:
    return gymnasium.Env()


def number() -> int:
    return 3


class HalfBroken(Point):
    """Raises when its first push is to the right."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action[0] > 0 and self._time == 0:
            raise RuntimeError("no way to the right")
        return super().step(action)


def half_broken() -> gymnasium.Env[Any, Any]:
    return HalfBroken()


def broken() -> gymnasium.Env[Any, Any]:
    raise ValueError("no simulator\nhere")


class Pixels(Point):
    """The same point, seen as a bright square in an image of bytes, with the time behind it."""

    action_space = spaces.Discrete(3)
    bright = 255

    def __init__(self, height: int = 12, width: int = 10) -> None:
        self.observation_space = spaces.Box(0, 255, (2, height, width), np.uint8)

    def _observe(self) -> np.ndarray:
        image = np.zeros(self.observation_space.shape, np.uint8)
        column = int(np.clip(self._position + 5, 0, image.shape[2] - 2))
        image[0, 3:5, column : column + 2] = self.bright
        image[1] = 20 * self._time
        return image

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return super().step(np.array([action - 1.0]))


def pixels(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    return Pixels(**kwargs)


class Placed(Point):
    """Says where it is, in three dimensions."""

    position = (0.0, 0.0, 0.0)


def placed() -> gymnasium.Env[Any, Any]:
    return Placed()


class Parts(Point):
    """A point that is seen in parts, one of them a text, and pushed by all that is chosen."""

    ACTIONS: dict[str, spaces.Space[Any]] = {  # noqa: RUF012
        "start": spaces.Discrete(3, start=-1),
        "multi_discrete": spaces.MultiDiscrete([[3, 2], [4, 5]], start=[[-1, 0], [5, 0]]),
        "multi_binary": spaces.MultiBinary((2, 2)),
        "integers": spaces.Box(-3, 8, (2,), np.int16),
        "tuple": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2,))]),
        "dict": spaces.Dict(
            {
                "move": spaces.Box(-0.1, 0.3, (1, 2), np.float64),
                "jump": spaces.Discrete(2),
                "deep": spaces.Tuple(
                    [spaces.MultiDiscrete([2, 3]), spaces.Dict({"x": spaces.Box(-np.inf, np.inf, ())})]
                ),
                "keys": spaces.MultiBinary(3),
            }
        ),
    }

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, actions: str = "start") -> None:
        self.action_space = self.ACTIONS[actions]
        legs = spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 3], start=[1, 0])])
        self.observation_space = spaces.Dict(
            {"place": spaces.Box(-9, 9, (1, 2)), "legs": legs, "on": spaces.MultiBinary(2), "note": spaces.Text(8)}
        )

    def _observe(self) -> Any:
        near = abs(self._position) < 2
        return {
            "place": np.array([[self._position, self._time]], np.float32),
            "legs": (1 + self._time % 3, np.array([1 + near, self._time % 3])),
            "on": np.array([near, not near], np.int8),
            "note": "abc",
        }

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise TypeError(f"{action!r} is not in {self.action_space}")
        pushes = np.asarray(spaces.flatten(self.action_space, action))
        return super().step(np.array([np.linspace(-0.5, 0.7, len(pushes)) @ pushes]))

    def render(self) -> Any:
        return np.full((16, 16, 3), 20 * self._time, np.uint8)


def parts(actions: str = "start", render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    return Parts(actions)


class Wrong(Point):
    """One that breaks a rule of `pyes check-environment`."""

    episodes = 0

    def __init__(self, rule: str) -> None:
        super().__init__()
        self._rule = rule

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.episodes += 1
        chosen = {"no seed": self.episodes, "no chance": 1}.get(self._rule, seed)
        observation, info = super().reset(seed=chosen)
        if self._rule == "worn":
            self._position += 0.001 * (self.episodes > 5)
        if self._rule == "another process":
            self._position += os.getpid() % 1_000 / 1_000
        odd = {"shape": np.zeros(3), "type": np.zeros(1, np.complex64)}
        return odd.get(self._rule, self._observe() if self._rule else observation), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        if self._rule == "step's shape":
            observation = observation[None]
        if self._rule == "own actions":
            reward = float(self.action_space.sample()[0])
        late = self._time == 7
        wrong: dict[str, Any] = {"outside": np.float32([11.5]), "nan": np.float32([np.nan])}
        wrong["infinite"] = np.float32([np.inf])
        if late and self._rule == "raises":
            raise KeyError("missing")
        if self._rule == "endless":
            terminated = truncated = False
        if self._rule == "four values":
            return observation, reward, terminated, info  # type: ignore[return-value]
        reward = {"no reward": None, "nan reward": np.nan, "flat": 1.0}.get(self._rule, reward)
        return wrong.get(self._rule, observation) if late else observation, reward, terminated, truncated, info


class Lists(Point):
    """Gives the same list every time, with other numbers in it."""

    def _observe(self) -> Any:
        self._list = getattr(self, "_list", [0.0])
        self._list[:] = [self._position]
        return self._list


class Elsewhere(Point):
    """Works in a folder of its own, where it finds its files."""

    def __init__(self) -> None:
        super().__init__()
        os.chdir("assets")


class Switching(Point):
    """Goes over to another step in mid-episode."""

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.step = self._first  # type: ignore[method-assign]
        return super().reset(**kwargs)

    def _first(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.step = self._later  # type: ignore[method-assign]
        return self._observe(), 1.0, False, False, {}

    def _later(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._observe(), 100.0, True, False, {}


class Machine(Switching):
    """Begins with the same step every time, also when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.step = self._first  # type: ignore[method-assign]


class Late(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes 100 off where the time is up."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, float(reward) - 100 * truncated, terminated, truncated, info


gymnasium.register(
    "Late-v0", Point, max_episode_steps=3, additional_wrappers=(WrapperSpec("Late", f"{__name__}:Late", {}),)
)


def own_walker() -> gymnasium.Env[Any, Any]:
    """Return an environment of a class derived from Gymnasium's."""
    from gymnasium.envs.box2d import BipedalWalker

    class OwnWalker(BipedalWalker):
        pass

    return OwnWalker()


def three_choices() -> gymnasium.Env[Any, Any]:
    """Return an environment with three actions."""
    env = Point()
    env.action_space = gymnasium.spaces.Discrete(3)
    return env


class Outside(Point):
    """Observes a Dict, whose position is too large."""

    def __init__(self) -> None:
        super().__init__()
        parts = {"kind": gymnasium.spaces.Discrete(2), "position": gymnasium.spaces.Box(-10, 10, (2,), np.float32)}
        self.observation_space = gymnasium.spaces.Dict(parts)

    def _observe(self) -> Any:
        return {"kind": 1, "position": np.float32([0, 11.5 * (self._time == 7)])}


class Slow(Point):
    """With attributes that say less than usual."""

    metadata = {"render_fps": 0.5}  # noqa: RUF012
    _max_episode_steps = None


class Old(Point):
    """By the interface of gym before 0.26."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


def wrong(rule: str) -> gymnasium.Env[Any, Any]:
    return Wrong(rule)
