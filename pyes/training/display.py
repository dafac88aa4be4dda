"""Shows the progress of a run: a live table on a terminal, plain lines elsewhere.

Writes to standard error; standard output is for results.
"""

import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from pyes.config import TrainConfig
from pyes.run.metrics import MetricsRow, NodeRow
from pyes.system.lifetime import Closing
from pyes.system.text import counted, rounded, spread

if TYPE_CHECKING:
    from pyes.training.panel import Budget, Panel

_LINES_EVERY = 2.0  # seconds, without a terminal
_FRAMES_EVERY = 0.1  # seconds, on a terminal
_SILENCE_LINES = 10.0  # seconds without a row, after which the members done so far are shown
_SILENCE_FRAMES = 1.0
#: Of the panel, column by column where it has three.
_FIGURES = (
    *("generation", "timesteps", "episodes", "time"),
    *("return", "best member", "episode length", "workers idle"),
    *("evaluation", "best evaluation", "steps/s", "failed members"),
)


class Display(Closing):
    """Shows the rows of a run, and errors that the head logs.

    Parameters
    ----------
    config : TrainConfig
        The budgets.
    enabled : bool
        False shows nothing.
    """

    def __init__(self, config: TrainConfig, *, enabled: bool = True) -> None:
        self._config = config
        self._enabled = enabled and sys.stderr is not None
        # A dumb terminal cannot move its cursor, so that rich would draw the panel at the end only.
        moves = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        self._panel = _panel() if self._enabled and moves else None
        self._shown = 0.0
        self._changed = time.monotonic()  # when something was last shown
        self._row: MetricsRow | None = None
        self._nodes: Sequence[NodeRow] = ()
        self._remarks: Sequence[str] = ()
        self._counted = time.monotonic()  # when the seconds of the last row were counted
        self._evaluation: tuple[float, float | None] | None = None
        self._best: float | None = None  # mean of the best evaluation
        self._errors = _Errors(self)

    def __enter__(self) -> Self:
        logging.getLogger("pyes").addHandler(self._errors)
        return self

    def note(self, text: str) -> None:
        """Show one line that stays."""
        with self._while_read():
            if self._panel is not None:
                self._panel.note(text)
            elif self._enabled:
                print(text, file=sys.stderr, flush=True)

    def answer_request(self) -> None:
        """Say that the run will end; called by the handler of a signal, whatever else is being written."""
        with contextlib.suppress(RuntimeError):  # the signal came while the main thread was writing
            self.note("the run ends after this generation; again (Ctrl-C): it stops now")

    def begin(self, seconds: float, best: float | None) -> None:
        """Count time from here on, after ``seconds`` of earlier parts of the run, and their best evaluation if any."""
        self._counted, self._best = time.monotonic() - seconds, best

    def progress(self, generation: int, done: int, members: int, *, evaluation: bool) -> None:
        """Show how far a batch is if nothing else has been shown for a while.

        Parameters
        ----------
        done, members : int
            Members evaluated so far, of so many; episodes of an evaluation.
        """
        now = time.monotonic()
        if not self._enabled or now - self._changed < (_SILENCE_LINES if self._panel is None else _SILENCE_FRAMES):
            return
        self._changed = now
        what = f"evaluation: {done:,} of {members:,} episodes" if evaluation else f"{done:,} of {members:,} members"
        text = f"generation {generation}, {what}"
        with self._while_read():
            if self._panel is None:
                print(f"{text}, {_duration(now - self._counted)}", file=sys.stderr, flush=True)
            else:
                self._draw(text)

    def show(self, row: MetricsRow, nodes: Sequence[NodeRow] = (), remarks: Sequence[str] = ()) -> None:
        """Show a generation: at most ten times per second on a terminal, otherwise every two seconds.

        Parameters
        ----------
        row : MetricsRow
            Metrics of the generation.
        nodes : sequence of NodeRow
            Metrics of other machines; only shown on a terminal, like the remarks.
        remarks : sequence of str
            Unusual events so far.
        """
        self._row, self._nodes, self._remarks = row, nodes, remarks
        evaluated = row.eval_return_mean is not None
        if row.eval_return_mean is not None:
            self._evaluation = row.eval_return_mean, row.eval_return_std
            if not math.isnan(row.eval_return_mean):
                self._best = max(row.eval_return_mean, -math.inf if self._best is None else self._best)
        now = time.monotonic()
        self._counted = now - row.seconds
        every = _LINES_EVERY if self._panel is None else _FRAMES_EVERY
        if not self._enabled or (now - self._shown < every and not evaluated):
            return
        self._shown = self._changed = now
        with self._while_read():
            if self._panel is None:
                print(_line(row), file=sys.stderr, flush=True)
            else:
                self._draw()

    def _draw(self, doing: str = "") -> None:
        assert self._panel is not None
        lines = [*([doing] if doing else []), *self._remarks]
        self._panel.show(self._pairs(), self._budget(), self._nodes, lines)

    def _seconds(self) -> float:
        """Wall clock since the run was ready to begin."""
        return time.monotonic() - self._counted

    @contextmanager
    def _while_read(self) -> Iterator[None]:
        """Stop showing if standard error is closed; the run continues."""
        try:
            yield
        except OSError:
            self._enabled, self._panel = False, None

    def _pairs(self) -> list[tuple[str, str]]:
        """Return the figures of the panel with their names; before the first row most are not known."""
        figures = dict.fromkeys(_FIGURES, "-") if self._row is None else _figures(self._row)
        figures["time"] = _duration(self._seconds())
        if self._evaluation is not None:
            figures["evaluation"] = _evaluated(*self._evaluation)
        if self._best is not None:
            figures["best evaluation"] = rounded(self._best)
        return list(figures.items())

    def _budget(self) -> "Budget | None":
        """Return the budget that will be reached first, with the time left."""
        from pyes.training.panel import Budget

        config, row, seconds = self._config, self._row, self._seconds()
        if row is None:
            return None
        shares = {
            "generations": (row.generation + 1) / config.generations if config.generations else 0.0,
            "timesteps": row.timesteps / config.timesteps if config.timesteps else 0.0,
            "time limit": seconds / config.time_limit if config.time_limit else 0.0,
        }
        name, share = max(shares.items(), key=lambda item: item[1])
        if share <= 0.0:
            return None
        share = min(share, 1.0)
        left = seconds * (1.0 - share) / share
        return Budget(share, (f"{share:.0%} of {name}", f"about {_duration(left)} left"))

    def close(self) -> None:
        """Leave the last frame on the screen."""
        logging.getLogger("pyes").removeHandler(self._errors)
        with self._while_read():
            if self._panel is not None:
                self._panel.close()


def _panel() -> "Panel":
    """Return the panel of this terminal."""
    from pyes.training.panel import Panel

    return Panel(sys.stderr)


class _Errors(logging.Handler):
    """Also shows logged errors, which the user may have to fix (such as a full disk)."""

    def __init__(self, display: Display) -> None:
        super().__init__(logging.ERROR)
        self._display, self._process = display, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record; not in a forked worker, which would write into the panel: its records are in the log."""
        if os.getpid() == self._process:
            self._display.note(record.getMessage())


def _figures(row: MetricsRow) -> dict[str, str]:
    """Return the figures of the panel that are those of a row; "-" stands for the others."""
    return dict.fromkeys(_FIGURES, "-") | {
        "generation": f"{row.generation:,}",
        "timesteps": f"{row.timesteps:,}",
        "episodes": f"{row.episodes:,}",
        "return": rounded(row.return_mean),
        "best member": rounded(row.return_max),
        "episode length": f"{row.length_mean:.0f}",
        "workers idle": "-" if row.idle_fraction is None else f"{row.idle_fraction:.0%}",
        "steps/s": _rate(row.steps_per_second),
        "failed members": f"{row.failed_members}",
    }


def _line(row: MetricsRow) -> str:
    """Return a generation in one line."""
    text = (
        f"generation {row.generation:>5}  timesteps {row.timesteps:>11,}  return {rounded(row.return_mean):>9}"
        f"  {_rate(row.steps_per_second):>9} steps/s  {_duration(row.seconds):>7}"
    )
    if row.eval_return_mean is not None:
        text += f"  evaluation {_evaluated(row.eval_return_mean, row.eval_return_std)}"
        if row.eval_failed_episodes and not math.isnan(row.eval_return_mean):
            text += f" ({counted(row.eval_failed_episodes, 'episode')} failed)"
    return text


def _evaluated(mean: float, std: float | None) -> str:
    """Return an evaluation of the center; its mean is NaN if all its episodes failed."""
    return "failed" if math.isnan(mean) else spread(mean, std or 0.0)


def _rate(steps_per_second: float | None) -> str:
    """Return a speed as text; None if the head was killed during the generation."""
    return "-" if steps_per_second is None else f"{steps_per_second:,.0f}"


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
