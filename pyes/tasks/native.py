"""Environments in C as tasks: those of ``pyes_environment.h``, whatever language they were written in.

Owns the ways to a ``struct pyes_environment``: a library, an object of Python, or one that comes with pyes; and the
same environment with Gymnasium's interface. Must not know how an episode runs: `CompiledEnvironment` steps, and
`pyes.episodes.native` runs whole episodes without Python. Invariant: both give the same bits.
"""

import ctypes
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pyes import _core
from pyes.config import EnvironmentConfig, refusal
from pyes.config.registry import TASKS
from pyes.config.section import AtLeastOne
from pyes.errors import ConfigError
from pyes.system.lookup import check_allowed, find
from pyes.system.text import reason
from pyes.tasks.base import Step, Task
from pyes.tasks.environment import TaskEnvironment
from pyes.tasks.numba_environment import Environment
from pyes.tasks.pictures import Picture

_EXPECTED = "MODULE:OBJECT, for example 'my_tasks:point'"
_FORMS = (
    "an environment of pyes.native, a PyCapsule named 'pyes.environment', an address, or a ctypes pointer or struct"
)


def include_dir() -> str:
    """Return the folder of ``pyes_environment.h``, for a C compiler."""
    return str(Path(str(importlib.import_module("pyes.include").__file__)).parent)


@dataclass(frozen=True)
class NativeConfig(EnvironmentConfig):
    """Settings of an environment in C; it is named in one of three ways."""

    name: str = "native"
    env_id: str = ""  # of one that comes with pyes
    library: str = ""  # path of a shared library ...
    symbol: str = ""  # ... and the name of its struct pyes_environment
    factory: str = ""  # MODULE:OBJECT, the struct or a function that returns it, called as FUNCTION(**env_kwargs)
    frame_skip: Annotated[int, AtLeastOne] = 1  # steps per action
    behaviour: Literal["none", "final_observation"] = "none"  # what tells episodes apart

    @property
    def title(self) -> str:
        """The environment's id, or where it is."""
        return self.env_id or self.factory or f"{self.library}:{self.symbol}"

    def check(self) -> None:
        """Reject anything but one way, and arguments that nothing takes."""
        super().check()
        ways = {key: value for key in ("env_id", "library", "factory") if (value := getattr(self, key))}
        if len(ways) != 1:
            got = " ".join(f"task.{key}={value}" for key, value in ways.items()) or "none"
            raise ConfigError(f"task: got {got}, expected one of task.env_id, task.library and task.factory")
        if bool(self.library) != bool(self.symbol):
            raise refusal("task.symbol", self.symbol, "the name of a struct pyes_environment in task.library")
        if self.env_kwargs and not self.factory:
            raise refusal("task.env_kwargs", self.env_kwargs, "{} without task.factory")


@TASKS.register("native")
class NativeTask(Task):
    """An environment in C as a task; see `pyes.tasks.base.Task`.

    Raises
    ------
    ConfigError
        It cannot be found, or what is there is not a struct pyes_environment of this version.
    """

    Config = NativeConfig

    def __init__(self, config: NativeConfig, render_mode: str | None = None) -> None:
        label, address, self._owner = self._found(config)
        self._frame_skip = config.frame_skip
        try:
            self.native = self._environment = _core.CompiledEnvironment(address, config.frame_skip)
        except ValueError as error:
            raise ConfigError(f"{label} is no environment that can be used: {error}") from error
        self._describe(self._environment)
        self.max_timesteps = -(-self._environment.time_limit // config.frame_skip) or None
        self.behaviour_size = self.observation_size if config.behaviour == "final_observation" else 0
        self._picture = Picture(config.title) if render_mode is not None and self._draw is None else None
        if self._picture is not None:
            self.render_fps = self._picture.fps / config.frame_skip

    def _found(self, config: NativeConfig) -> tuple[str, int, Any]:
        return _found(config)

    @property
    def _draw(self) -> Callable[[Any], Any] | None:
        return self._owner.draw if isinstance(self._owner, Environment) else None

    def _describe(self, native: _core.CompiledEnvironment) -> None:
        self.observation_shape = (native.observation_size,)
        with np.errstate(over="ignore"):  # a bound beyond float32 is infinite
            low, high = (bound.astype(native.dtype) for bound in native.observation_bounds)
        self.observation_space = spaces.Box(low, high, dtype=native.dtype.type)
        self.action_space: spaces.Space[Any]
        if native.choices:
            self.action_space = spaces.Discrete(native.choices)
        else:
            self.action_space = spaces.Box(*native.action_bounds, dtype=np.float32)

    def reset(self, seed: int) -> NDArray[Any]:
        """Begin the episode of ``seed``; returns the first observation."""
        if self._picture is not None:
            self._picture.begin()
        return self._environment.reset(seed)

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        return (*self._environment.step(action), {})

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return the last observation."""
        return np.ravel(observation)

    def explain(self, seed: int, actions: Sequence[Any]) -> BaseException | None:
        """Return what the episode of these actions raises in Python, where Numba has compiled it from that."""
        if not isinstance(self._owner, Environment):
            return None
        return self._owner.explain(seed, [each for each in actions for _ in range(self._frame_skip)])

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3); drawn by itself, or by the environment it stands for."""
        state = self._environment.state
        if self._draw is not None:
            return np.asarray(self._draw(self._owner.view(state) if isinstance(self._owner, Environment) else state))
        return super().render() if self._picture is None else self._picture.draw(state)

    def close(self) -> None:
        """Close what draws."""
        if self._picture is not None:
            self._picture.close()


def _found(config: NativeConfig) -> tuple[str, int, Any]:
    """Return what the configuration names: for messages, its address, and what keeps it in memory."""
    if config.env_id:
        own = _core.own_environments()
        if config.env_id not in own:
            raise refusal("task.env_id", config.env_id, f"one of {', '.join(map(repr, own))} with task=native")
        return f"task.env_id={config.env_id}", own[config.env_id], None
    if config.library:
        return _in_library(config.library, config.symbol)
    label = f"task.factory={config.factory}"
    found = find("task.factory", config.factory, _EXPECTED)
    if callable(found):
        found = found(**config.env_kwargs)
    elif config.env_kwargs:
        raise refusal("task.env_kwargs", config.env_kwargs, f"{{}}, because {config.factory} is no function")
    return label, _address(label, found), found


def _in_library(library: str, symbol: str) -> tuple[str, int, Any]:
    """Return the same for a symbol of a shared library."""
    path = Path(library).absolute()
    check_allowed("task.library", library, str(path))
    if not path.is_file():
        raise ConfigError(f"task.library: there is no file {library}; compile it first, on every machine")
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise ConfigError(f"task.library={library} cannot be loaded: {reason(error)}") from error
    try:
        struct = ctypes.c_char.in_dll(loaded, symbol)
    except ValueError as error:
        raise ConfigError(
            f"task.symbol: {library} has no {symbol}; is it a global struct, not static, with PYES_EXPORT before it?"
        ) from error
    return f"task.library={library} task.symbol={symbol}", ctypes.addressof(struct), loaded


def _address(label: str, found: Any) -> int:
    """Return the address that an object stands for."""
    if isinstance(found, Environment):
        found = found.struct
    if isinstance(found, int):
        return found
    if isinstance(found, ctypes.Structure):
        return ctypes.addressof(found)
    if isinstance(found, ctypes._Pointer | ctypes.c_void_p):
        return ctypes.cast(found, ctypes.c_void_p).value or 0
    if type(found).__name__ != "PyCapsule":
        raise ConfigError(f"{label} is {type(found).__name__}, expected {_FORMS}, or a function that returns one")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        return int(get(found, b"pyes.environment"))
    except ValueError as error:
        raise ConfigError(f"{label} is a PyCapsule of another name, expected 'pyes.environment'") from error


class _GivenTask(NativeTask):
    """A task of an environment that is at hand, and of a function that draws it."""

    def __init__(self, config: NativeConfig, given: Any, render: Callable[[Any], Any] | None) -> None:
        self._given, self._render = given, render
        super().__init__(config, "rgb_array" if config.env_id else None)

    def _found(self, config: NativeConfig) -> tuple[str, int, Any]:
        if self._given is None:
            return super()._found(config)
        found = self._given
        if callable(found) and not isinstance(found, type):
            try:
                found = found()
            except TypeError as error:
                raise ConfigError(f"{config.title} cannot be called without arguments: {reason(error)}") from error
        return config.title, _address(config.title, found), found

    @property
    def _draw(self) -> Callable[[Any], Any] | None:
        return self._render or super()._draw

    @property
    def draws(self) -> bool:
        """Whether there is a function that draws."""
        return self._draw is not None or self._picture is not None


def as_gymnasium(environment: Any, render: Callable[[Any], Any] | None = None) -> TaskEnvironment:
    """Return an environment with Gymnasium's interface and the same episodes, to draw, test or use it elsewhere.

    Parameters
    ----------
    environment : object
        What `pyes.native.environment` has made or ``task.factory`` takes; the id of one that comes with pyes, such as
        "CartPole-v1"; or a library and its symbol as "point.so:point".
    render : callable or None
        Called with the state, returns a frame, uint8 (height, width, 3): the record that ``self`` is in a class for
        `pyes.native.environment`, whose own ``render`` is taken by default, else the bytes of the state. What comes
        with pyes is drawn without.

    Returns
    -------
    gymnasium.Env
        Its ``step`` truncates an episode at the environment's time limit; ``reset(seed=...)`` begins the episode that
        pyes plays under that seed.

    Raises
    ------
    ConfigError
        There is no such environment, or it cannot be used.
    """
    config = NativeConfig(factory=type(environment).__name__)
    if isinstance(environment, str):
        library, colon, symbol = environment.rpartition(":")
        config = NativeConfig(library=library, symbol=symbol) if colon else NativeConfig(env_id=environment)
        config.check()
    task = _GivenTask(config, None if isinstance(environment, str) else environment, render)
    return TaskEnvironment(task, "rgb_array" if task.draws else None)
