"""Environments with Gymnasium's interface as tasks.

Owns the check of the spaces, the episode limit, repeated actions, and resets that make every episode independent of
earlier ones, even where the environment's own reset does not. Must not know where the environment comes from:
subclasses make it.
"""

import abc
import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pyes.config import EnvironmentConfig, refusal
from pyes.config.section import AtLeastOne, NotNegative
from pyes.errors import ConfigError, PyesError, TaskError
from pyes.networks import ObservationEncoder
from pyes.system import lookup
from pyes.system.text import message, reason
from pyes.system.user_code import close_within, folder, is_of_the_call, let_through
from pyes.tasks.base import Step, Task
from pyes.tasks.bullet_output import quiet_worlds
from pyes.tasks.encoded import covers, unread


@dataclass(frozen=True)
class WrappedConfig(EnvironmentConfig):
    """Base of the settings of environments with Gymnasium's interface."""

    frame_skip: Annotated[int, AtLeastOne] | Literal["auto"] = "auto"  # steps per action; auto: Atari 4, else 1
    action_levels: Annotated[int, NotNegative] = 0  # evenly spread values that the task rounds components to; 0: any
    behaviour: Literal["none", "final_observation", "final_position", "ram"] = "none"  # what tells episodes apart
    remake: bool = False  # make the environment anew for every episode, if its reset keeps state of earlier ones

    def check(self) -> None:
        """Reject a single action level."""
        super().check()
        if self.action_levels == 1:
            raise refusal("task.action_levels", 1, "0 (any value) or an integer >= 2")


class WrappedTask(Task):
    """An environment as a task; a subclass makes the environment.

    Parameters
    ----------
    config : WrappedConfig
        Settings.
    render_mode : str or None
        Gymnasium's; "rgb_array" for videos.

    Raises
    ------
    ConfigError
        The environment is unknown, or its spaces cannot be used.
    TaskError
        The environment could not be made.
    """

    DEFAULT_FRAME_SKIP = 1

    def __init__(self, config: Any, render_mode: str | None = None) -> None:
        self._config = config
        self._render_mode = render_mode
        self.frame_skip = self.DEFAULT_FRAME_SKIP if config.frame_skip == "auto" else config.frame_skip
        before = folder()
        self._env = self._make()
        self._way = before, folder()  # before it was made, and after
        try:
            self._describe()
        except BaseException:
            close_within(f"the environment of {self._label()}", self._env.close)
            raise
        self._shorten_step()

    def _describe(self) -> None:
        """Set the attributes that depend on the environment."""
        self._check_spaces()
        self.observation_space = self._env.observation_space
        self.observation_shape = self._shape_of_observations()
        self.action_space: spaces.Space[Any] = self._env.action_space
        own = self._own_limit()
        self.max_timesteps = None if own is None else math.ceil(own / self.frame_skip)
        self.render_fps = float((self._env.metadata or {}).get("render_fps") or 30) / self.frame_skip
        classes = (f"{each.__module__}.{each.__qualname__}" for each in type(self._innermost()).__mro__)
        self._refresh = next((_CLEAN_SLATES[name] for name in classes if name in _CLEAN_SLATES), None)
        levels = self._config.action_levels
        self._levels = _Levels(self.action_space, levels) if levels else None
        self._trait = self._find_trait()
        self.behaviour_size = self._trait[0]

    # Methods for subclasses

    @abc.abstractmethod
    def _create(self, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        """Make the environment, without a wrapper for its episode limit if possible."""

    @abc.abstractmethod
    def _label(self) -> str:
        """Return the environment's name in messages."""

    @abc.abstractmethod
    def _own_limit(self) -> int | None:
        """Return the environment's episode limit in its own steps, or None."""

    def _innermost(self) -> Any:
        """Return the environment itself, without wrappers."""
        return self._env.unwrapped

    def _traits(self) -> dict[str, tuple[int, Callable[[], NDArray[Any]]]]:
        """Return, for each further value of ``task.behaviour``, the size of the behaviour and a function to read it."""
        # A user's own environment may have a position.
        known = hasattr(self._innermost(), "position")
        return {"final_position": (2, self._own_position)} if known else {}

    # Making

    def _make(self) -> Any:
        rendering = {}
        if self._render_mode is not None:  # environments without rendering do not accept the argument
            rendering["render_mode"] = self._render_mode
            _draw_without_display()
        try:
            env = self._create({**self._config.env_kwargs, **rendering})
        except PyesError as error:
            cause = error.__cause__
            unknown = isinstance(cause, TypeError) and "argument" in str(error)
            if rendering and (unknown or isinstance(cause, AssertionError)):  # many assert that they have the mode
                error.add_note(f"(a film needs an environment that takes render_mode={self._render_mode!r})")
            raise
        quiet_worlds()
        return env

    @contextmanager
    def _making(self, *refusals: type[Exception]) -> Iterator[None]:
        """Turn any exception into a one-line error: ConfigError for ``refusals`` and ImportError, else TaskError."""
        try:
            yield
        except BaseException as error:
            let_through(error)
            if isinstance(error, (ImportError, *refusals)):
                text = " ".join(message(error).split())
                if isinstance(error, ModuleNotFoundError) and ":" in self._label():  # MODULE:ID
                    text += f"; {lookup.WHERE}"
                raise ConfigError(f"{self._label()} cannot be made: {text}") from error
            raise TaskError(f"{self._label()} cannot be made: {reason(error)}") from error

    def _check_spaces(self) -> None:
        """Refuse an environment without spaces, or with parts of observations that are no numbers and not hidden."""
        for key in ("observation_space", "action_space"):
            space = getattr(self._env, key, None)
            if not isinstance(space, spaces.Space):
                kind = "" if space is None else f", a {type(space).__module__}.{type(space).__qualname__},"
                raise ConfigError(f"{self._label()} has {space!r}{kind} for its {key}, expected a gymnasium.Space")
        omitted = unread(self._env.observation_space)
        if "" in omitted:
            kind = type(omitted[""]).__name__
            raise ConfigError(f"{self._label()} observes a {kind}, which is no list of numbers; wrap the environment")
        names = [name for name in omitted if not covers(self._config.hide_observations, name)]
        if names:
            raise ConfigError(
                f"{self._label()} observes a {type(omitted[names[0]]).__name__} in its part {names[0]!r}, which is no "
                f"list of numbers; hide it with task.hide_observations=[{','.join(names)}], or wrap the environment"
            )

    def _shape_of_observations(self) -> tuple[int, ...]:
        """Return the shape of an observation: its own, or that of the list of its numbers."""
        encoder = ObservationEncoder.for_space(self._env.observation_space)
        if encoder.whole == 0:
            raise ConfigError(f"{self._label()} observes nothing: {self._env.observation_space}")
        return encoder.parts[0].shape if encoder.array else (encoder.whole,)

    def _find_trait(self) -> tuple[int, Callable[[Any], NDArray[Any]]]:
        """Return the size of the behaviour and a function to read it when an episode ends."""
        kind = self._config.behaviour
        if kind == "none":
            return 0, lambda _: np.empty(0)
        if kind == "final_observation":
            return self.observation_size, np.ravel
        traits = self._traits()
        if kind not in traits:
            others = ", ".join(map(repr, ("none", "final_observation", *traits)))
            hint = "; an environment's own attribute `position` is set by its constructor"
            raise ConfigError(
                f"task.behaviour: got {kind!r}, expected one of {others} for {self._config.title}"
                f"{hint if kind == 'final_position' else ''}"
            )
        size, read = traits[kind]
        return size, lambda _: read()

    def _own_position(self) -> NDArray[np.float64]:
        """Return the environment's attribute ``position``: (2,)."""
        position = np.array(self._innermost().position, float)
        if position.shape != (2,):
            expected = "(2,), which is x and y; or take task.behaviour=final_observation"
            raise TaskError(f"{self._label()} has a position of shape {position.shape}, expected {expected}")
        return position

    @property
    def _is_bare(self) -> bool:
        """Whether our ``step`` would do nothing but call the environment's."""
        return self.frame_skip == 1 and self._levels is None

    def _shorten_step(self) -> None:
        """Call the environment's ``step`` directly if that is enough."""
        if self._is_bare:
            self.step = self._env.step  # type: ignore[method-assign]

    # Episodes

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``, independent of earlier ones; returns the first observation."""
        if self._config.remake:
            close_within(f"the environment of {self._label()}", self._env.close)
            if self._way[0] != self._way[1] == folder():  # it works where it finds its files
                with contextlib.suppress(OSError):
                    os.chdir(self._way[0])
            self._env = self._make()
            self._shorten_step()
        elif self._refresh is not None:
            self._refresh(self._innermost())
        try:
            begun = self._env.reset(seed=seed)
        except TypeError as error:
            if "seed" in str(error) and is_of_the_call(error):
                raise TaskError(
                    f"{self._label()}: reset takes no seed ({error}), which is Gymnasium's interface: reset(self, *, "
                    "seed=None, options=None); an environment of old gym is task=gym"
                ) from error
            raise
        if not (isinstance(begun, tuple) and len(begun) == 2):
            raise TaskError(
                f"{self._label()}: reset returned a {type(begun).__name__}, expected (observation, info), which is "
                "Gymnasium's interface; an environment of old gym is task=gym"
            )
        own = vars(self._env).get("step")
        if self._is_bare and own is not None and (own != self.step or getattr(own, "__self__", None) is self._env):
            self.step = lambda action: self._env.step(action)  # type: ignore[method-assign] # it may change it again
        return begun[0]

    def step(self, action: Any) -> Step:
        """Apply one action, rounded to its levels, ``frame_skip`` times; returns the sum of rewards."""
        if self._levels is not None:
            action = self._levels.nearest(action)
        total = 0.0
        for _ in range(self.frame_skip):
            observation, reward, terminated, truncated, info = self._env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return the behaviour of the episode that ended with ``observation``: (behaviour_size,)."""
        return self._trait[1](observation)

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3)."""
        return np.asarray(self._env.render())

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _draw_without_display() -> None:
    """Choose EGL for environments that MuJoCo draws if there is no display: its default would open a window."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")


class _Levels:
    """Rounds each component of an action to one of ``count`` evenly spaced values from bound to bound."""

    def __init__(self, space: spaces.Space[Any], count: int) -> None:
        if not isinstance(space, spaces.Box) or not (np.isfinite(space.low) & np.isfinite(space.high)).all():
            raise ConfigError(f"task.action_levels={count} needs bounds, but the action space is {space}; use 0")
        if not np.issubdtype(space.dtype, np.floating):
            raise ConfigError(f"task.action_levels={count} is for real numbers, but the action space is {space}; use 0")
        self._low, self._high = space.low, space.high
        self._span = space.high - space.low
        self._divisor = np.where(self._span > 0, self._span, 1)  # a component may have one value alone
        self._gaps = space.low.dtype.type(count - 1)

    def nearest(self, action: NDArray[Any]) -> NDArray[Any]:
        """Return an action with each component rounded to the nearest level."""
        share = (np.clip(action, self._low, self._high) - self._low) / self._divisor
        rounded = self._low + self._span * (np.rint(share * self._gaps) / self._gaps)
        level: NDArray[Any] = np.clip(rounded, self._low, self._high)  # the last one may be rounded beyond its bound
        return level


def _fresh_bipedal_world(walker: Any) -> None:
    """Give BipedalWalker a new Box2D world.

    Its own reset only empties the old one, whose order of contacts, and so the last bits of results, would depend on
    earlier episodes. The old one is left as it is: after an exception in one of its callbacks it destroys nothing more.
    """
    import Box2D

    walker.world.contactListener = None
    walker.terrain = []  # tells the walker's own reset that nothing is left to destroy
    walker.world = Box2D.b2World()


def _fresh_lander_world(lander: Any) -> None:
    """Give the lander a new world, as only Gymnasium's own reset does; see `_fresh_bipedal_world`."""
    import Box2D

    lander.world.contactListener = None
    lander.moon, lander.particles = None, []  # nothing is left to destroy
    lander.world = Box2D.b2World(gravity=(0, lander.gravity))


#: For classes of environments, and those derived from them, whose reset keeps state of earlier episodes: a function
#: that removes it.
_CLEAN_SLATES: dict[str, Callable[[Any], None]] = {
    "gymnasium.envs.box2d.bipedal_walker.BipedalWalker": _fresh_bipedal_world,
    "gymnasium.envs.box2d.lunar_lander.LunarLander": _fresh_lander_world,
    "gym.envs.box2d.bipedal_walker.BipedalWalker": _fresh_bipedal_world,
    "gym.envs.box2d.lunar_lander.LunarLander": _fresh_lander_world,
}
