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
    if "BulletEnv-" in config.env_id:
        from pyes.tasks import bullet

        if bullet.knows(config.env_id):
            return bullet.BulletTask(config, render_mode)
    if config.env_id.endswith("-v5"):
        from pyes.tasks import mujoco

        if mujoco.knows(config.env_id):
            return mujoco.MujocoTask(config, render_mode)
    from pyes.tasks.gymnasium import GymnasiumTask

    return GymnasiumTask(config, render_mode)
