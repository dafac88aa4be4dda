"""Hides parts of observations from the policy.

Owns the choice of the visible numbers, and the names of an observation's parts. Must not know the kind of task.
Invariant: rewards, lengths, seeds and frames of the task do not change.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pyes.config import EnvironmentConfig
from pyes.config.section import refusal
from pyes.errors import ConfigError
from pyes.tasks.base import Step, Task, TaskAround, VectorStep, VectorTask

#: Spaces that a policy can read: a fixed count of numbers.
_NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


class HiddenTask(TaskAround):
    """A task with some numbers of its flattened observation hidden.

    Parameters
    ----------
    task : Task
        The task to wrap; closed with this one.
    config : EnvironmentConfig
        ``hide_observations``: which; ``hide_by``: whether they are removed or set to zero.

    Raises
    ------
    ConfigError
        The task has no such numbers, or none would be left.
    """

    def __init__(self, task: Task, config: EnvironmentConfig) -> None:
        super().__init__(task)
        self._mask = _Mask(task.observation_size, config, task.parts)
        if config.hide_by == "remove":
            self.observation_shape = (self._mask.left,)
        self._observed = config.behaviour == "final_observation"
        if self._observed:
            self.behaviour_size = self.observation_size

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; returns the visible part of the first observation."""
        return self._mask.seen(np.ravel(self._task.reset(seed)))

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        observation, *others = self._task.step(action)
        return (self._mask.seen(np.ravel(observation)), *others)

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return the behaviour of the episode; for ``final_observation``, only the visible numbers."""
        return np.ravel(observation) if self._observed else self._task.behaviour(observation)


class HiddenVector:
    """A vector of environments with some numbers of their observations hidden; see `HiddenTask`."""

    def __init__(self, vector: VectorTask, config: EnvironmentConfig) -> None:
        self._vector = vector
        self._mask = _Mask(vector.observation_size, config, {})
        self.observation_size = self._mask.left if config.hide_by == "remove" else vector.observation_size

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Begin the episodes of ``seeds``; returns the visible part of the first observations, (n, size)."""
        return self._seen(self._vector.reset(seeds))

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> VectorStep:
        """Apply one action for one timestep in each of the environments ``slots``."""
        observations, rewards, ended = self._vector.step(slots, actions)
        return self._seen(observations), rewards, ended

    def _seen(self, observations: NDArray[Any]) -> NDArray[Any]:
        return self._mask.seen(observations.reshape(len(observations), -1))

    def close(self) -> None:
        """Close the environments."""
        self._vector.close()


class _Mask:
    """Selects the visible ones of ``size`` numbers."""

    def __init__(self, size: int, config: EnvironmentConfig, parts: Mapping[str, range]) -> None:
        self._hidden = np.array(sorted(_numbers(config.hide_observations, size, parts)), int)
        self._kept = np.delete(np.arange(size), self._hidden)
        self.left = len(self._kept)
        if not self.left:
            raise ConfigError(f"task.hide_observations: got all {size} numbers, expected that the policy sees some")
        self._zero = config.hide_by == "zero"

    def seen(self, whole: NDArray[Any]) -> NDArray[Any]:
        """Return the visible part of (..., size) numbers in a new array, since the environment may reuse its own."""
        if not self._zero:
            kept: NDArray[Any] = whole[..., self._kept]
            return kept
        seen = whole.copy()
        seen[..., self._hidden] = 0
        return seen


def _numbers(hidden: Sequence[int | str], size: int, parts: Mapping[str, range]) -> set[int]:
    """Return the indices given by ``task.hide_observations``."""
    numbers: set[int] = set()
    for each in hidden:
        if isinstance(each, int):
            if each >= size:
                expected = f"expected at most {size - 1}: the task observes {size} numbers"
                raise ConfigError(f"task.hide_observations: got {each}, {expected}")
            numbers.add(each)
            continue
        found = [indices for name, indices in parts.items() if covers([each], name)]
        if not found:
            names = f", or names of parts: {', '.join(parts)}" if parts else ": this observation has no named parts"
            raise refusal("task.hide_observations", each, f"indices{names}")
        numbers.update(*found)
    return numbers


def covers(hidden: Sequence[int | str], name: str) -> bool:
    """Whether a part of an observation is hidden by its own name or that of a part that contains it."""
    return any(each == name or name.startswith(f"{each}.") for each in hidden if isinstance(each, str))


class Flattening(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Flattens observations to numbers in the order of `gymnasium.spaces.flatten`; omits texts and the like.

    Parameters
    ----------
    env : gymnasium.Env
        An environment whose observation space is not a Box.

    Attributes
    ----------
    parts : dict of str to range
        Indices of each part by its dotted name; empty for an omitted part.
    omitted : dict of str to gymnasium.Space
        Parts that are not numbers; the name is empty if the whole observation is such a part.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.parts: dict[str, range] = {}
        self.omitted: dict[str, spaces.Space[Any]] = {}
        self._read: list[tuple[tuple[Any, ...], spaces.Space[Any]]] = []
        size = 0
        for keys, space in _leaves(env.observation_space):
            name, start = ".".join(map(str, keys)), size
            if isinstance(space, _NUMBERS):
                size += spaces.flatdim(space)
                self._read.append((keys, space))
            else:
                self.omitted[name] = space
            if keys:
                self.parts[name] = range(start, size)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,))

    def observation(self, observation: Any) -> NDArray[Any]:
        """Return the numbers of an observation."""
        flat: Any = [spaces.flatten(space, reduce(getitem, keys, observation)) for keys, space in self._read]
        return np.concatenate(flat)


def _leaves(space: spaces.Space[Any], keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the parts of a space that have no parts themselves, with the path of keys to each."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield keys, space
        return
    for key, part in space.items() if isinstance(space, spaces.Dict) else enumerate(space):
        yield from _leaves(part, (*keys, key))
