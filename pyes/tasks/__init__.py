"""Tasks: environments as pyes runs them, one module a family."""

from pyes.config import TaskConfig
from pyes.errors import ConfigError
from pyes.tasks.base import Task, VectorTask

__all__ = ["Task", "VectorTask", "has_vector", "make", "make_vector"]


def make(config: TaskConfig, render_mode: str | None = None) -> Task:
    """Make the task that a configuration describes.

    Raises
    ------
    ConfigError    the environment is unknown or cannot be used
    TaskError      it could not be made
    """
    task = _whole(config, render_mode)
    if not config.hide_observations:
        return task
    from pyes.tasks.hidden import HiddenTask

    try:
        return HiddenTask(task, config)
    except ConfigError:
        task.close()
        raise


def has_vector(config: TaskConfig) -> bool:
    """Whether the task can step many environments in one call."""
    return config.name == "envpool"


def make_vector(config: TaskConfig) -> VectorTask:
    """Make the vector of a task that `has_vector`.

    Raises
    ------
    ConfigError    as `make`
    """
    from pyes.tasks.envpool import EnvPoolVector

    vector = EnvPoolVector(config)
    if not config.hide_observations:
        return vector
    from pyes.tasks.hidden import HiddenVector

    return HiddenVector(vector, config)


def _whole(config: TaskConfig, render_mode: str | None) -> Task:
    """Make the task with all that it observes."""
    if config.name == "python":
        from pyes.tasks.python import PythonTask

        return PythonTask(config, render_mode)
    if config.name == "function":
        from pyes.tasks.function import FunctionTask

        return FunctionTask(config, render_mode)
    if config.name == "gym":
        from pyes.tasks.gym import GymTask

        return GymTask(config, render_mode)
    if config.name == "envpool":
        from pyes.tasks.envpool import EnvPoolTask

        return EnvPoolTask(config, render_mode)
    if "BulletEnv-" in config.env_id:
        from pyes.tasks import bullet

        if bullet.knows(config.env_id):
            return bullet.BulletTask(config, render_mode)
    if config.env_id.endswith("-v5"):
        from pyes.tasks import mujoco

        if mujoco.knows(config.env_id):
            return mujoco.MujocoTask(config, render_mode)
    if "ALE/" in config.env_id or "NoFrameskip-" in config.env_id:
        from pyes.tasks import atari

        if atari.knows(config.env_id):
            return atari.AtariTask(config, render_mode)
    from pyes.tasks.gymnasium import GymnasiumTask

    try:
        return GymnasiumTask(config, render_mode)
    except ConfigError as error:
        from pyes.tasks import atari

        if game := atari.with_namespace(config.env_id):
            raise ConfigError(f"{str(error).rstrip('.')}; did you mean {game!r}?") from error
        raise
