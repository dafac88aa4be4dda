"""Observations in the form that the policy reads: a list of numbers, some of them hidden.

Owns the meaning of ``task.hide_observations``. Must not know which task an observation comes from. Invariant:
nothing else of the task changes: rewards, lengths, seeds and frames are those of the task inside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pyes.config import EnvironmentConfig
from pyes.config.section import refusal
from pyes.errors import ConfigError
from pyes.networks import ObservationEncoder
from pyes.networks.observation import ObservationPart, dotted, leaves
from pyes.tasks.base import Step, Task, TaskAround, VectorStep, VectorTask


class EncodedTask(TaskAround):
    """A task whose observations are the numbers that an encoder makes of them.

    Parameters
    ----------
    task : Task
        The whole one; closed with this one.
    encoder : ObservationEncoder
    observed : bool
        Whether the last observation, as it is seen, characterises an episode.
    """

    def __init__(self, task: Task, encoder: ObservationEncoder, observed: bool) -> None:
        super().__init__(task)
        self._encode = self.encoder = encoder
        self.native = task.native
        # Hidden numbers that stay, as zeros, leave an array its shape.
        self.observation_shape = task.observation_shape if encoder.size == task.observation_size else (encoder.size,)
        self._observed = observed
        if observed:
            self.behaviour_size = self.observation_size

    def reset(self, seed: int) -> Any:
        """Begin the episode of ``seed``; returns what is seen of the first observation."""
        return self._encode(self._task.reset(seed))

    def step(self, action: Any) -> Step:
        """Apply one action for one timestep."""
        observation, *others = self._task.step(action)
        return (self._encode(observation), *others)

    def behaviour(self, observation: Any) -> NDArray[Any]:
        """Return the behaviour of the episode; for ``final_observation``, only the visible numbers."""
        return np.ravel(observation) if self._observed else self._task.behaviour(observation)


class EncodedVector:
    """A vector of environments with some numbers of their observations hidden; see `EncodedTask`."""

    def __init__(self, vector: VectorTask, encoder: ObservationEncoder) -> None:
        self._vector = vector
        self._encoder = encoder
        self.observation_size = encoder.size

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Begin the episodes of ``seeds``; returns the visible part of the first observations, (n, size)."""
        return self._seen(self._vector.reset(seeds))

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> VectorStep:
        """Apply one action for one timestep in each of the environments ``slots``."""
        observations, rewards, ended = self._vector.step(slots, actions)
        return self._seen(observations), rewards, ended

    def _seen(self, observations: NDArray[Any]) -> NDArray[Any]:
        return self._encoder.seen(observations.reshape(len(observations), -1))

    def close(self) -> None:
        """Close the environments."""
        self._vector.close()


def array_space(shape: tuple[int, ...]) -> spaces.Box:
    """Return the space of arrays of which no more is known than their shape."""
    return spaces.Box(-np.inf, np.inf, shape)


def encoder_of(
    space: spaces.Space[Any], config: EnvironmentConfig, parts: Mapping[str, range] | None = None
) -> ObservationEncoder:
    """Return the encoder of a task's observations.

    Parameters
    ----------
    space : Space
        Of the observations.
    config : EnvironmentConfig
        hide_observations: which numbers are hidden; hide_by: whether they are left out, or zero.
    parts : mapping or None
        Names of numbers where the space has none; see `pyes.tasks.base.Task`.

    Raises
    ------
    ConfigError
        The task has no such numbers, or none would be left.
    """
    encoder = ObservationEncoder.for_space(space)
    hidden = sorted(_numbers(config.hide_observations, encoder.whole, parts or _names(space, encoder)))
    if hidden and len(hidden) == encoder.whole:
        raise ConfigError(
            f"task.hide_observations: got all {encoder.whole} numbers, expected that the policy sees some"
        )
    return replace(encoder, hidden=tuple(hidden), hide_by=config.hide_by)


def _names(space: spaces.Space[Any], encoder: ObservationEncoder) -> Mapping[str, range]:
    """Return which numbers belong to each named part, none to those that are no numbers."""
    return {**dict.fromkeys(unread(space), range(0)), **encoder.ranges}


def unread(space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    """Return the parts of a space that are no numbers, by name; the name is empty where the space is such a part."""
    found = ((dotted(keys), part) for keys, part in leaves(space) if ObservationPart.of(keys, part) is None)
    return dict(found)


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
            known = ", ".join(sorted(parts))
            names = f", or names of parts: {known}" if parts else ": this observation has no named parts"
            raise refusal("task.hide_observations", each, f"indices{names}")
        numbers.update(*found)
    return numbers


def covers(hidden: Sequence[int | str], name: str) -> bool:
    """Whether a part of an observation is hidden by its own name or that of a part that contains it."""
    return any(each == name or name.startswith(f"{each}.") for each in hidden if isinstance(each, str))
