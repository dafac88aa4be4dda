"""``pyes check-environment``: whether a task is fit to train in, one line a check.

Owns the checks, and what each says to do. Must not know where a task comes from. Invariant: a check that fails does not
keep the others from running.
"""

import contextlib
import copy
import hashlib
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pyes import networks, tasks
from pyes.config import EnvironmentConfig
from pyes.episodes.native import NativeRollout
from pyes.episodes.rollout import Rollout
from pyes.errors import ConfigError, PyesError
from pyes.networks import ActionDecoder, ObservationEncoder
from pyes.networks.linear import LinearConfig
from pyes.system.text import counted, reason
from pyes.system.user_code import let_through, witnessed
from pyes.tasks.base import Task

SEEDS = range(1, 7)
STEPS = 1_000  # of an episode, at most
SECONDS = 0.5  # that a speed is measured for


#: Further checks of a task: each name, and a function that returns what it has found; in a context that ends with them.
More = Callable[[Task], AbstractContextManager[list[tuple[str, Callable[[], str]]]]]


class CheckError(Exception):
    """A check that fails; its text says what is wrong and what to do."""


class Remark(Exception):
    """What is no failure, but worth to know."""


@dataclass
class Episode:
    """What random actions led to."""

    observations: list[Any]
    actions: list[Any]
    rewards: list[Any]
    ended: bool

    def digest(self) -> str:
        """Return a hash of its bits."""
        found = hashlib.sha256()
        for each in (*map(_numbers, self.observations), np.array(self.rewards, float)):
            found.update(np.ascontiguousarray(each).tobytes())
        return found.hexdigest()


def run(config: EnvironmentConfig, more: More, tell: Callable[[str], None]) -> int:
    """Check a task; say a line for each check, and return how many have failed.

    Parameters
    ----------
    config : EnvironmentConfig
    more : callable
        Returns further checks of the task, with their names.
    tell : callable
        Takes each line.

    Raises
    ------
    ConfigError, TaskError
        The task, or the other one, cannot be made.
    """
    failures = 0
    with tasks.make(config) as task, more(task) as others:
        checks = Checks(config, task)
        named = [(name, getattr(checks, name.replace(" ", "_"))) for name in NAMES]
        for name, check in [*named, *others]:
            word, text = "ok", ""
            try:
                with witnessed(f"while {config.title} was checked: {name}"):
                    text = check()
            except Remark as remark:
                word, text = "note", str(remark)
            except BaseException as error:
                if not isinstance(error, PyesError):
                    let_through(error)
                told = isinstance(error, CheckError | PyesError)
                word, text = "FAILED", str(error) if told else checks.explained(error)
                failures += 1
            tell(f"{name:<16}{word:<8}{' '.join(text.split())}")
    return failures


NAMES = (
    "spaces", "seeding", "clean slate", "bounds", "finite numbers", "rewards", "time limit", "other process", "speed",
)  # fmt: skip


class Checks:
    """The checks of a task; each returns what it has found."""

    def __init__(self, config: EnvironmentConfig, task: Task) -> None:
        self._config = config
        self._task = task
        self._episodes: dict[int, Episode] = {}

    def _played(self) -> list[Episode]:
        """Return the episodes of all seeds, each played once."""
        for seed in SEEDS:
            if seed not in self._episodes:
                self._episodes[seed] = play(self._task, seed)
        return list(self._episodes.values())

    def explained(self, error: BaseException) -> str:
        """Return what an environment has raised; where Numba compiled it, what the same code raises in Python."""
        explain = getattr(self._task, "explain", None)
        last = getattr(error, "played", None)
        cause = explain(*last) if explain is not None and last is not None else None
        return f"it has raised {reason(cause or error)}"

    def spaces(self) -> str:
        """Whether observations have the shape and the type that the environment says."""
        observed = {"reset": self._task.reset(SEEDS[0])}
        actions = copy.deepcopy(self._task.action_space)
        actions.seed(SEEDS[0])
        with contextlib.suppress(Exception):  # the next checks tell
            observed["step"] = self._task.step(actions.sample())[0]
        space, encoder = self._task.observation_space, self._task.encoder
        seen = "" if encoder is None or encoder.plain else f", of which the policy sees {self._task.observation_size}"
        if isinstance(space, spaces.Box) and not seen:
            for function, observation in observed.items():
                got = np.asarray(observation)
                if got.shape != space.shape or not np.can_cast(got.dtype, space.dtype, "same_kind"):
                    expected = f"{space.dtype} {space.shape}, as observation_space says"
                    raise CheckError(f"{function} returned {got.dtype} {got.shape}, expected {expected}")
        return f"observations {space or self._task.observation_shape}{seen}, actions {self._task.action_space}"

    def seeding(self) -> str:
        """Whether an episode follows from its seed."""
        first = self._played()[0]
        if play(self._task, SEEDS[0]).digest() != first.digest():
            raise CheckError(
                f"two episodes of seed {SEEDS[0]} with the same actions differ; draw every random number from the seed "
                "that reset is given, and keep nothing of earlier episodes"
            )
        if len({_digest(each.observations[:1]) for each in self._played()}) > 1:
            return "the same seed gives the same episode, other seeds others"
        if len({self._under(seed) for seed in SEEDS}) > 1:
            return "the same seed gives the same episode; all begin alike"
        raise Remark("all seeds give the same episode: is the environment meant to have no chance in it?")

    def _under(self, seed: int) -> str:
        return play(self._task, seed, actions=SEEDS[0]).digest()

    def clean_slate(self) -> str:
        """Whether an episode after others is the one that a new environment plays."""
        last = SEEDS[-1]
        after = self._played()[-1].digest()
        with tasks.make(self._config) as fresh:
            if play(fresh, last).digest() != after:
                remake = ", or set task.remake=true" if hasattr(self._config, "remake") else ""
                raise CheckError(
                    f"seed {last} gives another episode after others than in a new environment; let reset forget all"
                    + remake
                )
        return f"an episode after {counted(len(SEEDS) - 1, 'other')} is as in a new environment"

    def bounds(self) -> str:
        """Whether observations are within the bounds of their space."""
        space, encoder = self._task.observation_space, self._task.encoder
        if encoder is not None and not encoder.plain:
            low, high = _bounds(encoder)
        elif isinstance(space, spaces.Box):
            low, high = space.low, space.high
        else:
            return "the observations have no bounds"
        for observation, when in self._observed():
            values, least, most = np.broadcast_arrays(observation, low, high)
            outside = (values < least) | (values > most)
            if outside.any():
                at = tuple(map(int, np.argwhere(outside)[0]))
                raise CheckError(
                    f"observation{list(at)} is {values[at]} {when}, expected {least[at]} to {most[at]}; clip it, or "
                    "widen the bounds"
                )
        return "all observations are within the space"

    def finite_numbers(self) -> str:
        """Whether all that is observed is a number."""
        for observation, when in self._observed():
            numbers = _numbers(observation)
            if not np.isfinite(numbers).all():
                of_infinity = "an infinity may make actions NaN; clip it"
                what = "a member with NaN fails" if np.isnan(numbers).any() else of_infinity
                raise CheckError(f"got {np.asarray(observation)} {when}; {what}")
        return f"{sum(len(each.observations) for each in self._played()):,} observations"

    def _observed(self) -> Iterator[tuple[Any, str]]:
        for seed, episode in zip(SEEDS, self._played(), strict=True):
            for timestep, observation in enumerate(episode.observations):
                yield observation, f"at timestep {timestep} of seed {seed}"

    def rewards(self) -> str:
        """Whether rewards are numbers."""
        found = [reward for episode in self._played() for reward in episode.rewards]
        for reward in found:
            if not isinstance(reward, int | float | np.number | np.bool_) or not math.isfinite(float(reward)):
                raise CheckError(f"got the reward {reward!r} ({type(reward).__name__}), expected a finite number")
        low, high = min(map(float, found)), max(map(float, found))
        if low == high:
            raise Remark(f"every reward of random actions is {low:g}: only lengths tell policies apart")
        return f"{low:g} to {high:g}"

    def time_limit(self) -> str:
        """Whether episodes end."""
        limit, longest = self._task.max_timesteps, max(len(each.rewards) for each in self._played())
        if self._task.limited:
            return f"{limit} timesteps; the longest episode of random actions has {longest}"
        if not all(each.ended for each in self._played()):
            raise CheckError(f"an episode has not ended after {STEPS:,} timesteps; set task.max_timesteps")
        raise Remark(
            f"there is none: episodes end after {limit:,} timesteps, or task.max_timesteps (the longest had {longest})"
        )

    def other_process(self) -> str:
        """Whether another process plays the same episode."""
        with ProcessPoolExecutor(1, get_context("spawn")) as other:
            theirs = other.submit(_digest_of, self._config, SEEDS[0]).result()
        if theirs != self._played()[0].digest():
            raise CheckError(
                f"seed {SEEDS[0]} gives another episode in another process; use no hash(), no order of sets, "
                "no time and no address of an object"
            )
        return "another process plays the same episode"

    def speed(self) -> str:
        """How many timesteps a second a linear policy plays; where it can be in C, that it gives the same bits."""
        decoder = ActionDecoder.for_space(self._task.action_space)
        spec, theta = networks.build(LinearConfig(init="uniform"), self._task.observation_size, decoder, 0, 5.0)
        rollout = Rollout(self._task, spec.runner())
        rollout.runner.load(theta)
        limit = min(self._task.max_timesteps or STEPS, STEPS)
        stepped, results = _speed(rollout, limit)
        if self._task.native is None:
            return f"{stepped:,.0f} timesteps a second with a linear policy"
        runner: Any = spec.runner()
        runner.load(theta)
        compiled, theirs = _speed(NativeRollout(self._task, runner), limit)
        if np.array(results).tobytes() != np.array(theirs).tobytes():  # NaN is equal to itself
            raise CheckError(f"returns and lengths are {theirs} in C, and {results} stepped by Python: an episode "
                             "must follow from its seed, with all state in the struct's own memory")  # fmt: skip
        return f"{compiled:,.0f} timesteps a second in C, {stepped:,.0f} stepped by Python, with equal results"


def play(task: Task, seed: int, actions: int | None = None) -> Episode:
    """Play the episode of a seed with random actions, drawn by ``actions`` or the same seed."""
    space = copy.deepcopy(task.action_space)  # the environment may draw from its own
    space.seed(seed if actions is None else actions)
    episode = Episode([_kept(task.reset(seed))], [], [], False)
    limit = min(task.max_timesteps or STEPS, STEPS)
    try:
        while not episode.ended and len(episode.rewards) < limit:
            episode.actions.append(space.sample())
            observation, reward, terminated, truncated, _ = task.step(episode.actions[-1])
            episode.observations.append(_kept(observation))
            episode.rewards.append(reward)
            episode.ended = bool(terminated or truncated)
    except Exception as error:
        error.played = seed, episode.actions  # type: ignore[attr-defined]
        raise
    return episode


def _bounds(encoder: ObservationEncoder) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the least and the greatest value of each number that a policy sees."""
    low: list[NDArray[Any]] = []
    high: list[NDArray[Any]] = []
    for part in encoder.parts:
        is_box = part.kind == "Box"  # without bounds where they are None; all others are 0 or 1
        for side, bound, none in ((low, part.low, -math.inf), (high, part.high, math.inf)):
            values = [none if each is None else each for each in (bound if isinstance(bound, tuple) else (bound,))]
            own = np.array(values, float).reshape(-1) if is_box else float(side is high)
            side.append(np.broadcast_to(own, part.size))
    return encoder.seen(np.concatenate(low)), encoder.seen(np.concatenate(high))


def _kept(observation: Any) -> Any:
    """Copy an observation, which the environment may write over."""
    return copy.deepcopy(observation)


def _numbers(observation: Any) -> NDArray[Any]:
    """Return the numbers of an observation, whatever its form."""
    if isinstance(observation, dict):
        observation = list(observation.values())
    if isinstance(observation, tuple | list):
        return np.concatenate([_numbers(each) for each in observation]) if observation else np.empty(0)
    array = np.asarray(observation)
    return array.astype(float).ravel() if array.dtype.kind in "biuf" else np.empty(0)


def _digest(observations: list[Any]) -> str:
    return Episode(observations, [], [], False).digest()


def _digest_of(config: EnvironmentConfig, seed: int) -> str:
    with tasks.make(config) as task:
        return play(task, seed).digest()


def _speed(rollout: Any, limit: int) -> tuple[float, list[tuple[float, int]]]:
    """Return timesteps a second, and the return and length of the episode of each seed."""
    results: list[tuple[float, int]] = []
    begun, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begun) < SECONDS or len(results) < len(SEEDS):
        seed = SEEDS[len(results) % len(SEEDS)]
        rollout.runner.begin_episode(0, 0, 0, seed)
        results.append(rollout.run(seed, limit))
        steps += results[-1][1]
    return steps / elapsed, results[: len(SEEDS)]


def only_environments(config: Any) -> EnvironmentConfig:
    """Refuse a task that has no environment."""
    if not isinstance(config, EnvironmentConfig):
        raise ConfigError(f"{config.title} is a function of theta and has no environment to check")
    return config
