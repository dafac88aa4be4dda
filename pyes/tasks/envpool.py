"""Tasks of EnvPool, which steps many environments in one call.

Owns what makes its environments reproducible: EnvPool accepts seeds only when environments are made, so every episode
uses a new environment. Nothing then depends on earlier episodes, and no environment is stepped past its end, where
EnvPool would begin another episode.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pyes.config import EnvironmentConfig, refusal
from pyes.config.registry import TASKS
from pyes.errors import ConfigError, TaskError, missing
from pyes.system.process_wide import warnings_as
from pyes.system.text import reason
from pyes.tasks.base import Step, Task, VectorStep
from pyes.tasks.parity import check_versions, random_actions

#: Arguments of EnvPool that pyes sets itself.
_RESERVED = ("num_envs", "batch_size", "num_threads", "seed", "env_seed", "gym_reset_return_info")
_SEEDS = 2**31 - 1  # EnvPool's seeds are below this
_COMPARED = 8  # timesteps compared with a version that was not verified


@dataclass(frozen=True)
class EnvPoolConfig(EnvironmentConfig):
    """Settings of an environment of EnvPool."""

    name: str = "envpool"
    env_id: str = ""
    behaviour: Literal["none", "final_observation"] = "none"  # what tells episodes apart

    @property
    def title(self) -> str:
        """The environment's id."""
        return self.env_id

    def check(self) -> None:
        """Reject a missing ``env_id``."""
        super().check()
        if not self.env_id:
            raise refusal("task.env_id", self.env_id, "the id of an environment, for example 'CartPole-v1'")


class EnvPoolVector:
    """Several equal environments; see `pyes.tasks.base.VectorTask`.

    Parameters
    ----------
    config : EnvPoolConfig
        env_id, env_kwargs.
    render_mode : str or None
        "rgb_array" for videos.

    Raises
    ------
    ConfigError
        The package is missing, EnvPool has no such environment, its spaces cannot be used, or frames of a MuJoCo
        environment are wanted.
    """

    def __init__(self, config: EnvPoolConfig, render_mode: str | None = None) -> None:
        self._config = config
        self._package = _import_package(config.env_id)
        self._rendering = {} if render_mode is None else {"render_mode": render_mode}
        self._pool: Any = None
        self.spec = self._make_spec()
        self.observation_space, self.action_space = self._read_spaces()
        self.observation_size = math.prod(self.observation_space.shape)
        if render_mode is not None and any(
            base.__module__.startswith("envpool.mujoco") for base in type(self.spec).__mro__
        ):
            # Without an OpenGL context it would crash the process.
            raise ConfigError(
                f"task.env_id: EnvPool cannot draw {config.env_id!r}: no video of its MuJoCo environments"
            )

    def _make_spec(self) -> Any:
        """Read the environment's specification without making one."""
        env_id, arguments = self._config.env_id, self._config.env_kwargs
        for name in _RESERVED:
            if name in arguments:
                raise ConfigError(f"task.env_kwargs: got {name!r}, which pyes sets itself with task=envpool")
        known = self._package.list_all_envs()
        if env_id not in known:
            close = difflib.get_close_matches(env_id, known, n=3)
            hint = f"; close: {', '.join(close)}" if close else ""
            raise ConfigError(f"task.env_id: EnvPool has no environment {env_id!r}{hint}")
        try:
            with warnings_as("ignore"):  # its repeated one about float64 bounds in float32 spaces
                return self._package.make_spec(env_id, **arguments)
        except Exception as error:
            raise ConfigError(f"task.env_id: EnvPool cannot make {env_id!r}: {reason(error)}") from error

    def _read_spaces(self) -> tuple[spaces.Box, spaces.Space[Any]]:
        label = f"task.env_id: {self._config.env_id!r}"
        if self.spec.config._asdict().get("max_num_players", 1) != 1:
            raise ConfigError(f"{label} is played by several, expected one player")
        with warnings_as("ignore"):
            observations, actions = self.spec.observation_space, self.spec.action_space
        if not isinstance(observations, spaces.Box):
            raise ConfigError(f"{label} observes a {type(observations).__name__}, expected a Box")
        if isinstance(actions, spaces.Dict | spaces.Tuple):
            raise ConfigError(f"{label} takes a {type(actions).__name__} as action, expected one array or number")
        return observations, actions

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Make one environment for each seed; return their first observations."""
        self.close()
        try:
            with warnings_as("ignore"):
                self._pool = self._package.make_gymnasium(
                    self._config.env_id,
                    num_envs=len(seeds),
                    num_threads=1,  # a worker has one core
                    seed=[seed % _SEEDS for seed in seeds],
                    **self._config.env_kwargs,
                    **self._rendering,
                )
                observations: NDArray[Any] = self._pool.reset()[0]
        except Exception as error:
            raise TaskError(f"task.env_id: making {self._config.env_id!r} failed: {reason(error)}") from error
        return observations

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> VectorStep:
        """Apply one action for one timestep in each of the environments ``slots``; results have the same order."""
        observations, rewards, terminated, truncated = self.step_apart(slots, actions)
        return observations, rewards, terminated | truncated

    def step_apart(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Do as `step`; return observations, rewards, and apart which episodes were terminated and truncated."""
        observations, rewards, terminated, truncated, _ = self._pool.step(np.asarray(actions), slots)
        return observations, rewards, terminated, truncated

    def render(self) -> Any:
        """Return the current frame of the first environment, uint8 (height, width, 3)."""
        return self._pool.render()[0]

    def close(self) -> None:
        """Delete the environments and the thread that steps them."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


@TASKS.register("envpool")
class EnvPoolTask(Task):
    """One environment of EnvPool as a task; see `pyes.tasks.base.Task`.

    Parameters
    ----------
    config : EnvPoolConfig
        env_id, env_kwargs.
    render_mode : str or None
        "rgb_array" for videos.

    Raises
    ------
    ConfigError
        As `EnvPoolVector`.
    """

    Config = EnvPoolConfig
    Vector = EnvPoolVector
    VERIFIED: ClassVar[Mapping[str, tuple[str, ...]]] = {"envpool": ("1.2.5",)}
    packages = tuple(VERIFIED)

    def __init__(self, config: EnvPoolConfig, render_mode: str | None = None) -> None:
        self._config = config
        self._vector = EnvPoolVector(config, render_mode)
        self._slot = np.zeros(1, np.int64)
        self.observation_space = self._vector.observation_space
        self.observation_shape = self.observation_space.shape
        self.action_space = self._vector.action_space
        self.behaviour_size = 0 if config.behaviour == "none" else self.observation_size
        self.max_timesteps = self._vector.spec.config._asdict().get("max_episode_steps")
        if render_mode is None:
            check_versions(f"task.env_id: {config.env_id!r}", self.VERIFIED, self._compare)

    def _compare(self) -> str | None:
        """Return the first difference between an episode run alone and the same one run beside another."""
        alone, beside = EnvPoolVector(self._config), EnvPoolVector(self._config)
        slots = np.arange(2)
        try:
            if (beside.reset([1, 0])[1] != alone.reset([0])[0]).any():
                return "the observation of reset"
            for timestep, action in enumerate(random_actions(self.action_space, 0)[:_COMPARED]):
                ours = alone.step(slots[:1], np.array([action]))
                theirs = beside.step(slots, np.array([action] * 2))
                if any(np.any(mine[0] != other[1]) for mine, other in zip(ours, theirs, strict=True)):
                    return f"timestep {timestep}"
                if theirs[2].any():
                    break
            return None
        finally:
            alone.close()
            beside.close()

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed`` in a new environment; returns the first observation."""
        return self._vector.reset([seed])[0]

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        found = self._vector.step_apart(self._slot, np.asarray(action)[None])
        observation, reward, terminated, truncated = (each[0] for each in found)
        return observation, reward, bool(terminated), bool(truncated), {}

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return the last observation."""
        return np.ravel(observation)

    def render(self) -> Any:
        """Return the current frame, uint8 (height, width, 3); TaskError if EnvPool cannot render it."""
        try:
            return self._vector.render()
        except Exception as error:
            raise TaskError(f"task.env_id: EnvPool cannot draw {self._config.env_id!r}: {reason(error)}") from error

    def close(self) -> None:
        """Delete the environment."""
        self._vector.close()


def _import_package(env_id: str) -> Any:
    try:
        import envpool
    except ImportError as error:
        raise missing(f"task.env_id: {env_id!r} of task=envpool", "envpool", "envpool", error, ", on Linux") from error
    return envpool
