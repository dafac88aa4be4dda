"""Saves snapshots and the policy during a run; draws a learning curve and shows a summary at its end.

The loop decides when. Invariant: a snapshot is written only after the metrics and the journal are on disk.
"""

import logging
import math

from pyes.errors import ConfigError, RunDirectoryError
from pyes.system.lifetime import how_to_go_on
from pyes.system.repeats import repeated
from pyes.system.text import counted, quoted, reason, rounded, spread
from pyes.training.advice import verdict
from pyes.training.preparation import Run

logger = logging.getLogger(__name__)


def save(run: Run) -> None:
    """Write the best policy if it is new, a snapshot, and the policy.

    In this order: a resumed run begins at the last snapshot, and finds only later centers again.

    Raises
    ------
    ConfigError
        They cannot be written.
    RunDirectoryError
        The run directory has been moved or deleted.
    """
    if not run.directory.path.is_dir():
        raise RunDirectoryError(f"{run.directory.path} has been moved or deleted; resume the run where it is now")
    run.metrics.sync()
    run.journal.sync()
    try:
        if run.best is not None:
            run.best.save_as(run.directory.best)
            run.best = None
        run.directory.save_snapshot(run.state.generation, run.state.state_dict() | {"journal": run.journal.digest})
    finally:  # the policy is smaller, and what the run is for
        run.state.policy().save(run.directory.path)


def try_to_save(run: Run) -> None:
    """Save, or log why it failed: the journal is enough to resume the run."""
    try:
        save(run)
    except RunDirectoryError:
        logger.error(
            "%s has been moved or deleted: only journal and metrics are written; resume the run in its new place when "
            "it has ended",
            run.directory.path,
            extra=repeated("moved"),
        )
    except ConfigError as error:
        logger.error("no snapshot of generation %d: %s; the journal is enough to go on", run.state.generation, error)


def draw_curve(run: Run) -> None:
    """Draw the learning curve, or log why there is none: the run is over, saved and summarised."""
    from pyes.reports import plots

    try:
        plots.plot([run.directory.path], run.directory.learning_curve)
    except ConfigError as error:  # a run without a generation has nothing to draw, a full disk no place for it
        logger.warning("no learning curve: %s", error)
    except KeyboardInterrupt:
        logger.warning("no learning curve: interrupted")
    except Exception as error:  # matplotlib's own, such as one that finds none of its fonts
        logger.warning("no learning curve: %s", reason(error))


def described(mean: float, std: float) -> str:
    """Return an evaluation as text; its mean is NaN if all of its episodes failed."""
    return "all episodes failed" if math.isnan(mean) else spread(mean, std)


def summarize(run: Run, stopped_by: str, failed: int, *, idle: bool) -> None:
    """Show how the run ended.

    Parameters
    ----------
    stopped_by : str
        The budget that was reached, or "interrupt".
    failed : int
        Members and evaluation episodes that failed.
    idle : bool
        Whether a run that goes on had reached its budget before.
    """
    show, state = run.display.note, run.state
    reached = f"after {counted(state.generation, 'generation')} and {counted(state.timesteps, 'timestep')}"
    if stopped_by == "interrupt":
        show(f"interrupted {reached}")
    else:
        budget = getattr(run.config, stopped_by)
        show(f"reached {stopped_by}={budget:.10g} {reached}")
        if idle:
            seconds = math.ceil(run.metrics.seconds)
            used = {"generations": state.generation, "timesteps": state.timesteps, "time_limit": seconds}
            larger = f"{2 * max(budget, used[stopped_by]):.10g}" if stopped_by in used else "null"
            show(f"nothing was left to do; go on with a larger budget, as {stopped_by}={larger}")
    if run.metrics.last_evaluation is not None:
        center, mean, deviation = run.metrics.last_evaluation
        which = "" if center == state.generation else f", of the center of generation {center}"
        show(f"evaluation: {described(mean, deviation)}{which}")
    best, moved = run.metrics.best_evaluation, not run.directory.path.is_dir()
    if best is not None and best[0] != state.generation and not moved:
        where = f"{run.directory.best.name}; on fresh episodes: pyes evaluate {quoted(run.directory.path)} --best"
        show(f"best evaluation: {rounded(best[1])}, of the center of generation {best[0]} ({where})")
    if text := verdict(run.initial, best):
        show(text)
    if failed:
        show(f"{failed:,} members or evaluation episodes failed; see {run.directory.log}")
    for remark in run.cluster.remarks():
        show(remark)
    if stopped_by == "interrupt" and not moved:
        show(f"go on with: {how_to_go_on(run.directory.path)}")
