"""The training loop: ask, evaluate, record, tell; and how a run begins, goes on and ends.

Owns the order in which things happen. Knows nothing of how members are evaluated (the cluster), how theta moves (the
run's state) or how a record lies on disk (the journal). Invariant: a generation's record is in the journal before
anything is learnt from it.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyes import algorithms
from pyes.cluster import Abandoned, Cluster, open_cluster
from pyes.config import TrainConfig, deciding
from pyes.episodes.batch import Batch, Results
from pyes.errors import ConfigError, PyesError, RunDirectoryError, TaskError
from pyes.numerics.noise import NoiseTable
from pyes.run import evaluations
from pyes.run.directory import RunDirectory
from pyes.run.history import History, setup_of
from pyes.run.journal import Evaluation, Generation, Journal, Recording
from pyes.run.logs import run_log
from pyes.run.metrics import MetricsWriter, NodeRow, NodesWriter, Row
from pyes.run.state import Interface, RunState, Setup
from pyes.system.lifetime import Interrupt, how_to_go_on, interruptible
from pyes.system.text import counted
from pyes.training import resume
from pyes.training.display import Display

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes
    ----------
    run_dir : Path
    objective : float | None    mean return of the last evaluation of the center; None if there was none
    generations, timesteps      of the whole run, earlier parts included
    stopped_by : str            the budget that was reached, or "interrupt"
    """

    run_dir: Path
    objective: float | None
    generations: int
    timesteps: int
    stopped_by: str


def train(config: TrainConfig | Mapping[str, Any], *, display: bool = True) -> RunResult:
    """Train a policy and leave it, with its journal and its metrics, in the run directory.

    Parameters
    ----------
    config : TrainConfig or mapping    see `pyes.config`; keys left out take their defaults, or with resume the run's
    display : bool                     show the progress on standard error

    Raises
    ------
    ConfigError     the configuration cannot be used, or the run cannot go on with it
    JournalError    the journal of the run that is to go on is missing or damaged
    TaskError       the environment cannot be made, or fails every member
    ClusterError    the workers cannot be kept alive
    """
    if not isinstance(config, TrainConfig):
        config = resume.settings(config)
    directory = RunDirectory(config.resume or config.run_dir)
    if config.resume is not None:
        directory.check_begun()
    with ExitStack() as outer, ExitStack() as stack:
        outer.enter_context(directory.locked())
        if config.resume is None:
            directory.create(config)
        shown = stack.enter_context(Display(config, enabled=display))
        log = stack.enter_context(run_log(directory.log))
        recording = resume.recording_of(directory)
        config, branches = resume.going_on(recording, config)
        interface = Interface.of(config.task)
        # The workers' parent is forked here, before torch is imported.
        cluster = stack.enter_context(open_cluster(config.cluster, config.task, log.prepare, shown.note))
        log.gather()
        setup = Setup.of(config, interface)
        # Made after the workers' parent, as it takes threads; given back after the workers, which read it.
        table = outer.enter_context(setup.make_table())
        config = setup.config
        algorithms.check_contract(
            config.algorithm,
            config.optimizer,
            setup.theta,
            table,
            seed=config.seed,
            behaviour_size=setup.behaviour_size,
        )
        size = table.array.nbytes / 2**20
        shown.note(
            f"{config.task.title}: {len(setup.theta):,} parameters, {counted(cluster.workers, 'worker')}, "
            f"noise table of {len(table):,} {config.noise.dtype} entries ({size:,.0f} MiB)\n{directory.path}"
        )
        metrics = stack.enter_context(_open_metrics(directory, recording, config))
        nodes = stack.enter_context(NodesWriter(directory.nodes, recording.generations))
        state, row = _caught_up(directory, recording, setup, table, metrics)
        if branches:
            state = state.branch(setup)
        cluster.start(setup.plan(config.evaluation.episodes), table, state)
        journal = stack.enter_context(Journal(recording))
        if branches or not len(recording):
            journal.append(state.start())
        # Only now: until the journal has them, settings are not the run's.
        directory.write_config(replace(config, run_dir=str(directory.path), resume=None, force=False))
        interrupt = cluster.interrupt = stack.enter_context(interruptible())
        return _Run(config, directory, state, cluster, journal, metrics, nodes, shown, interrupt).go(row)


def _open_metrics(directory: RunDirectory, recording: Recording, config: TrainConfig) -> MetricsWriter:
    tensorboard = directory.tensorboard if config.logger.tensorboard else None
    generations = recording.generations
    if evaluations.ends_before_one(recording, config.evaluation):
        generations -= 1  # a row is there once its evaluation is
    return MetricsWriter(directory.metrics, generations, tensorboard)


def _caught_up(
    directory: RunDirectory, recording: Recording, setup: Setup, table: NoiseTable, metrics: MetricsWriter
) -> tuple[RunState, Row | None]:
    """Return the state that the journal leads to, and the row of its last generation if that is not written yet.

    Rows that the metrics lack are written on the way.
    """
    if not len(recording):
        return RunState(setup, table), None
    begun = setup if recording.begins_with(deciding(setup.config)) else setup_of(recording)
    usable = (each for each in directory.whole_snapshots() if each["algorithm"]["generation"] <= metrics.generation)
    history = History(recording, begun, table, usable)
    row: Row | None = None
    while not history.ended:
        used = _used(history.state)
        record = history.advance()
        if isinstance(record, Generation):
            if row is not None:
                metrics.write(row)
            known = record.generation < metrics.generation
            row = None if known else Row(**_figures(used, history.state, record), seconds=metrics.seconds)
        elif isinstance(record, Evaluation) and row is not None:
            row.eval_return_mean, row.eval_return_std = history.state.evaluation or (None, None)
    return history.state, row


class _Run:
    """One run from where it stands to its end."""

    def __init__(
        self,
        config: TrainConfig,
        directory: RunDirectory,
        state: RunState,
        cluster: Cluster,
        journal: Journal,
        metrics: MetricsWriter,
        nodes: NodesWriter,
        display: Display,
        interrupt: Interrupt,
    ) -> None:
        self._config, self._directory, self._state, self._cluster = config, directory, state, cluster
        self._journal, self._metrics, self._nodes = journal, metrics, nodes
        self._display, self._interrupt = display, interrupt
        self._begun = time.perf_counter() - metrics.seconds
        self._bytes = (0, 0)  # sent to other machines, and received
        self._evaluating = 0.0  # seconds since the rows of nodes before
        #: Of the center at the end, when none was due there: known to the metrics, but not to the journal.
        self._last_evaluation = metrics.last_evaluation

    def go(self, row: Row | None) -> RunResult:
        """Run generations until a budget is reached or the user interrupts; save; draw.

        Parameters
        ----------
        row    of the last recorded generation, if that is still to be concluded
        """
        try:
            stopped_by = self._reached() or self._target_reached() if row is None else self._conclude(row)
            while stopped_by is None:
                stopped_by = self._generation()
        except Abandoned:
            stopped_by = "interrupt"
        except PyesError:
            self._display.close()
            self._try_to_save()  # what was reached before the task or the workers failed for good
            raise
        self._display.close()
        self._save()
        self._draw()
        self._summarize(stopped_by)
        evaluation, state = self._evaluation, self._state
        objective = None if evaluation is None else evaluation[0]
        return RunResult(self._directory.path, objective, state.generation, state.timesteps, stopped_by)

    def _generation(self) -> str | None:
        """Run one generation; return what ends the run after it, if anything."""
        state = self._state
        used = _used(state)
        results, seconds = self._evaluate(state.batch())
        evaluated = time.perf_counter()
        record = state.record(results)
        self._journal.append(record)
        self._cluster.advance(record)
        state.apply(record)
        row = Row(**_figures(used, state, record), seconds=self._seconds())
        row.evaluate_seconds = seconds
        row.update_seconds = time.perf_counter() - evaluated
        row.steps_per_second = float(results.lengths.sum()) / row.evaluate_seconds
        if workers := self._cluster.workers:  # else all nodes have just left
            row.idle_fraction = max(0.0, 1.0 - results.busy_seconds / (workers * row.evaluate_seconds))
        row.bytes_sent, row.bytes_received = self._traffic()
        nodes = self._cluster.nodes(record.generation, self._evaluating)
        self._evaluating = 0.0
        self._nodes.write(nodes)
        return self._conclude(row, nodes)

    def _traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received since the last call."""
        before, self._bytes = self._bytes, self._cluster.traffic
        return self._bytes[0] - before[0], self._bytes[1] - before[1]

    def _conclude(self, row: Row, nodes: Sequence[NodeRow] = ()) -> str | None:
        """Evaluate and save if that is due, write the row of the generation; return what ends the run, if anything."""
        stopped_by = "interrupt" if self._interrupt else self._reached()
        evaluation = self._evaluate_if_due(row, stopped_by)
        if evaluation is not None:
            row.eval_return_mean, row.eval_return_std = evaluation
        row.seconds = self._seconds()
        self._metrics.write(row)
        self._display.show(row, nodes, self._cluster.remarks())
        every = self._config.snapshot.every
        if every and self._state.generation % every == 0:
            self._try_to_save()
        if self._interrupt:  # perhaps during the evaluation
            return "interrupt"
        return stopped_by or self._reached() or self._target_reached()

    def _evaluate(self, batch: Batch) -> tuple[Results, float]:
        """Have a batch evaluated; return what it came to, and the seconds that took.

        Raises
        ------
        TaskError    no member could be evaluated: then the task is broken, not the members
        """
        asked = time.perf_counter()
        results = self._cluster.evaluate(batch)
        seconds = time.perf_counter() - asked
        self._evaluating += seconds
        if results.failed == len(results.returns):
            reason = results.errors[0] if results.errors else "their workers were killed or hung; see train.log"
            raise TaskError(f"{self._config.task.title}: all {results.failed} members failed: {reason}")
        return results, seconds

    def _evaluate_if_due(self, row: Row, stopped_by: str | None) -> tuple[float, float] | None:
        """Evaluate the center where `evaluations.is_due`, and after the last generation unless the user is waiting.

        Only those that are due whenever the run stops are recorded: the journal must not tell of budgets.
        """
        config, state = self._config.evaluation, self._state
        if not config.every or row.eval_return_mean is not None:
            return None
        due = evaluations.is_due(config, state.generation, state.timesteps, state.evaluation_costs)
        if not due and stopped_by in (None, "interrupt"):
            return None
        results, _ = self._evaluate(state.center_batch(config.episodes))
        record = state.record_evaluation(results, counted=config.share is not None)
        if not due:
            self._last_evaluation = record.summary
            return self._last_evaluation
        self._journal.append(record)
        state.apply(record)
        self._last_evaluation = None
        return state.evaluation

    @property
    def _evaluation(self) -> tuple[float, float] | None:
        return self._last_evaluation or self._state.evaluation

    def _seconds(self) -> float:
        """Wall clock since the run's first generation began, without the time between its parts."""
        return time.perf_counter() - self._begun

    def _reached(self) -> str | None:
        """Return the budget that has been reached, if any."""
        config, state = self._config, self._state
        if config.generations is not None and state.generation >= config.generations:
            return "generations"
        if config.timesteps is not None and state.timesteps >= config.timesteps:
            return "timesteps"
        if config.time_limit is not None and self._seconds() >= config.time_limit:
            return "time_limit"
        return None

    def _target_reached(self) -> str | None:
        target, evaluation = self._config.target_return, self._state.evaluation
        return "target_return" if target is not None and evaluation and evaluation[0] >= target else None

    def _save(self) -> None:
        """Write a snapshot and the policy."""
        # A snapshot counts only with all that it rests on.
        self._metrics.sync()
        self._journal.sync()
        self._directory.save_snapshot(
            self._state.generation, self._state.state_dict() | {"journal": self._journal.digest}
        )
        self._state.policy().save(self._directory.path)

    def _try_to_save(self) -> None:
        """Save, or say why not and go on: the journal has all that a run needs."""
        try:
            self._save()
        except ConfigError as error:
            logger.error("no snapshot of generation %d: %s; the run goes on", self._state.generation, error)

    def _draw(self) -> None:
        from pyes.reports import plots

        try:
            plots.plot([self._directory.path], self._directory.learning_curve)
        except RunDirectoryError as error:  # a run without a single generation has nothing to draw
            logger.warning("no learning curve: %s", error)

    def _summarize(self, stopped_by: str) -> None:
        show, state = self._display.note, self._state
        reached = f"{counted(state.generation, 'generation')} and {counted(state.timesteps, 'timestep')}"
        show(f"stopped by {stopped_by} after {reached}")
        if self._evaluation is not None:
            show(f"evaluation: {self._evaluation[0]:.2f} ± {self._evaluation[1]:.2f}")
        if state.failed:
            show(f"{state.failed} members or evaluation episodes failed; {self._directory.log} says why")
        for remark in self._cluster.remarks():
            show(remark)
        if stopped_by == "interrupt":
            show(f"go on with: {how_to_go_on(self._directory.path)}")


def _used(state: RunState) -> dict[str, Any]:
    """Return what the next generation is drawn with, as its row has it."""
    algorithm = state.algorithm
    return {
        "sigma": algorithm.sigma,
        "learning_rate": algorithm.learning_rate,
        "episode_limit": state.limit.value,
        "episodes_per_member": state.averaging.episodes,
    }


def _figures(used: dict[str, Any], state: RunState, record: Generation) -> dict[str, Any]:
    """Return the figures of a generation: what it was drawn with, and what its record and the state after it decide."""
    known = record.returns[np.isfinite(record.returns)]
    return used | {
        "generation": record.generation,
        "timesteps": state.timesteps,
        "episodes": state.episodes,
        "return_mean": float(known.mean()),
        "return_std": float(known.std()),
        "return_min": float(known.min()),
        "return_max": float(known.max()),
        "length_mean": float(record.lengths.mean()) / used["episodes_per_member"],
        "theta_norm": float(np.linalg.norm(state.algorithm.theta)),
        "gradient_norm": state.algorithm.gradient_norm,
        "theta_hash": state.theta_hash,
        "failed_members": int(np.count_nonzero(record.status)),
    }
