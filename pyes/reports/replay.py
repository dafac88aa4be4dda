"""Runs a run's policies again: the center on fixed seeds, and any individual of any generation.

Owns the episodes that are run after training, in this process. Invariant: the same policy, seed and episode give the
return that the run itself reported.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes import config as configuration
from pyes import tasks
from pyes.algorithms.population import Member
from pyes.config import EnvironmentConfig, TaskConfig, TrainConfig
from pyes.config.section import AtLeastOne, Seed, parse
from pyes.episodes.rollout import AnyRollout, TaskEvaluator, rollout_of
from pyes.errors import ConfigError, JournalError, PyesError, RunDirectoryError, TaskError
from pyes.networks import ActionDecoder, Policy
from pyes.networks.policy import WEIGHTS_FILE
from pyes.numerics import streams
from pyes.run import journal
from pyes.run.directory import RunDirectory
from pyes.run.history import History, setup_of, task_began
from pyes.run.journal import Generation
from pyes.run.metrics import best_evaluation, read_rows
from pyes.system.lifetime import Closing
from pyes.system.text import reason
from pyes.system.user_code import let_through, same_folder, witnessed
from pyes.tasks import Task
from pyes.tasks.environment import TaskEnvironment

_NOT_FINITE = "the return was not a finite number"


@dataclass(frozen=True)
class EvaluationResult:
    """Returns and lengths of episodes, in the order of their seeds.

    Attributes
    ----------
    return_mean, return_std : float
        Over the episodes with a finite return, NaN if there are none; the population standard deviation.
    returns : tuple of float
        Undiscounted sum of rewards of each episode.
    lengths : tuple of int
        Timesteps of each episode; 0 where the environment raised.
    error : str
        Why the first episode that has no finite return failed; empty if none did.
    """

    return_mean: float
    return_std: float
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    error: str = ""

    @classmethod
    def of(cls, episodes: Sequence[tuple[float, int]], error: str = "") -> "EvaluationResult":
        """Summarise (return, length) pairs, at least one; ``error`` is why the first failed one failed."""
        returns, lengths = zip(*episodes, strict=True)
        known = [each for each in returns if math.isfinite(each)] or [math.nan]
        if not error and len(known) < len(returns):
            error = _NOT_FINITE
        return cls(float(np.mean(known)), float(np.std(known)), tuple(returns), tuple(lengths), error)

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as JSON values."""
        return {
            "return_mean": self.return_mean,
            "return_std": self.return_std,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "error": self.error,
        }


def evaluate(
    run: str | Path,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    generation: int | Literal["best"] | None = None,
) -> EvaluationResult:
    """Run the center policy of a run for some episodes, without action noise.

    As in training, an episode whose environment raises does not count; the next one has a new environment.

    Parameters
    ----------
    run : str or Path
        Run directory, or an exported .safetensors file or folder.
    episodes : int or None
        1 or more (default: 100, or 1 for a function). More episodes begin with the same ones.
    seed : int or None
        Seed of the evaluation episodes (default: the run's, which repeats the episodes of its own evaluations; for the
        best center, episodes that had no part in choosing it, since those flatter it).
    generation : int, "best" or None
        See `load`.

    Raises
    ------
    ConfigError
        Episodes, seed or generation is out of range.
    RunDirectoryError
        The policy is missing, damaged, or does not fit its task.
    TaskError
        The environment cannot be made, or every episode failed.
    """
    policy = load(run, generation)
    draw = streams.confirmation_seeds if generation == "best" and seed is None else streams.evaluation_seeds
    found: list[tuple[float, int]] = []
    reasons: list[TaskError] = []
    with witnessed(f"while {_name(policy)} was evaluated"), ExitStack() as opened:
        task = opened.enter_context(open_task(policy))
        if episodes is None:
            episodes = 1 if task.deterministic else 100
        rollout: AnyRollout | None = rollout_of(task, policy.runner)
        for environment_seed in _seeds(policy, episodes, seed, draw):
            rollout = rollout or rollout_of(opened.enter_context(open_task(policy)), policy.runner)
            try:
                found.append(_episode(policy, rollout, environment_seed))
                if not math.isfinite(found[-1][0]):
                    reasons.append(TaskError(_NOT_FINITE))
            except TaskError as error:
                reasons.append(error)
                found.append((math.nan, 0))
                opened.close()  # it may be in any state
                rollout = None
    if len(reasons) == len(found):
        raise reasons[0]
    return EvaluationResult.of(found, str(reasons[0]) if reasons else "")


def load(run: str | Path, generation: int | Literal["best"] | None = None) -> Policy:
    """Return the center policy of a run.

    Parameters
    ----------
    run : str or Path
        Run directory, or an exported .safetensors file or folder.
    generation : int, "best" or None
        Number of updates of the center; "best" for the one with the highest mean return in an evaluation (default: the
        last saved policy; the last center of a run that has saved none yet). Centers that are not in a file are rebuilt
        from the journal.

    Raises
    ------
    ConfigError
        The run has not reached that generation, or has evaluated none.
    RunDirectoryError
        There is no policy, or no intact journal.
    """
    if generation is None:
        if _has_saved(run):
            try:
                return Policy.load(run)
            except RunDirectoryError:
                if not _has_generations(run):
                    raise
        with open(run) as replay:
            return replay.policy(replay.generations)
    if generation != "best" and not hasattr(generation, "__index__"):
        raise ConfigError(f"generation: got {generation!r}, expected an integer or 'best'")
    if generation == "best":
        generation = best_generation(run)
        saved = RunDirectory(run).best
        with suppress(RunDirectoryError):  # damaged: it is rebuilt
            if saved.exists() and (policy := Policy.load(saved)).generation == generation:
                return policy
    with open(run) as replay:
        return replay.policy(generation)


def _has_saved(run: str | Path) -> bool:
    """Whether a policy is to be read from a file: it is there, or there are no generations to rebuild it from."""
    directory = RunDirectory(run)
    if all(directory.path.joinpath(WEIGHTS_FILE).with_suffix(each).exists() for each in (".safetensors", ".json")):
        return True
    return not _has_generations(run)


def _has_generations(run: str | Path) -> bool:
    return RunDirectory(run).journal.exists() and recording_of(run).generations > 0


def best_generation(run: str | Path) -> int:
    """Return the generation of the center with the highest mean return in an evaluation; the first of equal ones.

    Evaluations in a task that the run had before do not count.

    Raises
    ------
    ConfigError
        No evaluation of the run has succeeded.
    RunDirectoryError
        It has no metrics.
    """
    directory = RunDirectory(run)
    path = directory.metrics
    if not path.exists():
        raise RunDirectoryError(f"no metrics.csv in {run}; {directory.how_to_get_metrics()}")
    since = 0
    with suppress(JournalError):
        since = task_began(journal.read(directory.journal))
    best = best_evaluation(read_rows(path), since)
    if best is None:
        raise ConfigError(f"{run} has no evaluation to choose the best center by; take one by its generation")
    return best[0]


def make_env(run: str | Path, render_mode: str | None = None) -> TaskEnvironment:
    """Make the environment that a run's policy was trained in: its arguments, frame skip, time limit and all.

    Parameters
    ----------
    run : str or Path
        Run directory, or an exported .safetensors file or folder.
    render_mode : str or None
        Gymnasium's; "rgb_array" for frames.

    Returns
    -------
    TaskEnvironment
        A `gymnasium.Env`, with the observations that ``pyes.load(run)`` takes and the actions that it gives.

    Raises
    ------
    ConfigError
        The environment is not installed here, its configuration is no longer valid, or the run is of a function.
    RunDirectoryError
        The policy is missing or damaged, or names no task.
    """
    return tasks.make_environment(_task_of(load(run)), render_mode)


def open_task(policy: Policy, render_mode: str | None = None) -> Task:
    """Make the task that a policy was trained on.

    Raises
    ------
    ConfigError
        The environment is not installed here, or its configuration is no longer valid.
    RunDirectoryError
        The policy names no task, or its observations or actions have another size.
    """
    config = _task_of(policy)
    task = tasks.make(config, render_mode)
    try:
        _check_sizes(policy, config, task)
    except PyesError:
        task.close()
        raise
    return task


def _check_sizes(policy: Policy, config: TaskConfig, task: Task) -> None:
    """Refuse a policy of other observations or actions than a task has now."""
    expected, outputs = policy.spec.program.observation_size, policy.spec.program.outputs
    advice = "use the version of the environment that it was trained on"
    if task.observation_size != expected:
        raise RunDirectoryError(
            f"task {config.title} observes {task.observation_size} numbers, the policy expects {expected}; {advice}"
        )
    if isinstance(config, EnvironmentConfig):
        wanted = ActionDecoder.for_space(task.action_space, config.action, config.bins).outputs
        if wanted != outputs:
            raise RunDirectoryError(
                f"task {config.title} takes {task.action_space}, for which a policy needs {wanted} outputs, "
                f"this one has {outputs}; {advice}"
            )


def _task_of(policy: Policy) -> TaskConfig:
    """Return the settings of the task that a policy was trained on."""
    if not policy.task:
        raise RunDirectoryError("the policy names no task; save it with task=..., or run it in an environment of yours")
    return configuration.from_mapping({"task": policy.task, "network": policy.network}).task


def run_episodes(policy: Policy, task: Task, episodes: int, seed: int | None) -> EvaluationResult:
    """Run the first ``episodes`` evaluation episodes of ``seed`` (None: the run's own).

    Raises
    ------
    ConfigError
        Episodes or seed is out of range.
    TaskError
        The environment raised.
    """
    rollout = rollout_of(task, policy.runner)
    seeds = _seeds(policy, episodes, seed, streams.evaluation_seeds)
    return EvaluationResult.of([_episode(policy, rollout, environment_seed) for environment_seed in seeds])


def _seeds(policy: Policy, episodes: int, seed: int | None, draw: Callable[[int, int], NDArray[np.int64]]) -> list[int]:
    """Return the environment seeds of the first ``episodes`` episodes of ``seed``; None: the run's own."""
    episodes = parse(Annotated[int, AtLeastOne], episodes, "episodes")
    seed = parse(Annotated[int, Seed] | None, seed, "seed")
    return [int(each) for each in draw(policy.seed if seed is None else seed, episodes)]


def _episode(policy: Policy, rollout: AnyRollout, environment_seed: int) -> tuple[float, int]:
    policy.reset()
    with _named(_name(policy), environment_seed):
        return rollout.run(environment_seed, rollout.task.max_timesteps)


def _name(policy: Policy) -> str:
    """Return what messages call the environment of a policy."""
    return _task_of(policy).title


@contextmanager
def _named(name: str, environment_seed: int) -> Iterator[None]:
    """Turn any exception of an environment into an error that names the episode."""
    try:
        yield
    except BaseException as error:
        let_through(error)
        message = f"{name} raised in the episode of environment seed {environment_seed}: {reason(error)}"
        raise TaskError(message) from error


# Individuals


@dataclass(frozen=True)
class Playback:
    """Results of running a member's episodes again.

    Attributes
    ----------
    return_ : float
        Mean over its episodes.
    length : int
        Total timesteps.
    seeds : tuple of int
        Environment seed of each episode.
    recorded_return : float
        Return in the journal; NaN where the member failed.
    recorded_length : int
        Length in the journal.
    suspects : str
        What may be the reason; empty unless the results differ.
    """

    return_: float
    length: int
    seeds: tuple[int, ...]
    recorded_return: float
    recorded_length: int
    suspects: str = ""

    @property
    def exact(self) -> bool:
        """Whether the results equal the recorded ones."""
        if not math.isfinite(self.recorded_return):  # the member failed with a return that was not finite
            return not math.isfinite(self.return_)
        return (self.return_, self.length) == (self.recorded_return, self.recorded_length)

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values; ``seed`` is a list where a member has several episodes."""
        seed = self.seeds[0] if len(self.seeds) == 1 else list(self.seeds)
        return {"return": self.return_, "length": self.length, "seed": seed}


def open(run: str | Path) -> "Replay":
    """Open the journal of a run, finished or in progress; no other file is needed.

    Raises
    ------
    RunDirectoryError
        There is no journal (a JournalError when it is damaged or empty).
    ConfigError
        Its task or its noise table cannot be made on this machine.
    """
    return Replay(run)


def recording_of(run: str | Path) -> journal.Recording:
    """Return what a run has recorded.

    Raises
    ------
    RunDirectoryError
        There is no journal.
    JournalError
        It cannot be read.
    """
    path = RunDirectory(run).journal
    if not path.exists():
        raise RunDirectoryError(f"no journal at {path}; give the run directory that pyes train has printed")
    return journal.read(path)


class Replay(Closing):
    """Rebuilds every individual of a run from its journal.

    Generations are rebuilt one after the other, so ascending access is fast; each is checked against the digest of
    theta in the journal.

    Raises
    ------
    ConfigError
        From what takes a generation or a member: the run has none of that number.
    JournalError
        From what needs theta: a theta that was rebuilt is not the recorded one.

    Examples
    --------
    >>> with pyes.reports.replay.open("runs/lander") as replay:
    ...     best = int(np.nanargmax(replay.returns(37)))
    ...     theta = replay.member(37, best)
    """

    def __init__(self, run: str | Path) -> None:
        self._run = run
        self._read(recording_of(run))
        self._rebuilt: History | None = None
        self._made = ExitStack()

    def _read(self, recording: journal.Recording) -> None:
        self._recording = recording
        self._places = {
            entry.generation: index
            for index, entry in enumerate(recording.entries)
            if entry.kind == journal.Kind.GENERATION
        }
        self._last: Generation | None = None  # the generation read last, since its members are usually read in turn

    @property
    def _history(self) -> History:
        """State of the run by generation; made at first use, since it needs the task and the noise table."""
        if self._rebuilt is None:
            setup = setup_of(self._recording)
            self._rebuilt = History(self._recording, setup, self._made.enter_context(setup.make_table()))
        return self._rebuilt

    def follow(self) -> bool:
        """Read what the run has recorded since; return whether the generations before are as they were.

        Raises
        ------
        RunDirectoryError, JournalError
            It cannot be read any more.
        """
        recording = recording_of(self._run)
        same = recording.find(self._recording.digest) == len(self._recording)
        if not same:
            self.close()
        elif self._rebuilt is not None:
            self._rebuilt.follow(recording)
        self._read(recording)
        return same

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self._history.state.algorithm.theta)

    @property
    def generations(self) -> int:
        """Number of recorded generations."""
        return self._recording.generations

    @property
    def config(self) -> TrainConfig:
        """Settings at the generation that was requested last."""
        return self._history.state.setup.config

    def population_size(self, generation: int) -> int:
        """Return how many members a generation has."""
        return len(self._record(generation).returns)

    def returns(self, generation: int) -> NDArray[np.float64]:
        """Return the recorded returns in member order: float64 (n,); NaN where a member failed."""
        return self._record(generation).returns.copy()

    def lengths(self, generation: int) -> NDArray[np.int64]:
        """Return the recorded timesteps of all episodes of each member: int64 (n,)."""
        return self._record(generation).lengths.astype(np.int64)

    def behaviours(self, generation: int) -> NDArray[np.float32] | None:
        """Return the behaviours of the members, float32 (n, size), NaN where one failed; None if they have none."""
        record = self._record(generation)
        return None if record.behaviours is None else record.behaviours.reshape(len(record.returns), -1)

    def theta(self, generation: int) -> NDArray[np.float32]:
        """Return the center after ``generation`` updates: float32 (dim,)."""
        return self._history.seek(generation).algorithm.theta.copy()

    def member(self, generation: int, index: int) -> NDArray[np.float32]:
        """Return a member's parameters: float32 (dim,)."""
        self.check_member(generation, index)
        return self._history.seek(generation).algorithm.member(index)

    def members(self, generation: int, indices: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Return the parameters of some members, or of all: float32 (n, dim)."""
        for index in (0,) if indices is None else (min(indices, default=0), max(indices, default=0)):
            self.check_member(generation, index)
        return self._history.seek(generation).algorithm.members(indices)

    def policy(self, generation: int) -> Policy:
        """Return the center of a generation as a policy."""
        return self._history.seek(generation).policy()

    def member_policy(self, generation: int, index: int) -> Policy:
        """Return a member as a policy."""
        self.check_member(generation, index)
        return self._history.seek(generation).policy(index)

    def play(self, generation: int, index: int, task: Task | None = None) -> Playback:
        """Run a member's episodes again, with the same seeds, limit and action noise.

        Parameters
        ----------
        generation, index : int
            The member.
        task : Task or None
            Task to run, closed afterwards (default: the run's own).

        Raises
        ------
        ConfigError
            There is no such generation or member.
        TaskError
            The environment raised.
        """
        record = self.check_member(generation, index)
        state = self._history.seek(generation)
        batch, config = state.batch(), state.setup.config
        seeds = tuple(batch.seeds[index].tolist())
        total, length = 0.0, 0
        with same_folder():
            evaluator = TaskEvaluator(task or tasks.make(config.task), state.setup.plan(capacity=1))
            try:
                evaluator.begin(batch)
                evaluator.load(Member(state.algorithm.member(index)), None)
                for episode, seed in enumerate(seeds):
                    with _named(config.task.title, seed):
                        episode_return, episode_length = evaluator.episode(index, episode, seed)
                    total += episode_return
                    length += episode_length
            finally:
                evaluator.close()
        recorded = float(record.returns[index]), int(record.lengths[index])
        played = Playback(total / len(seeds), length, seeds, *recorded)
        return played if played.exact else replace(played, suspects=state.suspects())

    def check_member(self, generation: int, index: int) -> Generation:
        """Return the record of a generation, before anything is rebuilt.

        Raises
        ------
        ConfigError
            There is no such generation or member.
        """
        record = self._record(generation)
        if not 0 <= index < len(record.returns):
            raise ConfigError(
                f"member: got {index}, expected 0 to {len(record.returns) - 1} in generation {generation}"
            )
        return record

    def _record(self, generation: int) -> Generation:
        if generation not in self._places:
            if not self._places:
                raise ConfigError(f"generation: got {generation}, but the run has not finished one yet")
            raise ConfigError(f"generation: got {generation}, expected 0 to {self.generations - 1}")
        if self._last is None or self._last.generation != generation:
            record = self._recording[self._places[generation]]
            assert isinstance(record, Generation)
            self._last = record
        return self._last

    def close(self) -> None:
        """Free the noise table."""
        self._rebuilt = None
        self._made.close()
