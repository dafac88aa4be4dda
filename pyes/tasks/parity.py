"""Whether a task has the episodes of another environment, bit for bit.

Owns the comparison of episodes, and when it takes place: in the tests that verify a simulator's version, and when a
process makes its first task of an environment with a version that was not verified. Must not know what is compared.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from pyes.errors import ConfigError
from pyes.system import lookup
from pyes.tasks.base import Task

_TIMESTEPS = 30

logger = logging.getLogger(__name__)
#: What this process has compared.
_compared: set[str] = set()


def check_versions(
    label: str, verified: Mapping[str, tuple[str, ...]], compare: Callable[[], str | None], advice: str = ""
) -> None:
    """Compare, once a process, what runs with versions that were not verified; a line in the log says so.

    Parameters
    ----------
    label : str
        What messages call the environment.
    verified : mapping
        By distribution: the versions with which the tests have compared every environment.
    compare : callable
        Returns the first difference as `first_difference` does.
    advice : str
        What else to try, for the message.

    Raises
    ------
    ConfigError
        There is a difference.
    """
    installed = {name: lookup.version(name) for name in verified}
    others = {name: version for name, version in installed.items() if version not in verified[name]}
    if not others or label in _compared:
        return
    _compared.add(label)
    versions = " and ".join(f"{name} {version}" for name, version in others.items())
    difference = compare()
    if difference is None:
        logger.info("%s was not verified with %s: a first comparison shows no difference", label, versions)
        return
    known = " ".join(f"{name}=={verified[name][-1]}" for name in others)
    raise ConfigError(
        f"{label} is another one with {versions} than pyes expects ({difference}); "
        f"install what it was verified with ({known}){advice}"
    )


def first_difference(
    task: Task, original: gymnasium.Env[Any, Any], seed: int = 0, actions: Iterable[Any] | None = None
) -> str | None:
    """Play an episode in a task and in the original, and say where they differ first; None if nowhere.

    The episode goes on where the original would end it: on the floor, contacts are many.

    Parameters
    ----------
    task : Task
        Left in the middle of an episode.
    original : gymnasium.Env
        Left in the middle of an episode, too; its actions are the task's.
    seed : int
        Of the episode.
    actions : iterable or None
        By default 30 random ones.
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
    """Return which of what a timestep gives is another one."""
    observations = [np.asarray(each[0]) for each in (ours, theirs)]
    kinds = {(each.dtype, each.shape, each.tobytes()) for each in observations}
    if len(kinds) > 1:
        return "the observation"
    names = ("reward", "terminated", "truncated")
    pairs = zip(names, ours[1:], theirs[1:], strict=False)
    return next((f"'{name}' ({our!r}, not {their!r})" for name, our, their in pairs if our != their), None)


def random_actions(space: spaces.Space[Any], seed: int) -> list[Any]:
    """Return random actions, those of many numbers also beyond their bounds; each is held for a few timesteps."""
    rng = np.random.default_rng(seed)
    if isinstance(space, spaces.Discrete):
        drawn: Any = space.start + rng.integers(space.n, size=_TIMESTEPS)
        return [int(action) for action in drawn]
    if not isinstance(space, spaces.Box):
        space.seed(seed)
        return [space.sample() for _ in range(_TIMESTEPS)]
    drawn = rng.normal(0, 1, (_TIMESTEPS, *space.shape)) * np.where(np.isfinite(space.high), space.high, 1)
    return list(drawn.astype(space.dtype)[np.arange(_TIMESTEPS) // 3 * 3])
