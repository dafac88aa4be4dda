"""A task beside the Gymnasium environment that it should equal.

Owns what is compared: spaces and limits, rewards and lengths under random actions, and where the state of both can be
set, every step. Knows nothing of the task but its steps and its state.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pyes import tasks
from pyes.bench.checks import CheckError, Remark, play
from pyes.errors import PyesError
from pyes.system.text import spread
from pyes.tasks.base import Task
from pyes.tasks.gymnasium import GymnasiumConfig

EPISODES = range(1, 31)
TOLERANCE = 1e-6  # of an observation, relative and absolute
FARTHEST = 4.0  # standard errors between means


@contextmanager
def checks(task: Task, env_id: str | None) -> Iterator[list[tuple[str, Callable[[], str]]]]:
    """Make an environment and lend the checks against it, with their names; none without an id."""
    if env_id is None:
        yield []
        return
    try:
        other = tasks.make(GymnasiumConfig(env_id=env_id))
    except PyesError as error:
        raise type(error)(str(error).replace("task.env_id", "--against", 1)) from error
    with other as twin:
        yield [
            ("same spaces", lambda: _spaces(task, twin)),
            ("same episodes", lambda: _episodes(task, twin)),
            ("same steps", lambda: _steps(task, twin)),
        ]


def _spaces(task: Task, twin: Task) -> str:
    for name in ("observation_space", "observation_shape", "action_space", "max_timesteps"):
        ours, theirs = getattr(task, name), getattr(twin, name)
        if ours != theirs:
            raise CheckError(f"{name} is {ours}, expected {theirs} as in the other")
    return "spaces and time limit are equal"


def _episodes(task: Task, twin: Task) -> str:
    """Compare returns and lengths, whose episodes are others: the two draw their starts differently."""
    played = [[play(each, seed).rewards for seed in EPISODES] for each in (task, twin)]
    lines = []
    for what, measure in (("return", lambda rewards: float(sum(map(float, rewards)))), ("length", len)):
        found = [[measure(rewards) for rewards in each] for each in played]
        (ours, theirs), spreads = np.mean(found, axis=1), np.std(found, axis=1)
        error = float(np.sqrt((spreads**2).sum() / len(EPISODES)))
        shown = [spread(float(mean), float(std)) for mean, std in zip((ours, theirs), spreads, strict=True)]
        if abs(ours - theirs) > FARTHEST * error + TOLERANCE * abs(theirs):
            raise CheckError(f"the {what} of {len(EPISODES)} random episodes is {shown[0]}, in the other {shown[1]}")
        lines.append(f"{what} {shown[0]} and {shown[1]}")
    return f"{', '.join(lines)} over {len(EPISODES)} random episodes"


def _steps(task: Task, twin: Task) -> str:
    """Give both the same state before each step, where the other has an attribute ``state`` of numbers."""
    inner: Any = twin._innermost()  # type: ignore[attr-defined]
    twin.reset(1)
    begun = np.asarray(getattr(inner, "state", None), dtype=object)
    if task.native is None or task.encoder is None or not task.encoder.plain or begun.size == 0 or begun[()] is None:
        raise Remark("not compared step by step: that needs an environment in C, and env.unwrapped.state in the other")
    if (task.observation_shape, task.action_space) != (twin.observation_shape, twin.action_space):
        raise Remark("not compared step by step: the spaces differ")
    count = 0
    for seed in EPISODES[:5]:
        twin.reset(seed)
        task.reset(seed)
        space = copy.deepcopy(twin.action_space)
        space.seed(seed)
        over = False
        for _ in range(task.max_timesteps or 1_000):
            if over:
                break
            state = np.array(inner.state, np.float64)
            if state.nbytes > task.native.state.nbytes:
                raise Remark("not compared step by step: its state is smaller than env.unwrapped.state")
            task.native.state[: state.nbytes] = np.frombuffer(state.tobytes(), np.uint8)
            action = space.sample()
            theirs, ours = twin.step(action), task.step(action)
            same = np.allclose(ours[0], theirs[0], TOLERANCE, TOLERANCE) and np.isclose(ours[1], theirs[1])
            if not same or tuple(map(bool, ours[2:4])) != tuple(map(bool, theirs[2:4])):
                raise CheckError(
                    f"from the state {state.tolist()} the action {action} leads to {_shown(ours)}, in the other to "
                    f"{_shown(theirs)} (for this check the state must begin with the numbers of env.unwrapped.state)"
                )
            over, count = theirs[2] or theirs[3], count + 1
    return f"{count:,} steps from the same states are equal"


def _shown(step: Any) -> str:
    return f"{np.asarray(step[0]).tolist()}, reward {float(step[1]):g}, {'terminated' if step[2] else 'not over'}"
