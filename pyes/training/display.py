"""Shows the progress of a run: a live table on a terminal, plain lines elsewhere.

Writes to standard error; standard output is for results.
"""

import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pyes.config import TrainConfig
from pyes.run.metrics import MetricsRow, NodeRow
from pyes.system.lifetime import Closing

_LINES_EVERY = 2.0  # seconds, without a terminal
_FRAMES_EVERY = 0.1  # seconds, on a terminal
_MOST_NODES = 10  # shown, since the table must fit the screen
_NODE_COLUMNS = ("workers", "members", "steps/s", "idle", "round trip", "bytes")


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
        self._console = _Console(file=sys.stderr, highlight=False, emoji=False)  # names may look like ":two:"
        self._live: Live | None = None
        self._shown = 0.0
        self._evaluation: tuple[float, float | None] | None = None
        self._best = -float("inf")
        self._errors = _Errors(self)

    def __enter__(self) -> Self:
        logging.getLogger("pyes").addHandler(self._errors)
        return self

    def note(self, text: str) -> None:
        """Show one line that stays."""
        with self._while_read():
            if self._enabled:
                self._console.print(text, soft_wrap=True, markup=False)

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
        evaluated = row.eval_return_mean is not None
        if row.eval_return_mean is not None:
            self._evaluation = row.eval_return_mean, row.eval_return_std
            self._best = max(self._best, row.eval_return_mean)  # unchanged by NaN, the second argument
        now = time.monotonic()
        every = _FRAMES_EVERY if self._console.is_terminal else _LINES_EVERY
        if not self._enabled or (now - self._shown < every and not evaluated):
            return
        self._shown = now
        with self._while_read():
            if not self._console.is_terminal:
                self._console.print(self._line(row), soft_wrap=True, markup=False)
                return
            if self._live is None:
                # Without refresh thread: the loop updates often enough.
                self._live = Live(console=self._console, auto_refresh=False, transient=False)
                self._live.start()
            self._live.update(Group(self._frame(row), *_nodes(nodes), *map(Text, remarks)), refresh=True)

    @contextmanager
    def _while_read(self) -> Iterator[None]:
        """Stop showing if standard error is closed; the run continues."""
        try:
            yield
        except OSError:
            self._enabled = False

    def _line(self, row: MetricsRow) -> str:
        text = (
            f"generation {row.generation:>5}  timesteps {row.timesteps:>11,}  return {row.return_mean:>9.2f}"
            f"  {_rate(row.steps_per_second):>9} steps/s  {_duration(row.seconds):>7}"
        )
        if row.eval_return_mean is not None:
            text += f"  evaluation {_evaluated(row.eval_return_mean, row.eval_return_std)}"
        return text

    def _frame(self, row: MetricsRow) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for _ in range(3):
            table.add_column(style="bold")
            table.add_column(justify="right", min_width=12)
        evaluation = "-" if self._evaluation is None else _evaluated(*self._evaluation)
        best = f"{self._best:.2f}" if math.isfinite(self._best) else "-"
        table.add_row("generation", f"{row.generation:,}", "return", f"{row.return_mean:.2f}", "evaluation", evaluation)
        table.add_row(
            "timesteps", f"{row.timesteps:,}", "best member", f"{row.return_max:.2f}", "best evaluation", best
        )
        table.add_row(
            "episodes",
            f"{row.episodes:,}",
            "episode length",
            f"{row.length_mean:.0f}",
            "steps/s",
            _rate(row.steps_per_second),
        )
        table.add_row(
            "time",
            _duration(row.seconds),
            "workers idle",
            "-" if row.idle_fraction is None else f"{row.idle_fraction:.0%}",
            "failed members",
            f"{row.failed_members}",
        )
        return Group(Text(), table, *self._budget(row))

    def _budget(self, row: MetricsRow) -> list[RenderableType]:
        """Return a progress bar for the budget that will be reached first, with the remaining time."""
        config = self._config
        shares = {
            "generations": (row.generation + 1) / config.generations if config.generations else 0.0,
            "timesteps": row.timesteps / config.timesteps if config.timesteps else 0.0,
            "time limit": row.seconds / config.time_limit if config.time_limit else 0.0,
        }
        name, share = max(shares.items(), key=lambda item: item[1])
        if share <= 0.0:
            return []
        share = min(share, 1.0)
        left = row.seconds * (1.0 - share) / share
        line = Table.grid(padding=(0, 2))
        line.add_row(
            ProgressBar(total=1.0, completed=share, width=40), f"{share:.0%} of {name}", f"about {_duration(left)} left"
        )
        return [line]

    def close(self) -> None:
        """Leave the last frame on the screen."""
        logging.getLogger("pyes").removeHandler(self._errors)
        if self._live is not None:
            with self._while_read():
                self._live.stop()
            self._live = None


class _Console(Console):
    """A console that raises an exception if its output is closed; rich's own ends the process."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError."""
        raise BrokenPipeError


class _Errors(logging.Handler):
    """Also shows logged errors, which the user may have to fix (such as a full disk)."""

    def __init__(self, display: Display) -> None:
        super().__init__(logging.ERROR)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        self._display.note(record.getMessage())


def _nodes(rows: Sequence[NodeRow]) -> list[RenderableType]:
    """Return a table of the nodes, if there are any."""
    if not rows:
        return []
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("node")
    for name in _NODE_COLUMNS:
        table.add_column(name, justify="right")
    for row in rows[:_MOST_NODES]:
        table.add_row(
            Text(row.node),
            f"{row.workers}",
            f"{row.members:,}",
            f"{row.steps_per_second:,.0f}",
            f"{row.idle_fraction:.0%}",
            f"{1e3 * row.round_trip:.1f} ms",
            f"{row.bytes_sent + row.bytes_received:,}",
        )
    more = len(rows) - _MOST_NODES
    return [Text(), table, *([Text(f"and {more} more; all of them: pyes status")] if more > 0 else [])]


def _evaluated(mean: float, std: float | None) -> str:
    """Return an evaluation of the center; its mean is NaN if all its episodes failed."""
    return "failed" if math.isnan(mean) else f"{mean:.2f} ± {std:.2f}"


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
