"""Asks a head again and again for the state of its nodes, and shows what is wrong with which node, the worst on top.

Owns the judgement of nodes and the table. Paces are those of the last `_WINDOW` seconds, or since a node joined.
Knows no connection: `pyes.reports.status` makes them.
"""

import statistics
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from rich.console import Console, Group
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pyes.errors import ClusterError, RefusedError
from pyes.reports import status
from pyes.system.addresses import Address
from pyes.system.lifetime import Closing
from pyes.system.text import counted

_WINDOW = 20.0  # seconds over which paces are taken
_SLOW = 0.8  # of the median pace of a worker; a node below it is called slow
_IDLE = 0.5  # share of time at work below which a node is said to wait
_JUST_JOINED = 5.0  # seconds in which a node is not said to wait
_SILENT = 3.0  # seconds without a sign of life, of which there is one a second
_COLUMNS = ("workers", "members", "steps/s", "of median", "busy", "heard", "round trip", "lost", "sent", "received")
_LESS = ("sent", "received", "round trip", "members", "heard")  # left out in this order where the screen is narrow
_LEAST_TROUBLE = 24  # characters of the last column, in which longer texts are wrapped

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """A node and what is wrong with it.

    Attributes
    ----------
    node : mapping
        The node's part of the report.
    pace, busy : float
        Timesteps a second, and the share of its workers' time at work.
    relative : float or None
        Timesteps a second of a worker at work, relative to the median of all nodes; None without timesteps.
    trouble : str
        What is wrong; empty if nothing is.
    rank : int
        The smallest is the worst.
    """

    node: Report
    pace: float
    busy: float
    relative: float | None
    trouble: str
    rank: int


def watch(address: Address, key: str | None, seconds: float) -> NoReturn:
    """Show a head and its nodes every so many seconds until Ctrl-C, whether or not the head answers.

    Raises
    ------
    ConfigError
        A key is needed, or it cannot be used.
    RefusedError
        The head refuses this program.
    """
    reports: deque[tuple[float, Report]] = deque()
    answered = True
    with _Screen() as screen:
        while True:
            try:
                report = status.ask(address, key)
            except RefusedError:
                raise
            except ClusterError as error:
                reports.clear()
                if answered:
                    screen.close()
                    screen.note(f"{error}; trying again every {seconds:g} s, Ctrl-C ends")
                answered = False
            else:
                answered = True
                now = time.monotonic()
                if reports and reports[-1][1]["job"] != report["job"]:
                    reports.clear()
                reports.append((now, report))
                while reports[0][0] < now - _WINDOW and len(reports) > 2:
                    reports.popleft()
                screen.show(_heading(reports), judged(reports))
            time.sleep(seconds)


def judged(reports: Sequence[tuple[float, Report]]) -> list[Line]:
    """Return the nodes of the last report, the worst first.

    Parameters
    ----------
    reports : sequence of (float, mapping)
        Times, and reports of the same head.
    """
    (begun, first), (ended, last) = reports[0], reports[-1]
    earlier = {node["node"]: node for node in first["nodes"]} if len(reports) > 1 else {}
    figures = []
    for node in last["nodes"]:
        before = earlier.get(node["node"])
        if before is None or before["timesteps"] > node["timesteps"] or before["reconnects"] < node["reconnects"]:
            before = {"timesteps": 0, "busy_seconds": 0.0}
            seconds = node["seconds"]
        else:
            seconds = ended - begun
        figures.append(
            (node, node["timesteps"] - before["timesteps"], node["busy_seconds"] - before["busy_seconds"], seconds)
        )
    speeds = [steps / busy if steps and busy > 0.0 else None for _, steps, busy, _ in figures]
    known = [speed for speed in speeds if speed is not None]
    median = statistics.median(known) if known else 1.0
    lines = []
    for (node, steps, busy, seconds), speed in zip(figures, speeds, strict=True):
        relative = None if speed is None else speed / median
        share = min(1.0, busy / max(seconds * node["workers"], 1e-9))
        rank, trouble = _trouble(node, relative)
        if not trouble and node["state"] == "at work" and share < _IDLE and seconds > _JUST_JOINED:
            rank, trouble = rank - 1, f"waits: {share:.0%} busy, round trip {1e3 * node['round_trip']:.0f} ms"
        lines.append(Line(node, steps / max(seconds, 1e-9), share, relative, trouble, rank))
    return sorted(lines, key=lambda line: (line.rank, line.relative or 0.0, line.node["node"]))


def _trouble(node: Report, relative: float | None) -> tuple[int, str]:
    """Return a rank and what is wrong with a node, all of it, the worst first."""
    slow = relative is not None and relative < _SLOW
    checks = (
        (node["state"] not in ("at work", "ready"), node["state"]),
        (node["heard"] > _SILENT, f"silent for {node['heard']:.0f} s"),
        (slow, f"slow: {relative or 0.0:.1f} of the median"),
        (node["reconnects"] > 0, f"came back {_times(node['reconnects'])}"),
    )
    found = [(rank, text) for rank, (holds, text) in enumerate(checks) if holds]
    return (found[0][0] if found else len(checks) + 1), "; ".join(text for _, text in found)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _heading(reports: Sequence[tuple[float, Report]]) -> list[str]:
    """Return two lines about the head and all nodes."""
    report = reports[-1][1]
    known = [each for _, each in reports if each["generation"] is not None]
    doing = "no generation yet"
    if known:  # the last one that was seen, since a report may come between two
        last = known[-1]
        done, what = last["members"] - last["members_left"], "episodes" if last["evaluation"] else "members"
        begin = f"generation {last['generation']:,}{', evaluation' if last['evaluation'] else ''}"
        doing = f"{begin}: {done:,} of {last['members']:,} {what} done"
    pace = sum(line.pace for line in judged(reports))
    nodes = f"{counted(len(report['nodes']), 'node')} with {counted(report['workers'], 'worker')}"
    moved = f"{status.size(report['bytes_sent'])} sent, {status.size(report['bytes_received'])} received"
    lost = f"members: {report['lost']:,} lost, {report['rerun']:,} rerun; {counted(report['left'], 'node')} left"
    return [
        f"{report['head']} at {report['listen']}: {report['task'] or 'no task yet'}; {doing}",
        f"{pace:,.0f} steps/s; {nodes}; {lost}; {moved}",
    ]


class _Screen(Closing):
    """Where the reports are shown: drawn over each other on a terminal, else as lines."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False) if sys.stdout.isatty() else None
        self._live: Live | None = None

    def note(self, text: str) -> None:
        """Show a line that stays."""
        if self._console is None:
            print(text, flush=True)
        else:
            self._console.print(text, soft_wrap=True)

    def show(self, heading: Iterable[str], lines: Sequence[Line]) -> None:
        """Show a report."""
        if self._console is None:
            print("; ".join(heading), *(_plain(line) for line in lines if line.trouble), sep="\n", flush=True)
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        shown = lines[: max(1, self._console.height - 6)]
        more = [Text(f"and {len(lines) - len(shown)} more")] if len(shown) < len(lines) else []
        texts = [Text(each) for each in heading]
        self._live.update(Group(*texts, Text(), fitting(shown, self._console), *more), refresh=True)

    def close(self) -> None:
        """Leave the last table on the screen."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()


def fitting(lines: Sequence[Line], console: Console) -> Table:
    """Return a table with the columns that a screen has room for; what is wrong may take several lines."""
    unbounded = console.options.update(width=1000)
    wrapped = max(0, max((len(line.trouble) for line in lines), default=0) - _LEAST_TROUBLE)
    for left_out in range(len(_LESS) + 1):
        table = _table(lines, [name for name in _COLUMNS if name not in _LESS[:left_out]])
        if Measurement.get(console, unbounded, table).maximum - wrapped <= console.width:
            break
    return table


def _table(lines: Iterable[Line], columns: Iterable[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("node", overflow="ellipsis", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("trouble")
    for line in lines:
        figures = _figures(line)
        style = "bold" if line.trouble else ""
        table.add_row(Text(line.node["node"]), *(figures[name] for name in columns), Text(line.trouble), style=style)
    return table


def _figures(line: Line) -> dict[str, str]:
    """Return the text of each column."""
    node = line.node
    return {
        "workers": f"{node['workers']}",
        "members": f"{node['members']:,}",
        "steps/s": f"{line.pace:,.0f}",
        "of median": "-" if line.relative is None else f"{line.relative:.2f}",
        "busy": f"{line.busy:.0%}",
        "heard": f"{node['heard']:.1f} s",
        "round trip": f"{1e3 * node['round_trip']:.1f} ms",
        "lost": f"{node['lost']:,}",
        "sent": status.size(node["bytes_sent"]),
        "received": status.size(node["bytes_received"]),
    }


def _plain(line: Line) -> str:
    workers = counted(line.node["workers"], "worker")
    return f"  {line.node['node']}: {workers}, {line.pace:,.0f} steps/s, {line.trouble}"
