"""The steps from a configuration to a new or resumed run that is ready for its next generation.

Owns the resources of each step and their release. The order matters: the directory is locked before anything in it is
read or written; the workers' parent is forked before this process has threads and before it imports torch; changed
settings of a resumed run are written to ``config.json`` only after the journal has them.
"""

import logging
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyes import algorithms
from pyes.cluster import Cluster, open_cluster
from pyes.config import TrainConfig, deciding
from pyes.errors import RunDirectoryError
from pyes.networks import Policy
from pyes.numerics.noise import NoiseTable
from pyes.run import evaluations
from pyes.run.branching import branch
from pyes.run.directory import RunDirectory, new_directory
from pyes.run.history import History, setup_of, task_began
from pyes.run.journal import Evaluation, Generation, Journal, Recording
from pyes.run.logs import run_log
from pyes.run.metrics import MetricsRow, MetricsWriter, NodesWriter, add_measured, last_row, number
from pyes.run.state import Interface, RunState, Setup
from pyes.system.files import set_aside
from pyes.system.lifetime import Interrupt, interruptible
from pyes.system.text import counted
from pyes.training import resume
from pyes.training.display import Display
from pyes.training.exporter import Exporter
from pyes.training.loggers import Loggers, check_installed
from pyes.training.rows import add_evaluation, recorded, row_of, settings_in_use

logger = logging.getLogger(__name__)


@dataclass
class Run:
    """The parts of a run in progress.

    Attributes
    ----------
    config : TrainConfig
    directory : RunDirectory
    state : RunState
    cluster : Cluster
    journal : Journal
    metrics : MetricsWriter
    nodes : NodesWriter
    display : Display
    exporter : Exporter
    interrupt : Interrupt
        Whether the user wants the run to end.
    pending : MetricsRow or None
        Row of the last recorded generation, if the run ended before it was written.
    initial : (float, float) or None
        Mean and standard deviation of the evaluation of the initial center.
    best : Policy or None
        The center with the best evaluation, if it is not saved yet.
    """

    config: TrainConfig
    directory: RunDirectory
    state: RunState
    cluster: Cluster
    journal: Journal
    metrics: MetricsWriter
    nodes: NodesWriter
    display: Display
    exporter: Exporter
    interrupt: Interrupt
    pending: MetricsRow | None
    initial: tuple[float, float] | None
    best: Policy | None = None


class Preparation:
    """The steps, to be called in the order of their definition; leaving the context releases all resources.

    Parameters
    ----------
    config : TrainConfig
    display : bool
        Whether to show the progress.
    """

    def __init__(self, config: TrainConfig, *, display: bool) -> None:
        self._config = config
        self._display = Display(config, enabled=display)
        self._stack = ExitStack()
        self._unusable: RunDirectoryError | None = None  # what is wrong with the configuration of a run that goes on

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def claim_directory(self) -> None:
        """Lock the run directory; create it, or check that there is a run to resume."""
        check_installed(self._config.logger)
        place = Path(self._config.resume or self._config.run_dir or new_directory())
        with suppress(OSError):  # there is no working folder; locking says so
            place = place.absolute()  # an environment in this process may change the working folder
        self._directory = RunDirectory(place)
        resumed = self._config.resume is not None
        if resumed:
            self._directory.check_begun()
        self._stack.enter_context(self._directory.locked())
        if resumed:
            self._unusable = resume.unusable_configuration(self._directory, force=self._config.force)
        else:
            self._config = replace(self._config, run_dir=str(self._directory.path))
            self._directory.create(self._config)

    def open_log(self) -> None:
        """Begin to show progress and to log."""
        # For the noise table, which is freed after the workers that read it have ended.
        self._after_workers = self._stack.enter_context(ExitStack())
        self._stack.enter_context(self._display)
        self._log = self._stack.enter_context(run_log(self._directory.log))

    def read_journal(self) -> None:
        """Read the journal, and check that the run can be resumed with these settings."""
        self._recording = resume.recording_to_go_on(self._directory)
        self._config, self._changed = resume.going_on(self._recording, self._config)

    def fork_workers(self) -> None:
        """Inspect the task and start the workers' parent; from here on, threads are allowed."""
        config = self._config
        self._interface = Interface.of(config.task)
        cluster = open_cluster(config.cluster, config.task, self._log.prepare, self._display.note)
        self._cluster = self._stack.enter_context(cluster)
        self._log.gather()
        labels = {"task": config.task.title, "run": str(self._directory.path)}
        self._exporter = self._stack.enter_context(Exporter(config.cluster.metrics_address, labels))
        if self._exporter.url:
            self._display.note(f"metrics: {self._exporter.url}")

    def make_policy(self) -> None:
        """Make the network, its initial parameters and the noise table."""
        self._setup = setup = Setup.of(self._config, self._interface)
        self._config = config = setup.config
        self._table = table = self._after_workers.enter_context(setup.make_table())
        algorithms.check_contract(
            config.algorithm,
            config.optimizer,
            setup.theta,
            table,
            seed=config.seed,
            behaviour_size=setup.interface.behaviour_size,
        )
        size = table.array.nbytes / 2**20
        self._display.note(
            f"{config.task.title}: {len(setup.theta):,} parameters, {counted(self._cluster.workers, 'worker')}, "
            f"noise table of {len(table):,} {config.noise.dtype} entries ({size:,.0f} MiB)\n{self._directory.path}"
        )
        if not self._interface.limited:
            self._display.note(
                f"{config.task.title} has no time limit: its episodes end after {self._interface.max_timesteps:,} "
                "timesteps; task.max_timesteps=1000 sets another limit"
            )

    def rebuild_state(self) -> None:
        """Open the metrics, and apply the records of the journal to the initial state or to a snapshot."""
        recording, directory = self._recording, self._directory
        last = last_row(directory.metrics)
        self._metrics = self._stack.enter_context(_open_metrics(directory, recording, self._config))
        if self._metrics.difference:
            self._display.note(f"{directory.metrics.name}: {self._metrics.difference}")
        self._nodes = self._stack.enter_context(NodesWriter(directory.nodes, recording.generations))
        self._state, self._pending, self._best = _rebuilt(directory, recording, self._setup, self._table, self._metrics)
        if self._pending is not None:
            add_measured(self._pending, last)
        if self._changed:
            self._conclude_before_changes()
            self._state = branch(self._state, self._setup)

    def _conclude_before_changes(self) -> None:
        """Write the row of the last generation, if it is missing: an evaluation to come is of the new settings."""
        if self._pending is None:
            return
        best = self._metrics.best_evaluation
        self._metrics.write(self._pending)
        if self._metrics.best_evaluation != best:
            self._best = self._state.policy()
        self._pending = None

    def start_workers(self) -> None:
        """Let the workers make their environments."""
        self._cluster.start(self._setup.plan(self._config.evaluation.episodes), self._table, self._state)

    def record_start(self) -> None:
        """Open the journal, and record the settings if they are new.

        From the first record on the run can be resumed, so that a signal is a request to end it.
        """
        interrupt = self._stack.enter_context(interruptible(self._display.answer_request))
        self._interrupt = self._cluster.interrupt = interrupt
        self._journal = self._stack.enter_context(Journal(self._recording))
        if self._changed or not len(self._recording):
            self._journal.append(self._state.start())
        self._set_unusable_aside()
        settings = replace(self._config, run_dir=str(self._directory.path), resume=None, force=False)
        self._directory.write_config(settings)
        best = self._metrics.best_evaluation
        self._display.begin(self._metrics.seconds, None if best is None else best[1])

    def start_loggers(self) -> None:
        """Start the processes that send what the run writes."""
        loggers = Loggers(self._config.logger, self._directory, self._display.note, lambda: self._metrics.generation)
        self._stack.enter_context(loggers)

    def _set_unusable_aside(self) -> None:
        """Keep a ``config.json`` that cannot be used under another name, and say what replaces it."""
        if self._unusable is None or not self._directory.config.exists():
            return
        why = str(self._unusable).partition("; correct it")[0]
        text = f"{why}; it is now {set_aside(self._directory.config).name}, and a new one has the settings in use"
        logger.warning(text)
        self._display.note(text)

    def run(self) -> Run:
        """Return the prepared run."""
        return Run(
            self._config,
            self._directory,
            self._state,
            self._cluster,
            self._journal,
            self._metrics,
            self._nodes,
            self._display,
            self._exporter,
            self._interrupt,
            self._pending,
            None if task_began(self._recording, self._config) else evaluations.initial(self._recording),
            self._best,
        )


def _open_metrics(directory: RunDirectory, recording: Recording, config: TrainConfig) -> MetricsWriter:
    generations = recording.generations
    if evaluations.ends_before_one(recording, config.evaluation) or _ends_unevaluated(directory, generations, config):
        generations -= 1  # the evaluation of the last row is still missing
    return MetricsWriter(directory.metrics, generations, recorded(recording), task_began(recording, config))


def _ends_unevaluated(directory: RunDirectory, generations: int, config: TrainConfig) -> bool:
    """Whether the run ends where it is, and its last row has no evaluation: it was interrupted in that generation."""
    last = last_row(directory.metrics) if config.evaluation.every else {}
    if last.get("generation") != str(generations - 1) or last["eval_return_mean"]:
        return False
    timesteps, seconds = number(last["timesteps"]), number(last["seconds"])
    return (
        (config.generations is not None and generations >= config.generations)
        or (config.timesteps is not None and timesteps >= config.timesteps)
        or (config.time_limit is not None and seconds >= config.time_limit)
    )


def _generation(snapshot: dict[str, Any]) -> int:
    """Return the generation of a snapshot; -1, which no row is needed for, of one that another version wrote."""
    generation = snapshot.get("algorithm", {}).get("generation")
    return generation if isinstance(generation, int) else -1


def _rebuilt(
    directory: RunDirectory, recording: Recording, setup: Setup, table: NoiseTable, metrics: MetricsWriter
) -> tuple[RunState, MetricsRow | None, Policy | None]:
    """Return the state after all records, the row of the last generation if it is not written yet, and the best center.

    Earlier rows that are missing in the metrics are written. The best center is None if it is older than the snapshot
    at which this begins: then it was saved before that.
    """
    if not len(recording):
        return RunState(setup, table), None, None
    begun = setup if recording.begins_with(deciding(setup.config)) else setup_of(recording)
    usable = (each for each in directory.whole_snapshots() if _generation(each) <= metrics.generation)
    history = History(recording, begun, table, usable)
    row: MetricsRow | None = None
    best = evaluated = None
    while not history.ended:
        used = settings_in_use(history.state)
        record = history.advance()
        if isinstance(record, Generation):
            if row is not None:
                before = metrics.best_evaluation
                metrics.write(row)
                best = best if metrics.best_evaluation == before else evaluated
            known = record.generation < metrics.generation
            row = None if known else row_of(record, used, history.state, metrics.seconds)
        elif isinstance(record, Evaluation) and row is not None:
            add_evaluation(row, record)
            evaluated = history.state.policy()
        # A known row may have an evaluation that the journal lacks: the last one of an earlier part of the run.
        is_best = metrics.best_evaluation is not None and metrics.best_evaluation[0] == history.state.generation
        if row is None and is_best and isinstance(record, Generation | Evaluation):
            best = history.state.policy()
    return history.state, row, best
