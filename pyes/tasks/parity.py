"""Whether a task has the episodes of the environment that it stands in for, bit for bit.

Must not know what is compared. Used when a task is made with a simulator's version that was not verified, and by the
tests that verify versions.
"""

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from pyes.tasks.base import Task

_TIMESTEPS = 30


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
    for timestep, action in enumerate(_random(task.action_space, seed) if actions is None else actions):
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


def _random(space: spaces.Space[Any], seed: int) -> Iterable[Any]:
    """Return random actions, those of many numbers also beyond their bounds; each is held for a few timesteps."""
    rng = np.random.default_rng(seed)
    if isinstance(space, spaces.Discrete):
        drawn: Any = space.start + rng.integers(space.n, size=_TIMESTEPS)
        return (int(action) for action in drawn)
    assert isinstance(space, spaces.Box)
    drawn = rng.normal(0, 1, (_TIMESTEPS, *space.shape)) * space.high
    return drawn.astype(space.dtype)[np.arange(_TIMESTEPS) // 3 * 3]  # type: ignore[no-any-return]
