"""Tasks: environments as pyes runs them, one module a family."""

from pyes.config import TaskConfig
from pyes.tasks.base import Task

__all__ = ["Task", "make"]


def make(config: TaskConfig, render_mode: str | None = None) -> Task:
    """Make the task that a configuration describes.

    Raises
    ------
    ConfigError    the environment is unknown or cannot be used
    TaskError      it could not be made
    """
    from pyes.tasks.gymnasium import GymnasiumTask

    return GymnasiumTask(config, render_mode)
