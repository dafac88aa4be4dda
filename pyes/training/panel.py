"""The live table of a run on a terminal, in a form that fits the terminal's width and height.

Owns all that knows rich, which is imported only where there is a terminal. Knows no run: it is handed pairs of words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pyes.run.metrics import NodeRow

_MOST_NODES = 10
_NODE_COLUMNS = ("workers", "members", "steps/s", "idle", "round trip", "bytes")
_FEW_COLUMNS = 4  # of these, where all of them do not fit
_LEAST_VALUE = 9  # characters of a value: columns stay where they are while its digits change
_WIDE = 1_000  # characters, in which every table has room
_LONGEST_BAR, _BESIDE_BAR = 40, 46


@dataclass(frozen=True)
class Budget:
    """How much of a budget is used, from 0 to 1, and in words."""

    share: float
    words: tuple[str, str]


class Panel:
    """A table that is drawn over itself, and lines above it that stay.

    Parameters
    ----------
    file : text file
        The terminal.
    size : (int, int)
        Its width and height, if they are not to be asked of it.
    """

    def __init__(self, file: TextIO, size: tuple[int, int] | None = None) -> None:
        width, height = size or (None, None)
        # No emoji: ":two:" is a name.
        self._console = _Console(
            file=file, width=width, height=height, force_terminal=True, highlight=False, emoji=False
        )
        self._live: Live | None = None

    def note(self, text: str) -> None:
        """Show one line that stays."""
        self._console.print(text, soft_wrap=True, markup=False)

    def show(
        self, pairs: Sequence[tuple[str, str]], budget: Budget | None, nodes: Sequence[NodeRow], lines: Iterable[str]
    ) -> None:
        """Draw the table anew.

        Parameters
        ----------
        pairs : sequence of (str, str)
            Names and values, all of which are shown.
        nodes : sequence of NodeRow
            As many as the screen has room for.
        lines : iterable of str
            What stands below.
        """
        if self._live is None:
            # No refresh thread: the loop comes by often enough.
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        table = self._fitting(_in_columns(pairs, columns) for columns in (3, 2, 1))
        below = [Text(line) for line in lines]
        room = self._console.height - table.row_count - len(below) - 6
        bar = [] if budget is None else [self._bar(budget)]
        self._live.update(Group(Text(), table, *bar, *below, *self._nodes(nodes, room)), refresh=True)

    def close(self) -> None:
        """Leave the last table on the screen."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _fitting(self, tables: Iterable[Table]) -> Table:
        """Return the first table that is not too wide, else the last one."""
        unbounded = self._console.options.update(width=_WIDE)
        for table in tables:
            if Measurement.get(self._console, unbounded, table).maximum <= self._console.width:
                break
        return table

    def _bar(self, budget: Budget) -> Table:
        line = Table.grid(padding=(0, 2))
        width = max(5, min(_LONGEST_BAR, self._console.width - _BESIDE_BAR))
        line.add_row(ProgressBar(total=1.0, completed=budget.share, width=width), *budget.words)
        return line

    def _nodes(self, rows: Sequence[NodeRow], room: int) -> list[RenderableType]:
        """Return a table of the nodes, if there are any."""
        if not rows:
            return []
        shown = rows[: max(1, min(_MOST_NODES, room))]
        table = self._fitting(_node_table(shown, columns) for columns in (len(_NODE_COLUMNS), _FEW_COLUMNS))
        more = len(rows) - len(shown)
        return [Text(), table, *([Text(f"and {more} more; all of them: pyes status")] if more > 0 else [])]


class _Console(Console):
    """A console that says when its reader has gone; rich's own ends the process."""

    def on_broken_pipe(self) -> None:
        """Pass it on."""
        raise BrokenPipeError


def _in_columns(pairs: Sequence[tuple[str, str]], columns: int) -> Table:
    """Return pairs one below the other, in so many columns."""
    table = Table.grid(padding=(0, 2))
    for _ in range(columns):
        table.add_column(style="bold", no_wrap=True)
        table.add_column(justify="right", min_width=_LEAST_VALUE, no_wrap=True)
    rows = -(-len(pairs) // columns)
    for row in range(rows):
        table.add_row(*(Text(text) for pair in pairs[row::rows] for text in pair))
    return table


def _node_table(rows: Sequence[NodeRow], columns: int) -> Table:
    """Return what the nodes did, the first so many figures of each."""
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("node", overflow="ellipsis", no_wrap=True)
    for name in _NODE_COLUMNS[:columns]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        figures = (
            f"{row.workers}",
            f"{row.members:,}",
            f"{row.steps_per_second:,.0f}",
            f"{row.idle_fraction:.0%}",
            f"{1e3 * row.round_trip:.1f} ms",
            f"{row.bytes_sent + row.bytes_received:,}",
        )
        table.add_row(Text(row.node), *figures[:columns])
    return table
