"""Tasks from Gymnasium's registry.

Owns what makes a registered environment a task: its observations flattened to numbers, its episode limit known, its
actions repeated, and every reset a clean slate, also where the environment does not give one by itself.
"""

import copy
import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from pyes.config import TaskConfig
from pyes.errors import ConfigError, PyesError, TaskError
from pyes.system.lifetime import Closing
from pyes.system.text import reason
from pyes.tasks.base import Step


class GymnasiumTask(Closing):
    """A registered environment as a task; see `pyes.tasks.base.Task`.

    Parameters
    ----------
    config : TaskConfig       env_id, env_kwargs, max_timesteps, frame_skip, action_levels, remake
    render_mode : str | None  Gymnasium's; "rgb_array" for videos

    Raises
    ------
    ConfigError    the id is not registered (the message names similar ones), or its spaces cannot be used
    TaskError      the environment could not be made
    """

    DEFAULT_FRAME_SKIP = 1

    def __init__(self, config: TaskConfig, render_mode: str | None = None) -> None:
        self._config = config
        self._render_mode = render_mode
        self.frame_skip = self.DEFAULT_FRAME_SKIP if config.frame_skip == "auto" else config.frame_skip
        self._env = self._make()
        self.observation_shape = self._check_observations()
        self.observation_size = math.prod(self.observation_shape)
        self.action_space: spaces.Space[Any] = self._env.action_space
        self.max_timesteps = self._episode_limit()
        self.render_fps = int(self._env.metadata.get("render_fps") or 30) / self.frame_skip
        self._refresh = _CLEAN_SLATES.get(type(self._innermost()).__name__)
        self._levels = _Levels(self.action_space, config.action_levels) if config.action_levels else None
        self._trait = self._find_trait()
        self.behaviour_size = self._trait[0]
        self._shorten_step()

    def _shorten_step(self) -> None:
        """Put no Python frame between the rollout and the environment where there is nothing to do in it."""
        if self.frame_skip == 1 and self._levels is None:
            self.step = self._env.step  # type: ignore[method-assign]

    def _make(self) -> gymnasium.Env[Any, Any]:
        # An environment need not know of rendering until somebody wants to see it.
        rendering = {} if self._render_mode is None else {"render_mode": self._render_mode}
        env = self._create({**self._config.env_kwargs, **rendering})
        for name in ("observation_space", "action_space"):
            space = getattr(env, name, None)
            if not isinstance(space, spaces.Space):
                raise ConfigError(f"{self._label()} has {space!r} for its {name}, expected a gymnasium.Space")
        if env.observation_space.is_np_flattenable and not isinstance(env.observation_space, spaces.Box):
            env = gymnasium.wrappers.FlattenObservation(env)
        return env

    def _label(self) -> str:
        """Return what messages call the environment."""
        return f"task.env_id: {self._config.env_id!r}"

    def _create(self, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        """Make the environment as it comes."""
        with self._making(gymnasium.error.Error):
            # The rollout keeps the episode limit itself: a wrapper for it would only cost time.
            spec = _find_spec(self._config.env_id)
            return gymnasium.make(spec, max_episode_steps=-1, disable_env_checker=True, **arguments)

    @contextmanager
    def _making(self, registry_error: type[Exception]) -> Iterator[None]:
        """Say in one line why an environment could not be made."""
        try:
            yield
        except PyesError:
            raise
        except (registry_error, ImportError) as error:
            message = " ".join(str(error).split())
            raise ConfigError(f"{self._label()} cannot be made: {message}") from error
        except Exception as error:
            raise TaskError(f"task.env_id: making {self._config.env_id!r} failed: {reason(error)}") from error

    def _innermost(self) -> Any:
        """Return the environment itself, without wrappers."""
        return self._env.unwrapped

    def _own_limit(self) -> int | None:
        """Return the environment's own limit of an episode in its own steps; None without one."""
        return _find_spec(self._config.env_id).max_episode_steps

    def _episode_limit(self) -> int | None:
        """Return the timesteps of an episode: the task's and the environment's limit, whichever is less."""
        own, limit = self._own_limit(), self._config.max_timesteps
        limits = [] if own is None else [math.ceil(own / self.frame_skip)]
        if limit is not None:
            limits.append(limit)
        return min(limits, default=None)

    def _check_observations(self) -> tuple[int, ...]:
        space = self._env.observation_space
        if space.shape is None:
            raise ConfigError(f"{self._label()} observes what has no fixed size: {space}")
        if math.prod(space.shape) == 0:
            raise ConfigError(f"{self._label()} observes nothing: {space}")
        return tuple(int(size) for size in space.shape)

    def _find_trait(self) -> tuple[int, Callable[[Any], NDArray[Any]]]:
        """Return how many numbers characterise an episode, and how to read them at its end."""
        kind = self._config.behaviour
        if kind == "none":
            return 0, lambda _: np.empty(0)
        if kind == "final_observation":
            return self.observation_size, np.ravel
        traits = self._traits()
        if kind not in traits:
            others = ", ".join(map(repr, ("none", "final_observation", *traits)))
            raise ConfigError(f"task.behaviour: got {kind!r}, expected one of {others} for {self._config.title}")
        size, read = traits[kind]
        return size, lambda _: read()

    def _traits(self) -> dict[str, tuple[int, Callable[[], NDArray[Any]]]]:
        """Return what beside its last observation can characterise an episode: how many numbers, how to read them."""
        # An environment of the user's own may say where its body is.
        known = hasattr(self._innermost(), "position")
        return {"final_position": (2, self._own_position)} if known else {}

    def _own_position(self) -> NDArray[np.float64]:
        """Return what the environment says of its position: (2,)."""
        position = np.array(self._innermost().position, float)
        if position.shape != (2,):
            expected = "(2,), which is x and y; or take task.behaviour=final_observation"
            raise TaskError(f"{self._label()} has a position of shape {position.shape}, expected {expected}")
        return position

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return what characterises the episode that ended with an observation: (behaviour_size,)."""
        return self._trait[1](observation)

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed`` on a clean slate; returns the first observation."""
        if self._config.remake:
            self._env.close()
            self._env = self._make()
            self._shorten_step()
        elif self._refresh is not None:
            self._refresh(self._innermost())
        return self._env.reset(seed=seed)[0]

    def step(self, action: Any) -> Step:
        """Apply one action, rounded to its levels, ``frame_skip`` times and add up the rewards."""
        if self._levels is not None:
            action = self._levels.nearest(action)
        total = 0.0
        for _ in range(self.frame_skip):
            observation, reward, terminated, truncated, info = self._env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""
        return np.asarray(self._env.render())

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class _Levels:
    """The values that an action is rounded to, ``count`` a component, both bounds among them."""

    def __init__(self, space: spaces.Space[Any], count: int) -> None:
        if not isinstance(space, spaces.Box) or not (np.isfinite(space.low) & np.isfinite(space.high)).all():
            raise ConfigError(f"task.action_levels={count} needs bounds, but the action space is {space}; use 0")
        self._low, self._high = space.low, space.high
        self._span = space.high - space.low
        self._gaps = space.low.dtype.type(count - 1)

    def nearest(self, action: NDArray[Any]) -> NDArray[Any]:
        """Return an action with each component at the level nearest to it."""
        share = (np.clip(action, self._low, self._high) - self._low) / self._span
        rounded: NDArray[Any] = self._low + self._span * (np.rint(share * self._gaps) / self._gaps)
        return rounded


def _find_spec(env_id: str) -> EnvSpec:
    """Look up an id in the registry; of "module:id" the module is imported first, to register it."""
    module, _, name = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    spec = copy.deepcopy(gymnasium.spec(name))
    spec.order_enforce = False  # the rollout keeps the order of calls itself
    return spec


def _fresh_bipedal_world(walker: Any) -> None:
    """Give BipedalWalker a new Box2D world.

    Its reset empties the old one, but the order in which that world then keeps contacts depends on the episodes
    before, and with it the last bits of the next.
    """
    import Box2D

    walker._destroy()
    walker.terrain = []  # what the walker's own reset looks at to see that nothing is left to destroy
    walker.world = Box2D.b2World()


_CLEAN_SLATES: dict[str, Callable[[Any], None]] = {"BipedalWalker": _fresh_bipedal_world}
