"""The training loop: ask, evaluate, record, tell.

Owns the order of steps in a run. Knows nothing of how members are evaluated (the cluster), how theta changes (the run's
state) or how a record is stored (the journal). Invariant: a generation's record is in the journal before the algorithm
learns from it.
"""

import logging
import math
import multiprocessing
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyes.cluster import Abandoned
from pyes.config import TrainConfig, refusal
from pyes.episodes.batch import Batch, Results
from pyes.errors import ConfigError, PyesError, RunDirectoryError, TaskError
from pyes.run import evaluations
from pyes.run.journal import Evaluation
from pyes.run.metrics import MetricsRow, NodeRow
from pyes.system.lifetime import how_to_go_on
from pyes.system.repeats import repeated
from pyes.system.text import counted
from pyes.training import ending, resume
from pyes.training.advice import Advice
from pyes.training.preparation import Preparation, Run
from pyes.training.rows import add_evaluation, row_of, settings_in_use

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes
    ----------
    run_dir : Path
    objective : float or None
        Mean return of the last evaluation of the center; None if there was none, or all its episodes failed.
    generations, timesteps : int
        Totals of the whole run, including earlier parts.
    stopped_by : str
        The budget that was reached, or "interrupt".
    """

    run_dir: Path
    objective: float | None
    generations: int
    timesteps: int
    stopped_by: str


def train(config: TrainConfig | Mapping[str, Any], *, display: bool = True, remark: str = "") -> RunResult:
    """Train a policy and write it, with its journal and its metrics, to the run directory.

    Parameters
    ----------
    config : TrainConfig or mapping
        See `pyes.config`; missing keys have their defaults, or with ``resume`` the run's values.
    display : bool
        Show the progress on standard error.
    remark : str
        A line that is shown as well, once the run has begun.

    Raises
    ------
    ConfigError
        The configuration cannot be used, or the run cannot be resumed with it; or it is called while a worker that was
        spawned (macOS, Windows) imports the program: the call belongs under ``if __name__ == "__main__":``.
    JournalError
        The journal of the run to resume is missing or damaged.
    TaskError
        The environment cannot be made, or fails every member.
    ClusterError
        The workers cannot be kept alive.
    DivergedError
        An update made theta, or the deviation of its perturbations, not finite; what was before it is kept.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(
            "pyes.train: a worker that begins imports this program, and would train as well; put the call under "
            'if __name__ == "__main__":'
        )
    if not isinstance(config, TrainConfig):
        if not isinstance(config, Mapping):
            raise refusal("", config, "a TrainConfig or a mapping, as {'task': {'env_id': 'CartPole-v1'}}")
        config = resume.settings(config)
    with Preparation(config, display=display) as steps:
        steps.claim_directory()
        steps.open_log()
        steps.read_journal()
        steps.fork_workers()
        steps.make_policy()
        steps.rebuild_state()
        steps.start_workers()
        steps.record_start()
        steps.start_loggers()
        run = steps.run()
        if remark:
            run.display.note(remark)
        return _Loop(run).go()


class _Loop:
    """Runs a prepared run to its end."""

    def __init__(self, run: Run) -> None:
        self._run, self._config, self._state = run, run.config, run.state
        self._cluster, self._interrupt = run.cluster, run.interrupt
        self._begun = time.perf_counter() - (run.metrics if run.pending is None else run.pending).seconds
        initial, best = run.initial, run.metrics.best_evaluation  # a run that goes on may have been better before
        self._advice = self._adviser(None if initial is None or (best and best[1] > initial[0]) else initial[0])
        self._learning = False  # from a record that the journal has to a state that has learned from it
        self._bytes = (0, 0)  # sent to other machines, and received
        self._evaluating = 0.0  # seconds of evaluation since the previous rows of nodes
        self._generation_seconds = self._evaluation_seconds = 0.0  # of the last one
        self._whole = None if run.pending else run.state.generation  # before this part of the run
        self._unrecorded_failures = 0  # episodes of an evaluation of the final center that was not due

    def go(self) -> RunResult:
        """Run generations until a budget is reached or the user interrupts; save; draw."""
        run, state = self._run, self._state
        try:
            stopped_by = self._first()
            while stopped_by is None:
                stopped_by = self._generation()
        except Abandoned:
            stopped_by = "interrupt"
        except KeyboardInterrupt:
            run.display.close()
            run.display.note(f"stopped in generation {state.generation}, which is not recorded")
            run.display.note(f"go on with: {how_to_go_on(run.directory.path)}")
            raise
        except PyesError:  # the task, the workers or the algorithm failed for good
            run.display.close()
            if not self._learning:  # else the state may be between two generations: the journal has what is before
                ending.try_to_save(run)
            raise
        run.display.close()
        try:
            ending.save(run)
        except ConfigError as error:
            if not isinstance(error, RunDirectoryError):
                error.add_note(
                    f"(the run is whole in its journal: {how_to_go_on(run.directory.path)} writes what is missing)"
                )
            raise
        finally:  # also after Ctrl-C
            failed = state.failed + self._unrecorded_failures
            ending.summarize(run, stopped_by, failed, idle=bool(state.generation) and state.generation == self._whole)
        if self._config.learning_curve:
            ending.draw_curve(run)
        evaluation = run.metrics.last_evaluation
        objective = None if evaluation is None or math.isnan(evaluation[1]) else evaluation[1]
        return RunResult(run.directory.path, objective, state.generation, state.timesteps, stopped_by)

    def _first(self) -> str | None:
        """Finish the last recorded generation if its row is missing; return what ends the run here, if anything."""
        if self._run.pending is not None:
            return self._conclude(self._run.pending)
        if stopped_by := self._reached() or self._target_reached():
            return stopped_by
        self._evaluate_start()
        return "interrupt" if self._interrupt else self._reached()

    def _evaluate_start(self) -> None:
        """Evaluate the initial center, so that a learning curve begins before any learning.

        It is free: were it counted as a part of `evaluation.share`, the next evaluation would be long in coming.
        """
        state = self._state
        if self._config.evaluation.every and not state.generation and not state.evaluation_costs.episodes:
            record = state.record_evaluation(self._evaluate_center(), counted=False)
            self._run.journal.append(record)
            state.apply(record)
            self._run.initial = record.summary
            self._advice = self._adviser(record.summary[0])
            self._run.display.note(f"before training: evaluation {ending.described(*record.summary)}")

    def _generation(self) -> str | None:
        """Run one generation; return what ends the run after it, if anything."""
        state = self._state
        used = settings_in_use(state)
        results, seconds = self._evaluate(state.batch())
        if results.failed == len(results.returns):  # the task is broken, not the members
            what = f"{self._config.task.title}: all {results.failed} members failed: {results.reason}"
            raise TaskError(f"{what}; see {self._run.directory.log}").with_traceback(self._cluster.traceback)
        evaluated = time.perf_counter()
        record = state.record(results)
        if state.statistics is not None:
            seen = int(results.sum_lengths.sum())
            left_out = state.statistics.count + seen - record.observations
            self._advise(self._advice.of_observations(left_out, seen))
        self._learning = True
        self._run.journal.append(record)
        self._cluster.advance(record)
        state.apply(record)
        self._learning = False
        row = row_of(record, used, state, self._seconds())
        row.update_seconds = time.perf_counter() - evaluated
        self._add_performance(row, results, seconds)
        nodes = self._cluster.nodes(record.generation, self._evaluating)
        self._evaluating = 0.0
        self._run.nodes.write(nodes)
        if state.algorithm.progress[0] == 0:
            self._advise([f"generation {record.generation}: the attempt is given up, and another one begins"])
        self._advise(self._advice.of(row, len(record.returns), self._cluster.workers))
        return self._conclude(row, nodes)

    def _adviser(self, initial: float | None) -> Advice:
        network = self._config.network
        return Advice(
            initial,
            offset=self._state.reward_offset or 0.0,
            chance=self._config.task.name != "function",
            zero=network.init in ("zero", "zero_output") and network.name != "torch",
            episodes=self._state.averaging.episodes,
        )

    def _advise(self, texts: Iterable[str]) -> None:
        for text in texts:
            logger.warning(text)
            self._run.display.note(text)

    def _add_performance(self, row: MetricsRow, results: Results, seconds: float) -> None:
        """Fill in the columns that only the clock and the cluster know."""
        row.evaluate_seconds = seconds
        row.steps_per_second = float(results.lengths.sum()) / seconds
        if workers := self._cluster.workers:  # 0 if all nodes have just left
            row.idle_fraction = max(0.0, 1.0 - results.busy_seconds / (workers * seconds))
        before, self._bytes = self._bytes, self._cluster.traffic
        row.bytes_sent, row.bytes_received = self._bytes[0] - before[0], self._bytes[1] - before[1]

    def _conclude(self, row: MetricsRow, nodes: Sequence[NodeRow] = ()) -> str | None:
        """Evaluate and save if due, write the row of the generation; return what ends the run, if anything."""
        run = self._run
        stopped_by = "interrupt" if self._interrupt else self._reached()
        evaluation = self._evaluate_if_due(row, stopped_by)
        if evaluation is not None:
            add_evaluation(row, evaluation)
            self._advice.offset = self._state.reward_offset or 0.0
            self._advise(self._advice.of_evaluation(*evaluation.summary, self._state.setup.interface.max_timesteps))
        row.seconds = self._seconds()
        best = run.metrics.best_evaluation
        run.metrics.write(row)
        if run.metrics.best_evaluation != best:
            run.best = self._state.policy()
        run.display.show(row, nodes, self._cluster.remarks())
        run.exporter.publish(row, nodes, self._cluster.workers, self._cluster.lost)
        every = self._config.snapshot.every
        if every and self._state.generation % every == 0:
            ending.try_to_save(run)
        if self._interrupt:  # perhaps during the evaluation
            return "interrupt"
        # A limit that passed since the decision about the evaluation must not make a center the last one without it.
        late = self._reached() if evaluation is not None or not self._config.evaluation.every else None
        return stopped_by or late or self._target_reached()

    def _evaluate(self, batch: Batch) -> tuple[Results, float]:
        """Evaluate a batch; return its results and the seconds it took."""
        asked = time.perf_counter()
        members, evaluation = len(batch.population), batch.evaluation

        def watch(left: int) -> None:
            self._run.display.progress(batch.generation, members - left, members, evaluation=evaluation)

        self._cluster.watch = watch
        results = self._cluster.evaluate(batch)
        seconds = time.perf_counter() - asked
        self._evaluating += seconds
        if evaluation:
            self._evaluation_seconds = seconds
        else:
            self._generation_seconds = seconds
        return results, seconds

    def _evaluate_if_due(self, row: MetricsRow, stopped_by: str | None) -> Evaluation | None:
        """Evaluate the center if `evaluations.is_due`, and after the last generation unless the user interrupts.

        Only evaluations that are due are recorded, since the journal must not depend on budgets.
        """
        config, state = self._config.evaluation, self._state
        if not config.every or row.eval_return_mean is not None:
            return None
        due = evaluations.is_due(config, state.generation, state.timesteps, state.evaluation_costs)
        if not due and stopped_by in (None, "interrupt"):
            return None
        record = state.record_evaluation(self._evaluate_center(), counted=config.share is not None)
        if not due:
            self._unrecorded_failures = record.failed
            return record
        self._run.journal.append(record)
        state.apply(record)
        return record

    def _evaluate_center(self) -> Results:
        """Run the evaluation episodes of the center."""
        results, _ = self._evaluate(self._state.center_batch(self._config.evaluation.episodes))
        if results.failed == len(results.returns):  # not an error: the next center may be better
            text, episodes = "all episodes of an evaluation failed", counted(results.failed, "episode")
            where = f"generation {self._state.generation}, {episodes}: {results.reason}"
            logger.warning("%s (%s)", text, where, extra=repeated(text))
        return results

    def _seconds(self) -> float:
        """Wall-clock time since the run was ready to begin, without the time between its parts."""
        return time.perf_counter() - self._begun

    def _reached(self) -> str | None:
        """Return the budget that has been reached, if any."""
        config, state = self._config, self._state
        if config.generations is not None and state.generation >= config.generations:
            return "generations"
        if config.timesteps is not None and state.timesteps >= config.timesteps:
            return "timesteps"
        # One that would end too late is not begun: what it came to would be lost, or the limit not kept.
        if config.time_limit is not None and self._seconds() + self._longest() >= config.time_limit:
            return "time_limit"
        return None

    def _longest(self) -> float:
        """Return the seconds that the next generation and the last evaluation may take, by those before."""
        return self._generation_seconds + (self._evaluation_seconds if self._config.evaluation.every else 0.0)

    def _target_reached(self) -> str | None:
        """Return what ends the run if the center has been evaluated, and has reached the target."""
        target, evaluation = self._config.target_return, self._run.metrics.last_evaluation
        if target is None or evaluation is None or evaluation[0] != self._state.generation:
            return None
        return "target_return" if evaluation[1] >= target else None
