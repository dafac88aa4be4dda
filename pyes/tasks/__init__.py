"""Tasks: environments as pyes runs them, one module per kind or family.

    base        the interface between a rollout and a task
    wrapped     environments with Gymnasium's interface, made by gymnasium, gym and python
    bullet, box2d, mujoco, atari    families of Gymnasium's environments with an implementation of pyes
    mujoco_timestep             timesteps of MuJoCo environments in C
    envpool     many environments stepped in one call
    native      environments in C
    numba_environment    environments in Python that Numba compiles, behind the same struct
    parity      compares a family with the original, bit for bit
    pictures, slime_volley    what draws the environments in C
    function    a plain function of theta
    encoded     observations in the form that the policy reads
    environment a task with Gymnasium's interface, for `pyes.make_env`
    functions, maze    tasks that come with pyes

Must not know policies or how members are evaluated. A simulator is imported only when a task of it is made.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import Space

from pyes.config import EnvironmentConfig, TaskConfig, refusal
from pyes.config.task import task_class
from pyes.errors import ConfigError, TaskError
from pyes.system.text import reason
from pyes.system.user_code import close_within, let_through
from pyes.tasks.base import Task, VectorTask

if TYPE_CHECKING:
    from pyes.tasks.environment import TaskEnvironment

__all__ = ["Task", "VectorTask", "has_vector", "make", "make_environment", "make_vector"]

_MOST_TIMESTEPS = 10_000  # of an episode that neither the environment nor the settings limit: ten times the usual limit


def make(config: TaskConfig, render_mode: str | None = None) -> Task:
    """Make the task that a configuration describes.

    Parameters
    ----------
    config : TaskConfig
        The section ``task`` of a configuration.
    render_mode : str or None
        Gymnasium's; "rgb_array" for videos.

    Raises
    ------
    ConfigError
        The environment is unknown or cannot be used.
    TaskError
        It could not be made.
    """
    task = _make_bare(config, render_mode)
    try:
        return _observed(task, config) if isinstance(config, EnvironmentConfig) else task
    except BaseException:
        task.close()
        raise


def make_environment(config: TaskConfig, render_mode: str | None = None) -> "TaskEnvironment":
    """Make the environment of a task, with its own observations and actions; see `make`.

    Raises
    ------
    ConfigError, TaskError
        As `make`, or the task is a function of theta, which has no environment.
    """
    if not isinstance(config, EnvironmentConfig):
        raise ConfigError(f"{config.title} is a function of theta and has no environment; call it with policy.theta")
    from pyes.tasks.environment import TaskEnvironment

    return TaskEnvironment(_make_bare(config, render_mode), render_mode)


def _make_bare(config: TaskConfig, render_mode: str | None) -> Task:
    """Make a task that gives the environment's own observations."""
    try:
        kind: Callable[[TaskConfig, str | None], Task] = _kind(config).suited(config)
        task = kind(config, render_mode)
    except BaseException as error:
        let_through(error)
        raise TaskError(f"task {config.title} cannot be made: {reason(error)}") from error
    if isinstance(config, EnvironmentConfig):
        _check_description(task)
    task.close = partial(close_within, f"the environment of {config.title}", task.close)  # type: ignore[method-assign]
    limits = [limit for limit in (task.max_timesteps, config.most_timesteps) if limit is not None]
    task.limited, task.max_timesteps = bool(limits), min(limits, default=_MOST_TIMESTEPS)
    return task


def _check_description(task: Task) -> None:
    """Refuse a task of a kind of one's own whose constructor has not set what the others need."""
    space, shape, limit = (getattr(task, name, None) for name in ("action_space", "observation_shape", "max_timesteps"))
    for name, value, right, expected in (
        ("action_space", space, isinstance(space, Space), "a gymnasium.Space"),
        ("observation_shape", shape, _is_shape(shape), "a tuple of integers >= 1"),
        ("max_timesteps", limit, limit is None or (isinstance(limit, int) and limit >= 1), "an integer >= 1, or None"),
    ):
        if not right:
            task.close()
            raise TaskError(
                f"{type(task).__name__}.{name}: got {value!r}, expected {expected}; set it in the constructor"
            )


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple) and all(isinstance(each, int | np.integer) and each >= 1 for each in shape)


def _observed(task: Task, config: EnvironmentConfig) -> Task:
    """Check ``task.behaviour``, and wrap a task whose observations are partly hidden."""
    if config.behaviour != "none" and not task.behaviour_size:
        raise refusal("task.behaviour", config.behaviour, f"'none' for {config.title}")
    from pyes.tasks.encoded import EncodedTask, array_space, encoder_of

    space = task.observation_space or array_space(task.observation_shape)
    task.encoder = encoder_of(space, config, task.parts)
    return task if task.encoder.plain else EncodedTask(task, task.encoder, config.behaviour == "final_observation")


def has_vector(config: TaskConfig) -> bool:
    """Whether the task can step many environments in one call."""
    return _kind(config).Vector is not None


def make_vector(config: TaskConfig) -> VectorTask:
    """Make the vector of environments of a task that `has_vector`; raises as `make`."""
    kind = _kind(config)
    assert kind.Vector is not None
    vector: VectorTask = kind.Vector(config)
    if not (isinstance(config, EnvironmentConfig) and config.hide_observations):
        return vector
    from pyes.tasks.encoded import EncodedVector, array_space, encoder_of

    return EncodedVector(vector, encoder_of(array_space((vector.observation_size,)), config))


def _kind(config: TaskConfig) -> type[Task]:
    kind: type[Task] = task_class(config.name, getattr(config, "factory", None))
    return kind
