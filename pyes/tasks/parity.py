"""Compares the episodes of a task with those of the original environment, or with its own in C, bit for bit.

Owns the comparisons and their occasions: the tests that verify a simulator's version, the first task of an environment
that a process makes with a version that was not verified, and each task whose simulator is stepped by C. Must not know
which simulator is compared.
"""

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from pyes._core import CompiledEnvironment
from pyes.errors import ConfigError
from pyes.system import lookup
from pyes.tasks.base import Task

_TIMESTEPS = 30
_EPISODES = 2  # in C

logger = logging.getLogger(__name__)
#: Labels of the environments that this process has compared.
_compared: set[str] = set()


def check_versions(
    label: str, verified: Mapping[str, tuple[str, ...]], compare: Callable[[], str | None], advice: str = ""
) -> None:
    """Compare an environment with the original, once per process, if installed versions were not verified.

    Parameters
    ----------
    label : str
        Name of the environment in messages.
    verified : mapping
        For each distribution: the versions with which the tests have compared every environment.
    compare : callable
        Returns the first difference as `first_difference` does.
    advice : str
        An alternative for the error message.

    Raises
    ------
    ConfigError
        There is a difference.
    """
    installed = {name: lookup.version(name) for name in verified}
    others = {name: version for name, version in installed.items() if version not in verified[name]}
    if not others or label in _compared:
        return
    versions = " and ".join(f"{name} {version}" for name, version in others.items())
    _compared.add(label)  # the comparison makes the task
    difference: str | None = ""
    try:
        difference = compare()
    finally:
        if difference is not None:  # else the next task would not be compared
            _compared.discard(label)
    if difference is None:
        logger.info("%s was not verified with %s: a first comparison shows no difference", label, versions)
        return
    known = " ".join(f"{name}=={verified[name][-1]}" for name in others)
    raise ConfigError(
        f"{label} behaves differently with {versions} than pyes expects ({difference}); "
        f"install a verified version ({known}){advice}"
    )


def first_difference(
    task: Task, original: gymnasium.Env[Any, Any], seed: int = 0, actions: Iterable[Any] | None = None
) -> str | None:
    """Run an episode in a task and in the original; return the first difference, or None.

    The episode continues past its end, since robots on the floor have many contacts.

    Parameters
    ----------
    task : Task
        Left in the middle of an episode.
    original : gymnasium.Env
        Left in the middle of an episode.
    seed : int
        Seed of the episode.
    actions : iterable or None
        Default: 30 random ones.
    """
    if task.action_space != original.action_space:
        return f"its actions are {task.action_space}, not {original.action_space}"
    if difference := _difference((task.reset(seed),), (original.reset(seed=seed)[0],)):
        return f"{difference} of reset"
    for timestep, action in enumerate(random_actions(task.action_space, seed) if actions is None else actions):
        if difference := _difference(task.step(action)[:4], original.step(action)[:4]):
            return f"{difference} of timestep {timestep}"
    return None


def _difference(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> str | None:
    """Return the first of the results of a timestep that differs, or None."""
    observations = [np.asarray(each[0]) for each in (ours, theirs)]
    kinds = {(each.dtype, each.shape, each.tobytes()) for each in observations}
    if len(kinds) > 1:
        return "the observation"
    names = ("reward", "terminated", "truncated")
    pairs = zip(names, ours[1:], theirs[1:], strict=False)
    return next((f"'{name}' ({our!r}, not {their!r})" for name, our, their in pairs if our != their), None)


def verified_in_c(task: Task, made: Callable[[], CompiledEnvironment]) -> CompiledEnvironment | None:
    """Return an environment in C with the timesteps of a task, or None where it cannot be made, or differs."""
    try:
        native = made()
        return native if _same_in_c(task, native) else None
    except Exception as error:  # functions elsewhere in another version; what is wrong with the task shows in Python
        logger.debug("Python steps %s: %r", task, error)
        return None


def _same_in_c(task: Task, native: CompiledEnvironment) -> bool:
    """Whether episodes in C have the bits of those of the task; they go on where the environment would end them."""
    for seed in range(_EPISODES):
        actions = random_actions(task.action_space, seed)
        theirs, ours = (_bits(played, seed, actions) for played in (task, native))
        if theirs != ours:
            timestep = next(i for i, (their, our) in enumerate(zip(theirs, ours, strict=True)) if their != our)
            logger.info("Python steps %s: C differs in timestep %d of the episode of seed %d", task, timestep, seed)
            return False
    return True


def _bits(played: Any, seed: int, actions: list[Any]) -> list[tuple[bytes, float, bool, bool]]:
    """Return all that an episode gives."""
    trace = [(played.reset(seed).tobytes(), 0.0, False, False)]
    for action in actions:
        observation, reward, terminated, truncated, *_ = played.step(action)
        trace.append((observation.tobytes(), float(reward), bool(terminated), bool(truncated)))
    return trace


def random_actions(space: spaces.Space[Any], seed: int) -> list[Any]:
    """Return random actions; continuous ones also exceed their bounds and are held for three timesteps."""
    rng = np.random.default_rng(seed)
    if isinstance(space, spaces.Discrete):
        drawn: Any = space.start + rng.integers(space.n, size=_TIMESTEPS)
        return [int(action) for action in drawn]
    if not isinstance(space, spaces.Box):
        space = copy.deepcopy(space)  # the environment may draw from its own
        space.seed(seed)
        return [space.sample() for _ in range(_TIMESTEPS)]
    drawn = rng.normal(0, 1, (_TIMESTEPS, *space.shape)) * np.where(np.isfinite(space.high), space.high, 1)
    return list(drawn.astype(space.dtype)[np.arange(_TIMESTEPS) // 3 * 3])
