"""Learning curves of runs in one figure.

Owns the lines and bands of the figure, its axes and its legend. Knows nothing of a run in progress. Invariant: equal
runs give an equal picture.

A group of several runs is a line and a band, drawn where all of its runs have data, over a thin line for each run. A
run that has used up a budget, or reached its ``target_return``, keeps its last value from there on; otherwise the line
would end with the run whose episodes are the shortest, or fall when only the slower runs remain. The caption says so.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyes.errors import ConfigError
from pyes.reports import aggregates, figures
from pyes.reports.aggregates import BANDS, BandKind
from pyes.reports.groups import Group, group
from pyes.reports.runs import X_AXES, Float64Array, Run, XAxis, read, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours that colour-blind readers can tell apart (Okabe & Ito 2008), without yellow.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
_DASHES = ("-", "--", ":", "-.")
_LEGEND_WIDTH = 90  # characters


def plot(runs: Sequence[str | Path], output: str | Path, x: XAxis = "timesteps", band: BandKind = "range") -> Path:
    """Draw the learning curves of runs, and return the path of the figure.

    Parameters
    ----------
    runs : Sequence[str or Path]
        Run directories, or folders with runs somewhere below them (such as a multirun).
    output : str or Path
        .png, .svg or .pdf file to write.
    x : XAxis
        Quantity on the horizontal axis.
    band : BandKind
        ``range``: mean, minimum and maximum; ``iqm``: interquartile mean and its bootstrap interval.

    Raises
    ------
    ConfigError
        No runs given, ``x``, ``band`` or the suffix is unknown, or the figure cannot be written.
    RunDirectoryError
        A run is missing, or has no metrics yet.
    """
    output = figures.check_output(output)
    for name, value, allowed in (("x", x, X_AXES), ("band", band, BANDS)):
        if value not in allowed:
            raise ConfigError(f"{name} is {value!r}, expected one of {', '.join(allowed)}")
    if not runs:
        raise ConfigError("no runs to plot; name one or more run directories")
    groups = group(read(runs))
    figures.write(output, lambda figure: _draw(figure, groups, x, band))
    return output


def _draw(figure: "Figure", groups: Sequence[Group], x: XAxis, band: BandKind) -> None:
    runs = [run for group in groups for run in group.runs]
    axes = figure.add_subplot()
    drawn = [_draw_group(axes, group, index, x, band) for index, group in enumerate(groups)]
    axes.set_title(title(runs) or "Learning curves", loc="left")
    axes.set_ylabel(_y_label(runs))
    axes.margins(y=0.06)
    axes.tick_params(length=3)
    axes.yaxis.set_major_formatter(figures.format_number)
    _scale_x(axes, x, max(float(run.curve(x)[0][-1]) for run in runs))
    caption = _caption([group for group, (_, together) in zip(groups, drawn, strict=True) if together], band)
    if any(len(group.runs) > 1 and not together for group, (_, together) in zip(groups, drawn, strict=True)):
        caption = f"{caption}\nruns that do not overlap are drawn one by one".lstrip()
    _explain(figure, axes, groups, [line for line, _ in drawn], caption)


def _explain(figure: "Figure", axes: "Axes", groups: Sequence[Group], handles: Sequence[Any], caption: str) -> None:
    """Add the legend below the axes, or a caption in the corner for a single group."""
    if len(groups) > 1:
        labels = [textwrap.fill(label, _LEGEND_WIDTH) for label in _with_counts(groups)]
        columns = max(1, min(len(labels), _LEGEND_WIDTH // (max(map(len, labels)) + 8)))
        rows = math.ceil(len(labels) / columns)
        columns = math.ceil(len(labels) / rows)
        figure.set_size_inches(figures.WIDTH, figures.HEIGHT + 0.2 * (rows - 1))
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=caption or None)
        legend.get_title().set(fontsize=8, color="#666666", multialignment="center")
    elif caption:
        figures.set_caption(axes, caption)


def _draw_group(axes: "Axes", group: Group, index: int, x: XAxis, band: BandKind) -> tuple[Any, bool]:
    """Draw one group; return its line for the legend, and whether that is one line for several runs."""
    style: dict[str, Any] = {
        "color": _COLORS[index % len(_COLORS)],
        "linestyle": _DASHES[index // len(_COLORS) % len(_DASHES)],
    }
    curves = [run.curve(x) for run in group.runs]
    aligned = aggregates.align(curves, [run.ended for run in group.runs])
    if len(curves) == 1 or aligned is None:
        # Runs that do not overlap have no mean; each is drawn alone.
        lines = [_draw_line(axes, *curve, style, dots=True) for curve in curves]
        return lines[0], False
    for curve in curves:
        # A run with one evaluation would be invisible as a line.
        axes.plot(*curve, marker="o" if len(curve[0]) == 1 else "", markersize=2.5, linewidth=0.6, alpha=0.5, **style)
    grid, values = aligned
    summary = aggregates.summarise(values, band)
    axes.fill_between(grid, summary.low, summary.high, color=style["color"], alpha=0.18, linewidth=0)
    return _draw_line(axes, grid, summary.line, style, dots=all(len(x) == len(grid) for x, _ in curves)), True


def _draw_line(axes: "Axes", x: Float64Array, y: Float64Array, style: Mapping[str, Any], dots: bool) -> Any:
    # Few points get markers: a single one would be invisible as a line.
    marker = "o" if dots and len(x) <= 25 else ""
    width = 1.8 if len(x) < 300 else 1.0
    # Not clipped: the axis ends with the last point, whose marker would be cut in half.
    return axes.plot(x, y, marker=marker, markersize=3.5, linewidth=width, clip_on=False, zorder=3, **style)[0]


def _y_label(runs: Sequence[Run]) -> str:
    kinds = {bool(run.evaluations) for run in runs}
    if kinds == {True}:
        return "return of the center (evaluation mean)"
    return "mean return of the population" if kinds == {False} else "mean return"


def _caption(groups: Sequence[Group], band: BandKind) -> str:
    """Say what the lines of groups of several runs are."""
    if not groups:
        return ""
    counts = {len(group.runs) for group in groups}
    several = "runs" if len(counts) > 1 else f"{min(counts)} runs"
    center = "interquartile mean" if min(counts) > 3 else "mean" if max(counts) <= 3 else "(interquartile) mean"
    said = "mean and range" if band == "range" else f"{center} and 95 % bootstrap interval"
    kept = any(run.ended for group in groups for run in group.runs)
    return f"{said} of {several}; thin: single runs" + "\na run that has ended keeps its last return" * kept


def _with_counts(groups: Sequence[Group]) -> list[str]:
    if len({len(group.runs) for group in groups}) == 1:
        return [group.label for group in groups]
    return [f"{group.label} ({len(group.runs)})" for group in groups]


def _scale_x(axes: "Axes", x: XAxis, largest: float) -> None:
    """Choose the unit of the horizontal axis so that its ticks are short."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    unit, name = _unit(x, largest)
    axes.set_xlabel(f"{_X_NAMES[x]}{f' ({name})' if name else ''}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / unit:,.10g}")
    largest = largest or 1.0  # a single generation, counted from 0
    axes.set_xlim(0, largest)
    # Ticks at round multiples of the unit.
    steps = [1, 2, 5, 10]
    ticks = MaxNLocator(nbins=9, steps=steps, integer=x != "seconds" and unit == 1).tick_values(0, largest / unit)
    axes.xaxis.set_major_locator(MultipleLocator(float(ticks[1] - ticks[0]) * unit))


_X_NAMES = {"timesteps": "timesteps", "seconds": "wall-clock time", "generation": "generation", "episodes": "episodes"}


def _unit(x: XAxis, largest: float) -> tuple[float, str]:
    if x == "seconds":
        return (3600.0, "hours") if largest > 10800 else (60.0, "minutes") if largest > 300 else (1.0, "seconds")
    return (1e9, "billions") if largest >= 1e9 else (1e6, "millions") if largest >= 1e6 else (1.0, "")
