"""Observations of which the policy sees a part.

Owns what is left of an observation, and how its parts are named. Must not know which task it comes from. Invariant:
nothing else of the task changes: rewards, lengths, seeds and frames are those of the task inside.
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

#: Spaces without parts that a policy can read: a fixed count of numbers.
_NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


class HiddenTask(TaskAround):
    """A task without some numbers of its observations, counted in the flattened observation.

    Parameters
    ----------
    task : Task
        The whole one; closed with this one.
    config : EnvironmentConfig
        hide_observations: which; hide_by: whether they are left out, or zero.

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
        """Begin the episode of ``seed``; returns what is seen of the first observation."""
        return self._mask.seen(np.ravel(self._task.reset(seed)))

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        observation, *others = self._task.step(action)
        return (self._mask.seen(np.ravel(observation)), *others)

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return what characterises the episode; of its last observation, what was seen."""
        return np.ravel(observation) if self._observed else self._task.behaviour(observation)


class HiddenVector:
    """Environments side by side without some numbers of their observations; see `HiddenTask`."""

    def __init__(self, vector: VectorTask, config: EnvironmentConfig) -> None:
        self._vector = vector
        self._mask = _Mask(vector.observation_size, config, {})
        self.observation_size = self._mask.left if config.hide_by == "remove" else vector.observation_size

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Begin the episodes of ``seeds``; returns what is seen of the first observations, (n, size)."""
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
    """Which of ``size`` numbers are seen."""

    def __init__(self, size: int, config: EnvironmentConfig, parts: Mapping[str, range]) -> None:
        self._hidden = np.array(sorted(_numbers(config.hide_observations, size, parts)), int)
        self._kept = np.delete(np.arange(size), self._hidden)
        self.left = len(self._kept)
        if not self.left:
            raise ConfigError(f"task.hide_observations: got all {size} numbers, expected that the policy sees some")
        self._zero = config.hide_by == "zero"

    def seen(self, whole: NDArray[Any]) -> NDArray[Any]:
        """Return what is seen of (..., size) numbers, newly allocated: the environment may use its own array again."""
        if not self._zero:
            kept: NDArray[Any] = whole[..., self._kept]
            return kept
        seen = whole.copy()
        seen[..., self._hidden] = 0
        return seen


def _numbers(hidden: Sequence[int | str], size: int, parts: Mapping[str, range]) -> set[int]:
    """Return the indices that ``task.hide_observations`` means."""
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
    """Whether a part of an observation is hidden by its name, or with a part that it belongs to."""
    return any(each == name or name.startswith(f"{each}.") for each in hidden if isinstance(each, str))


class Flattening(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose observations are a list of numbers; parts that are no numbers, such as texts, are left out.

    The numbers have the order of `gymnasium.spaces.flatten`.

    Parameters
    ----------
    env : gymnasium.Env
        Its observations are no array, or made of parts: its space is not a Box.

    Attributes
    ----------
    parts : dict of str to range
        Which numbers belong to each part, by dotted names; none to a part that is left out. Empty without parts.
    omitted : dict of str to gymnasium.Space
        The parts that are left out; the name is empty where the observation is such a part as a whole.
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
    """Yield the parts of a space that have no parts themselves, with the keys that lead to each in an observation."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield keys, space
        return
    for key, part in space.items() if isinstance(space, spaces.Dict) else enumerate(space):
        yield from _leaves(part, (*keys, key))
