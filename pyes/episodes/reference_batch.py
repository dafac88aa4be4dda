"""The reference batch of virtual batch normalisation: observations of a random policy in the task.

Owns how the batch is drawn. Knows no network. Invariant: with a deterministic task, its bits depend only on task
settings and seed; so a run stores only its digest.
"""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import tasks
from pyes.config import TaskConfig
from pyes.errors import TaskError
from pyes.numerics import streams
from pyes.system.text import reason
from pyes.system.user_code import let_through, witnessed
from pyes.tasks import Task

#: Observations in the batch, as in Salimans et al. 2016 and Such et al. 2017.
SIZE = 128
#: One observation is taken from each sequence of this length, since neighbours are similar. The resulting 2,048
#: timesteps of an Atari game take about two seconds.
INTERVAL = 16


def draw_reference_batch(config: TaskConfig, seed: int) -> NDArray[Any]:
    """Return the reference batch of a run: (SIZE, observation_size), read-only.

    It is uint8 where the task's observations are, else float32.

    Raises
    ------
    ConfigError, TaskError
        The environment cannot be made, or raised.
    """
    places = streams.reference_batch_places(seed, SIZE, INTERVAL)
    taken = iter(np.arange(SIZE) * INTERVAL + places)
    batch: list[NDArray[Any]] = []
    with witnessed(f"while the reference batch of {config.title} was drawn"), tasks.make(config) as task:
        try:
            due = next(taken)
            for timestep, observation in enumerate(_observations(task, seed)):
                if timestep == due:
                    batch.append(np.array(observation).reshape(-1))  # a copy: the environment may reuse its array
                    if batch[-1].shape != (task.observation_size,):
                        expected = f"{task.observation_size}, as in its observation space"
                        raise TaskError(
                            f"{config.title}: an observation has {batch[-1].size} values, expected {expected}"
                        )
                    if (due := next(taken, None)) is None:
                        break
        except BaseException as error:
            let_through(error)
            raise TaskError(f"{config.title} raised while the reference batch was drawn: {reason(error)}") from error
    array = np.stack(batch)
    array = array if array.dtype == np.uint8 else array.astype(np.float32)
    array.flags.writeable = False
    return array


def _observations(task: Task, seed: int) -> Iterator[Any]:
    """Yield the observations of a random policy, episode after episode."""
    episode = 0
    while True:
        environment_seed, action_seed = streams.reference_batch_seeds(seed, episode)
        space = copy.deepcopy(task.action_space)  # environments of one kind may share it
        space.seed(action_seed)
        yield task.reset(environment_seed)
        timestep, ended = 0, False
        while not ended and timestep != task.max_timesteps:
            observation, _, terminated, truncated, _ = task.step(space.sample())
            yield observation
            timestep, ended = timestep + 1, terminated or truncated
        episode += 1
