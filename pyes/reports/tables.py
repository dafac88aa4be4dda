"""A table with one row per group of runs: its final return, how sure that is, and how fast it reached given returns.

Owns the numbers of a row and their Markdown. Groups and labels are those of the learning curves. Knows nothing of how
runs are read. Invariant: only evaluations of the center count, never returns of the population.
"""

import dataclasses
import math
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyes.config.section import parse
from pyes.errors import ConfigError
from pyes.reports.aggregates import mean_interval, sign_flip_test
from pyes.reports.groups import Group, group, once
from pyes.reports.runs import Run, read, task_settings, title

_NOTHING = "-"
_WIDTH = 100  # characters of the note
_NOTE = "mean: of the final evaluations, with the 95 % interval of 2,000 bootstrap resamples of the runs."
_TEST_NOTE = (
    "p: how often a mean difference to the first group, over pairs of one task and seed, would be at least this large "
    "if chance gave it its signs (two-sided sign-flip test); n pairs can give no p below 2^(1-n) (5 pairs: 0.0625)."
)
_FAILED = "{}: all episodes of the last evaluation failed in {} of {} runs, which have no final evaluation here."
_NO_PAIRS = "0 pairs: no seed is in both groups, so there is no test."


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
class Interval:
    """Mean over the runs of a group and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """A group against the first one of its task, by pairs of runs with the same seed; None without a pair."""

    to: str  # label
    pairs: int
    difference: float | None  # mean over the pairs, the first group's subtracted
    p: float | None


@dataclass(frozen=True)
class TableRow:
    """Numbers of a group; None where it has no evaluation, or too few for an interval, or is the first of its task."""

    label: str
    runs: list[str]  # their directories
    seeds: list[int | None]
    failed: int  # runs without a final evaluation, since all of its episodes failed
    final_evaluation: Spread | None
    final_mean: Interval | None
    comparison: Comparison | None
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
        """Return the table in Markdown, with a second one of intervals and tests, if there are any, and a note."""
        parts = [self.task, *map(_markdown, self.tables())]
        parts.append("\n".join(textwrap.fill(note, _WIDTH) for note in self.notes()))
        return "\n\n".join(filter(None, parts))

    def tables(self) -> list[list[list[str]]]:
        """Return the cells of the table, and of a second one of intervals and tests if there are any; heads first."""
        targets = [each.target for each in self.rows[0].targets]
        head = ["runs", "seeds", "final evaluation", "best evaluation"]
        for target in targets:
            head += [f"reached {target:g}", *(f"{each} to {target:g}" for each in ("timesteps", "episodes", "seconds"))]
        made = [[[*head, "timesteps", "seconds"], *map(_cells, self.rows)]]
        if any(row.final_mean for row in self.rows):
            head = ["final evaluation", "mean (95 % interval)", *["difference", "p", "pairs"] * self._tested]
            made.append([head, *(_certainty(row)[: len(head)] for row in self.rows)])
        return made

    def notes(self) -> list[str]:
        """Return what to know about the tables."""
        failed = [_FAILED.format(row.label, row.failed, len(row.runs)) for row in self.rows if row.failed]
        if not any(row.final_mean for row in self.rows):
            return failed
        unpaired = any(row.comparison and not row.comparison.pairs for row in self.rows)
        return [*failed, _NOTE, *[_TEST_NOTE] * self._tested, *[_NO_PAIRS] * unpaired]

    @property
    def _tested(self) -> bool:
        return any(row.comparison for row in self.rows)


def table(runs: str | Path | Sequence[str | Path | Run], targets: Iterable[float] | float = ()) -> Table:
    """Return the table of runs.

    Parameters
    ----------
    runs : str, Path, or a sequence of them
        Run directories, or folders with runs somewhere below them (such as a multirun); finished or in progress.
    targets : Iterable[float] or float
        Returns whose first time of being reached is reported.

    Raises
    ------
    ConfigError
        No runs given, or a target is no number.
    RunDirectoryError
        A run is missing, or has no metrics yet.
    """
    if not runs:
        raise ConfigError("no runs to tabulate; name one or more run directories")
    found = once(read(runs))
    given: Any = targets
    given = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    returns: tuple[float, ...] = parse(tuple[float, ...], given, "targets")
    groups = group(found)
    tasks = [task_settings(each.runs[0]) for each in groups]
    firsts = [groups[tasks.index(task)] for task in tasks]  # of each task
    return Table(title(found), [_row(each, first, returns) for each, first in zip(groups, firsts, strict=True)])


def _row(group: Group, first: Group, targets: Sequence[float]) -> TableRow:
    evaluated = [[row["eval_return_mean"] for row in run.comparable] for run in group.runs]
    finals = [run.final for run in group.runs if run.final is not None]
    return TableRow(
        label=group.label,
        runs=[str(run.path) for run in group.runs],
        seeds=[run.seed for run in group.runs],
        failed=sum(run.ends_in_failure for run in group.runs),
        final_evaluation=_spread(finals),
        final_mean=_interval(finals),
        comparison=None if group is first else _comparison(group, first),
        best_evaluation=_spread([max(each) for each in evaluated if each]),
        targets=[_reached(group.runs, target) for target in targets],
        timesteps=statistics.median(run.rows[-1]["timesteps"] for run in group.runs),
        seconds=statistics.median(run.rows[-1]["seconds"] for run in group.runs),
    )


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def _interval(values: Sequence[float]) -> Interval | None:
    return Interval(statistics.fmean(values), *mean_interval(np.array(values))) if len(values) > 1 else None


def _comparison(group: Group, first: Group) -> Comparison:
    finals, others = _finals(group), _finals(first)
    differences = np.array([value - others[seed] for seed, value in finals.items() if seed in others])
    if not len(differences):
        return Comparison(first.label, 0, None, None)
    return Comparison(first.label, len(differences), float(differences.mean()), sign_flip_test(differences))


def _finals(group: Group) -> Mapping[int, float]:
    """Return the final evaluation of each seed; a run without a configuration has none."""
    return {run.seed: run.final for run in group.runs if run.seed is not None and run.final is not None}


def _reached(runs: Iterable[Run], target: float) -> Reached:
    firsts = [next((row for row in run.comparable if row["eval_return_mean"] >= target), None) for run in runs]
    rows = [row for row in firsts if row is not None]
    timesteps, episodes, seconds = (
        statistics.median(row[key] for row in rows) if rows else None for key in ("timesteps", "episodes", "seconds")
    )
    return Reached(target, len(rows), timesteps, episodes, seconds)


def _cells(row: TableRow) -> list[str]:
    cells = [row.label, str(len(set(row.seeds)))]
    cells += [_of(row.final_evaluation), _of(row.best_evaluation)]
    for each in row.targets:
        cells += [f"{each.reached}/{len(row.runs)}"]
        cells += [_count(each.timesteps), _count(each.episodes), _seconds(each.seconds)]
    return [*cells, _count(row.timesteps), _seconds(row.seconds)]


def _certainty(row: TableRow) -> list[str]:
    """Return the cells of a row of the second table."""
    mean, test = row.final_mean, row.comparison
    cells = [row.label, _between(mean.mean, mean.low, mean.high) if mean else _NOTHING]
    if test is None:
        return [*cells, _NOTHING, _NOTHING, _NOTHING]
    if test.difference is None or test.p is None:
        return [*cells, _NOTHING, _NOTHING, "0"]
    return [*cells, f"{test.difference:+z,.{_decimals(test.difference)}f}", f"{test.p:.3g}", str(test.pairs)]


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as a table, the first line as its head, all columns but the first to the right."""
    lines = [list(map(escaped, cells)) for cells in lines]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    first, *others = widths
    rule = ["-" * first, *("-" * (width - 1) + ":" for width in others)]
    texts = [[cells[0].ljust(first), *map(str.rjust, cells[1:], others)] for cells in (lines[0], rule, *lines[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in texts)


def _of(spread: Spread | None) -> str:
    return _NOTHING if spread is None else _between(spread.median, spread.min, spread.max)


def _between(center: float, low: float, high: float) -> str:
    """Return the numbers of a spread, rounded so that the largest has four digits."""
    decimals = _decimals(low, high)
    text, least, greatest = (f"{each:,.{decimals}f}" for each in (center, low, high))
    return text if least == greatest else f"{text} ({least} to {greatest})"


def _decimals(*values: float) -> int:
    """Return the decimals with which the largest of some numbers has four digits; at most nine."""
    largest = max(map(abs, values))
    return min(max(3 - math.floor(math.log10(largest)), 0), 9) if largest else 0


def escaped(label: str) -> str:
    """Return a label as the text of a cell."""
    return label.replace("|", "\\|")


def _count(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.1f}"
