"""A table with one row per group of runs: its final return and how fast it reached given returns.

Owns the numbers of a row and their Markdown. Groups and labels are those of the learning curves. Knows nothing of how
runs are read. Invariant: only evaluations of the center count, never returns of the population.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyes.errors import ConfigError
from pyes.reports.groups import Group, group
from pyes.reports.runs import Run, read, title

_NOTHING = "-"


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum over the runs of a group."""

    median: float
    min: float
    max: float


@dataclass(frozen=True)
class Reached:
    """How fast runs reached a return: medians over the runs that reached it; None where none did."""

    target: float
    reached: int  # runs
    timesteps: float | None
    episodes: float | None
    seconds: float | None


@dataclass(frozen=True)
class TableRow:
    """Numbers of a group; None where it has no evaluation."""

    label: str
    runs: list[str]  # their directories
    seeds: list[int | None]
    final_evaluation: Spread | None
    best_evaluation: Spread | None
    targets: list[Reached]
    timesteps: float  # median of the totals so far
    seconds: float


@dataclass(frozen=True)
class Table:
    """Rows, and the task that all their runs have in common, or an empty string."""

    task: str
    rows: list[TableRow]

    def to_mapping(self) -> dict[str, Any]:
        """Return the table as nested dicts and lists."""
        return dataclasses.asdict(self)

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        targets = [each.target for each in self.rows[0].targets]
        head = [self.task or "runs", "seeds", "final evaluation", "best evaluation"]
        for target in targets:
            head += [f"reached {target:g}", *(f"{each} to {target:g}" for each in ("timesteps", "episodes", "seconds"))]
        head += ["timesteps a run", "seconds a run"]
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *map(_cells, self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table(runs: str | Path | Sequence[str | Path], targets: Iterable[float] = ()) -> Table:
    """Return the table of runs.

    Parameters
    ----------
    runs : str, Path, or a sequence of them
        Run directories, or folders with runs somewhere below them (such as a multirun); finished or in progress.
    targets : Iterable[float]
        Returns whose first time of being reached is reported.

    Raises
    ------
    ConfigError
        No runs given.
    RunDirectoryError
        A run is missing, or has no metrics yet.
    """
    if not runs:
        raise ConfigError("no runs to tabulate; name one or more run directories")
    found = read(runs)
    targets = list(targets)
    return Table(title(found), [_row(each, targets) for each in group(found)])


def _row(group: Group, targets: Sequence[float]) -> TableRow:
    evaluated = [[row["eval_return_mean"] for row in run.evaluations] for run in group.runs]
    return TableRow(
        label=group.label,
        runs=[str(run.path) for run in group.runs],
        seeds=[run.seed for run in group.runs],
        final_evaluation=_spread([each[-1] for each in evaluated if each]),
        best_evaluation=_spread([max(each) for each in evaluated if each]),
        targets=[_reached(group.runs, target) for target in targets],
        timesteps=statistics.median(run.rows[-1]["timesteps"] for run in group.runs),
        seconds=statistics.median(run.rows[-1]["seconds"] for run in group.runs),
    )


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def _reached(runs: Iterable[Run], target: float) -> Reached:
    firsts = [next((row for row in run.evaluations if row["eval_return_mean"] >= target), None) for run in runs]
    rows = [row for row in firsts if row is not None]
    timesteps, episodes, seconds = (
        statistics.median(row[key] for row in rows) if rows else None for key in ("timesteps", "episodes", "seconds")
    )
    return Reached(target, len(rows), timesteps, episodes, seconds)


def _cells(row: TableRow) -> list[str]:
    cells = [row.label.replace("|", "\\|"), str(len(set(row.seeds)))]
    cells += [_of(row.final_evaluation), _of(row.best_evaluation)]
    for each in row.targets:
        cells += [f"{each.reached}/{len(row.runs)}"]
        cells += [_count(each.timesteps), _count(each.episodes), _seconds(each.seconds)]
    return [*cells, _count(row.timesteps), _seconds(row.seconds)]


def _of(spread: Spread | None) -> str:
    """Return the numbers of a spread, rounded so that the largest has four digits."""
    if spread is None:
        return _NOTHING
    largest = max(abs(spread.min), abs(spread.max))
    decimals = min(max(3 - math.floor(math.log10(largest)), 0), 9) if largest else 0
    median, least, greatest = (f"{each:,.{decimals}f}" for each in (spread.median, spread.min, spread.max))
    return median if least == greatest else f"{median} ({least} to {greatest})"


def _count(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.1f}"
