"""Tasks of the Arcade Learning Environment.

Owns the preprocessing of Mnih et al. (2015): the last four grey frames of 84 by 84, each the maximum of two raw frames;
a random number of no-ops at the start. Or the policy sees the console's memory instead of the screen. Must not know how
a game is scored. Invariant: every timestep equals, bit for bit, that of Gymnasium's AtariPreprocessing and
FrameStackObservation around the same game.

An episode is a whole game with all lives; scores are not clipped (Salimans et al. 2017).
"""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from numpy.typing import NDArray

from pyes.config import refusal, unknown_key
from pyes.errors import missing
from pyes.tasks.atari_restart import find_start, restart
from pyes.tasks.gymnasium import Family, GymnasiumConfig

#: Frames of the stack, and the height and width of each.
SHAPE = (4, 84, 84)
#: Bytes of the console's memory.
MEMORY = 128

_FRAMES_PER_SECOND = 60
#: Keys of ``task.env_kwargs`` and their defaults; None is the game's own default.
_OPTIONS: dict[str, Any] = {
    "obs_type": "grayscale",
    "noop_max": 30,
    "fire_start": False,
    "repeat_action_probability": 0.0,
    "max_num_frames_per_episode": 108_000,
    "full_action_space": False,
    "mode": None,
    "difficulty": None,
}


class AtariTask(Family):
    """A game of the Arcade Learning Environment as a task; see `pyes.tasks.base.Task`.

    Observations are uint8 (4, 84, 84), the oldest frame first; or with ``obs_type: ram`` uint8 (128,), the console's
    memory after the last raw frame.

    Parameters
    ----------
    config : GymnasiumConfig
        ``env_id`` as accepted by `knows`; ``frame_skip``, 4 by default; ``env_kwargs``, keys of `_OPTIONS`.
    render_mode : str or None
        Gymnasium's; "rgb_array" for videos.

    Raises
    ------
    ConfigError
        A package is missing, there is no such game, or an option is unknown or invalid.
    TaskError
        The game could not be made.
    """

    DEFAULT_FRAME_SKIP = 4
    PACKAGE = "ale_py"
    VERIFIED = {"gymnasium": ("1.4.0",), "ale-py": ("0.12.1",)}  # noqa: RUF012

    @classmethod
    def knows(cls, env_id: str) -> bool:
        """Whether an id is like ``ALE/Pong-v5``, or like the older ``PongNoFrameskip-v4``."""
        return (env_id.startswith("ALE/") and env_id.endswith("-v5")) or env_id.endswith("NoFrameskip-v4")

    @classmethod
    def guess(cls, env_id: str) -> str | None:
        """Return the id with ``ALE/`` added if there is such a game."""
        with contextlib.suppress(ImportError):
            importlib.import_module("ale_py")  # registers its games
        game = f"ALE/{env_id}"
        return game if game in gymnasium.registry else None

    @classmethod
    def original(cls, config: GymnasiumConfig) -> gymnasium.Env[Any, Any]:
        """Make the game in Gymnasium's wrappers."""
        options = {**_OPTIONS, **config.env_kwargs}
        sticky = options["repeat_action_probability"]
        bare = gymnasium.make(config.env_id, frameskip=1, repeat_action_probability=sticky)
        skip = cls.DEFAULT_FRAME_SKIP if config.frame_skip == "auto" else config.frame_skip
        preprocessed = AtariPreprocessing(bare, noop_max=options["noop_max"], frame_skip=skip)
        if _sees_memory(config):
            return _MemoryObservation(preprocessed)
        return FrameStackObservation(preprocessed, SHAPE[0])

    def _comparable(self) -> GymnasiumConfig:
        seen = {key: value for key, value in self._config.env_kwargs.items() if key == "obs_type"}
        return GymnasiumConfig(env_id=self._config.env_id, env_kwargs=seen)

    def _make(self) -> Any:
        ale_py, cv2 = _import_packages(self._config.env_id)
        _check(self._config.env_kwargs)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no output for each new game
        start = {key: self._option(key) for key in ("noop_max", "fire_start")}
        memory = _sees_memory(self._config)
        return Game(super()._make(), ale_py.Action.__members__, cv2, self.frame_skip, memory=memory, **start)

    def _option(self, key: str) -> Any:
        return self._config.env_kwargs.get(key, _OPTIONS[key])

    def _create(self, arguments: Mapping[str, Any]) -> Any:
        ours = ("obs_type", "noop_max", "fire_start")
        given = {key: value for key, value in arguments.items() if key not in ours}
        sticky = self._option("repeat_action_probability")
        return super()._create({**given, "repeat_action_probability": sticky, "frameskip": 1})

    def _own_limit(self) -> int:
        limit: int = self._option("max_num_frames_per_episode")
        return limit

    def _traits(self) -> dict[str, tuple[int, Callable[[], NDArray[Any]]]]:
        return {"ram": (MEMORY, lambda: self._innermost().ram())}

    def _shorten_step(self) -> None:
        self.step = self._env.step  # type: ignore[method-assign]  # `Game` skips frames itself


class Game(gymnasium.Env[NDArray[np.uint8], int]):
    """A game with preprocessed frames, or the console's memory, as observations.

    Parameters
    ----------
    env : gymnasium.Env
        The game with one frame per step.
    actions : mapping
        The emulator's actions by name.
    cv2 : module
        OpenCV.
    frame_skip : int
        Number of raw frames for which an action is held.
    noop_max : int
        Maximum number of raw frames without an action at the start; the minimum is 1, or 0 if this is 0.
    fire_start : bool
        Whether games that have FIRE begin with FIRE and then the next action, as in the code of Such et al. (2017).
    memory : bool
        Whether observations are the console's memory. Frames are then neither read nor made smaller.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": _FRAMES_PER_SECOND}  # noqa: RUF012

    def __init__(
        self,
        env: Any,
        actions: Mapping[str, Any],
        cv2: Any,
        frame_skip: int,
        noop_max: int,
        fire_start: bool,
        memory: bool,
    ) -> None:
        self._env = env.unwrapped
        self._ale = self._env.ale
        meanings = self._env.get_action_meanings()
        self._actions = [actions[name] for name in meanings]
        self._opening = self._actions[1:3] if fire_start and meanings[1:2] == ["FIRE"] else []
        self._frame_skip, self._noop_max = frame_skip, noop_max
        # Sticky actions need the emulator's own seed, which it reads only when a cartridge is loaded.
        quick = noop_max > 0 and self._ale.getFloat("repeat_action_probability") == 0
        self._start = find_start(self._ale, self._actions) if quick else None
        self._resize, self._area = cv2.resize, cv2.INTER_AREA
        # The newest raw frame, and the one before.
        self._raw, self._raw_before = np.zeros((2, *self._ale.getScreenDims()), np.uint8)
        self._stack = np.zeros(SHAPE, np.uint8)
        self.observation_space = spaces.Box(0, 255, (MEMORY,) if memory else SHAPE, np.uint8)
        self.action_space = self._env.action_space
        self._memory = memory

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin a game that does not depend on earlier ones."""
        self._begin(seed)
        if self._memory:
            return self.ram(), {}
        self._ale.getScreenGrayscale(self._raw)
        self._raw_before.fill(0)
        self._stack[:] = self._frame(np.empty(SHAPE[1:], np.uint8))
        return self._stack.copy(), {}

    def _begin(self, seed: int | None) -> None:
        """Advance the game to the first frame of the policy."""
        self._restart(seed)
        noops = self._env.np_random.integers(1, self._noop_max + 1) if self._noop_max else 0
        pressed = [self._actions[0]] * int(noops)
        for action in self._opening:
            pressed += [action] * self._frame_skip
        for action in pressed:
            self._ale.act(action)
            if self._ale.game_over():
                self._restart(seed)

    def _restart(self, seed: int | None) -> None:
        if self._start is None:
            self._env.reset(seed=seed)  # loads the cartridge
        else:
            self._env.seed_game(seed)
            restart(self._ale, self._start)

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Hold an action for ``frame_skip`` raw frames or until the game ends; returns a new array each time."""
        ale, pressed = self._ale, self._actions[action]
        score = 0
        for left in reversed(range(self._frame_skip)):
            score += ale.act(pressed)
            if ale.game_over():
                break
            if self._memory:
                continue
            if left == 1:
                ale.getScreenGrayscale(self._raw_before)
            elif left == 0:
                ale.getScreenGrayscale(self._raw)
        seen = self.ram() if self._memory else self._push_frame()
        return seen, float(score), ale.game_over(with_truncation=False), ale.game_truncated(), {}

    def _push_frame(self) -> NDArray[np.uint8]:
        """Return a new stack that ends with the newest frame."""
        stack = np.empty(SHAPE, np.uint8)
        stack[:-1] = self._stack[1:]
        self._frame(stack[-1])
        self._stack = stack
        return stack

    def _frame(self, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resize the maximum of two raw frames, since some sprites are drawn only in every other frame."""
        if self._frame_skip > 1:
            np.maximum(self._raw, self._raw_before, out=self._raw)
        self._resize(self._raw, SHAPE[1:], dst=out, interpolation=self._area)
        return out

    def ram(self) -> NDArray[np.uint8]:
        """Return the console's memory, uint8 (128,)."""
        memory: NDArray[np.uint8] = self._ale.getRAM()
        return memory

    def render(self) -> Any:
        """Return the newest raw frame in colour, uint8 (210, 160, 3), or 250 lines in some games."""
        return self._env.render()


class _MemoryObservation(gymnasium.ObservationWrapper[NDArray[np.uint8], int, NDArray[np.uint8]]):
    """The console's memory instead of what the wrapped environment observes."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (MEMORY,), np.uint8)

    def observation(self, observation: Any) -> NDArray[np.uint8]:
        memory: NDArray[np.uint8] = self.env.unwrapped.ale.getRAM()  # type: ignore[attr-defined]
        return memory


def _sees_memory(config: GymnasiumConfig) -> bool:
    return bool(config.env_kwargs.get("obs_type") == "ram")


def _import_packages(env_id: str) -> tuple[Any, Any]:
    """Import the emulator, which registers its games, and OpenCV."""
    try:
        return importlib.import_module("ale_py"), importlib.import_module("cv2")
    except ImportError as error:
        packages = "ale-py and opencv-python-headless"
        raise missing(f"task.env_id: {env_id!r}", packages, "atari", error) from error


def _check(options: Mapping[str, Any]) -> None:
    """Reject unknown options, and invalid values that the emulator would accept silently."""
    for key, value in options.items():
        path = f"task.env_kwargs.{key}"
        if key not in _OPTIONS:
            raise unknown_key("task.env_kwargs", key, _OPTIONS)
        if key == "obs_type" and value not in ("grayscale", "ram"):
            raise refusal(path, value, "grayscale or ram")
        if key == "noop_max" and not (_is_number(value, int) and value >= 0):
            raise refusal(path, value, "an integer >= 0")
        if key in ("mode", "difficulty") and not (value is None or _is_number(value, int)):
            raise refusal(path, value, "an integer or null")
        if key == "repeat_action_probability" and not (_is_number(value, int | float) and 0 <= value <= 1):
            raise refusal(path, value, "a finite number >= 0 and <= 1")
        if key in ("fire_start", "full_action_space") and not isinstance(value, bool):
            raise refusal(path, value, "true or false")
        if key == "max_num_frames_per_episode" and not (_is_number(value, int) and value >= 1):
            raise refusal(path, value, "an integer >= 1")


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
