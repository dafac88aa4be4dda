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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from pyes.config.section import AtLeastOne, Range, parse
from pyes.errors import ConfigError
from pyes.reports import aggregates, figures
from pyes.reports.aggregates import BandKind
from pyes.reports.groups import Group, Order, arrange, group, once
from pyes.reports.runs import Float64Array, Run, XAxis, read
from pyes.reports.runs import title as task_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours that colour-blind readers can tell apart (Okabe & Ito 2008), without yellow.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
_DASHES = ("-", "--", ":", "-.")
_Inches = Annotated[float, Range(2, 50)]  # of a figure: no page has others
#: Characters on an inch: of the legend, of the caption, and of the y label on an inch of the figure's height.
_LEGEND, _CAPTION, _LABEL = 12.5, 15.0, 9.0


@dataclass(frozen=True)
class _Style:
    """How curves are drawn: see `plot`."""

    x: XAxis = "timesteps"
    band: BandKind = "range"
    smooth: int = 1
    logy: bool = False
    title: str | None = None
    legend: bool = False  # for a single group, too
    grows: bool = True  # in height, with the lines of the legend

    def curve(self, run: Run) -> tuple[Float64Array, Float64Array]:
        """Return the curve of a run, smoothed."""
        x, y = run.curve(self.x)
        points = min(self.smooth, len(y))
        return x, np.convolve(y, np.ones(points))[: len(y)] / np.minimum(np.arange(len(y)) + 1, points)


def plot(
    runs: str | Path | Sequence[str | Path | Run],
    output: str | Path,
    x: XAxis = "timesteps",
    band: BandKind = "range",
    *,
    width: float | None = None,
    height: float | None = None,
    title: str | None = None,
    labels: Sequence[str] = (),
    order: Order = "given",
    logy: bool = False,
    smooth: int = 1,
) -> Path:
    """Draw the learning curves of runs, and return the path of the figure.

    Parameters
    ----------
    runs : str, Path, or a sequence of them
        Run directories, or folders with runs somewhere below them (such as a multirun).
    output : str or Path
        .png, .svg or .pdf file to write.
    x : XAxis
        Quantity on the horizontal axis.
    band : BandKind
        ``range``: mean, minimum and maximum; ``iqm``: interquartile mean and its bootstrap interval.
    width, height : float or None
        Size in inches. None: 7.2 by 4.5, and higher where the legend has several lines.
    title : str or None
        Title. None: the task.
    labels : Sequence[str]
        A label for each group, in the order drawn. None given: the settings that distinguish it.
    order : Order
        Order of the groups: ``given``, that of their first runs; ``label``, numbers by value; ``return``, the highest
        mean of the last returns first.
    logy : bool
        Whether the vertical axis is logarithmic.
    smooth : int
        Each point of a curve is the mean of this many points: itself and those before it.

    Raises
    ------
    ConfigError
        No runs given, an argument is out of its bounds, or the figure cannot be written.
    RunDirectoryError
        A run is missing, or has no metrics yet.
    """
    output = figures.check_output(output)
    x, band, order = parse(XAxis, x, "x"), parse(BandKind, band, "band"), parse(Order, order, "order")
    for name, inches in (("width", width), ("height", height)):
        if inches is not None:
            parse(_Inches, inches, f"{name} in inches")
    smooth = parse(Annotated[int, AtLeastOne], smooth, "smooth")
    figures.check_text(title or "", *labels)
    if not runs:
        raise ConfigError("no runs to plot; name one or more run directories")
    groups = arrange(group(once(read(runs))), order, labels)
    if not labels:
        groups = [replace(each, label=figures.verbatim(each.label)) for each in groups]
    style = _Style(x, band, smooth, logy, title, legend=len(groups) > 1 or bool(labels), grows=height is None)
    if logy:
        _check_positive(groups, style)
    size = width or figures.WIDTH, height or figures.HEIGHT
    figures.write(output, lambda figure: _draw(figure, groups, style), *size)
    return output


def _check_positive(groups: Sequence[Group], style: _Style) -> None:
    least = min(style.curve(run)[1].min() for group in groups for run in group.runs)
    if least <= 0:
        raise ConfigError(f"a logarithmic axis has returns above 0 alone, these begin at {least:g}; leave out logy")


def _draw(figure: "Figure", groups: Sequence[Group], style: _Style) -> None:
    runs = [run for group in groups for run in group.runs]
    axes = figure.add_subplot()
    drawn = [_draw_group(axes, group, index, style) for index, group in enumerate(groups)]
    title = figures.verbatim(task_of(runs)) or "Learning curves" if style.title is None else style.title
    axes.set_title(title, loc="left")
    axes.set_ylabel(textwrap.fill(_y_label(runs), int(figure.get_figheight() * _LABEL)))
    axes.margins(y=0.06)
    axes.tick_params(length=3)
    if style.logy:
        _scale_y(axes)
    axes.yaxis.set_major_formatter(figures.format_number)
    _scale_x(axes, style.x, max(float(run.curve(style.x)[0][-1]) for run in runs), figure.get_figwidth())
    caption = _caption([group for group, (_, together) in zip(groups, drawn, strict=True) if together], style)
    if any(len(group.runs) > 1 and not together for group, (_, together) in zip(groups, drawn, strict=True)):
        caption = f"{caption}\nruns that do not overlap are drawn one by one".lstrip()
    _explain(figure, groups if style.legend else [], [line for line, _ in drawn], caption, style.grows)


def _explain(figure: "Figure", groups: Sequence[Group], handles: Sequence[Any], caption: str, grows: bool) -> None:
    """Add the legend of groups, if there are any, and the caption below the axes."""
    characters = int(figure.get_figwidth() * _LEGEND)
    labels = [textwrap.fill(label, characters) for label in _with_counts(groups)]
    columns = max(1, min(len(labels), characters // (max(map(len, labels), default=0) + 8)))
    rows = math.ceil(len(labels) / columns)
    columns = math.ceil(len(labels) / max(rows, 1))
    caption = "\n".join(textwrap.fill(line, int(figure.get_figwidth() * _CAPTION)) for line in caption.splitlines())
    if grows:
        figure.set_figheight(figure.get_figheight() + 0.2 * max(rows - 1, 0))
    if labels or caption:
        legend = figure.legend(
            handles[: len(labels)],
            labels,
            loc="outside lower center",
            ncols=columns,
            title=caption or None,
            borderaxespad=0.4,
            borderpad=0.0,
        )
        legend.get_title().set(fontsize=8, color="#666666", multialignment="center")


def _draw_group(axes: "Axes", group: Group, index: int, how: _Style) -> tuple[Any, bool]:
    """Draw one group; return its line for the legend, and whether that is one line for several runs."""
    style: dict[str, Any] = {
        "color": _COLORS[index % len(_COLORS)],
        "linestyle": _DASHES[index // len(_COLORS) % len(_DASHES)],
    }
    curves = [how.curve(run) for run in group.runs]
    aligned = aggregates.align(curves, [run.ended for run in group.runs])
    if len(curves) == 1 or aligned is None:
        # Runs that do not overlap have no mean; each is drawn alone.
        lines = [_draw_line(axes, *curve, style, dots=True) for curve in curves]
        return lines[0], False
    for curve in curves:
        # A run with one evaluation would be invisible as a line.
        axes.plot(*curve, marker="o" if len(curve[0]) == 1 else "", markersize=2.5, linewidth=0.6, alpha=0.5, **style)
    grid, values = aligned
    summary = aggregates.summarise(values, how.band)
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


def _caption(groups: Sequence[Group], style: _Style) -> str:
    """Say what the lines of groups of several runs are, and what a point is."""
    smoothed = f"each point: mean of the last {style.smooth}" if style.smooth > 1 else ""
    if not groups:
        return smoothed
    counts = {len(group.runs) for group in groups}
    several = "runs" if len(counts) > 1 else f"{min(counts)} runs"
    center = "interquartile mean" if min(counts) > 3 else "mean" if max(counts) <= 3 else "(interquartile) mean"
    said = "mean and range" if style.band == "range" else f"{center} and 95 % bootstrap interval"
    kept = any(run.ended for group in groups for run in group.runs)
    notes = (f"{said} of {several}; thin: single runs", "a run that has ended keeps its last return" * kept, smoothed)
    return "\n".join(filter(None, notes))


def _with_counts(groups: Sequence[Group]) -> list[str]:
    if len({len(group.runs) for group in groups}) == 1:
        return [group.label for group in groups]
    return [f"{group.label} ({len(group.runs)})" for group in groups]


def _scale_y(axes: "Axes") -> None:
    """Make the vertical axis logarithmic, with as many numbers as there is room for."""
    from matplotlib.ticker import LogFormatter

    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(LogFormatter())


def _scale_x(axes: "Axes", x: XAxis, largest: float, width: float) -> None:
    """Choose the unit of the horizontal axis so that its ticks are short."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    unit, name = _unit(x, largest)
    axes.set_xlabel(f"{_X_NAMES[x]}{f' ({name})' if name else ''}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / unit:,.10g}")
    largest = largest or 1.0  # a single generation, counted from 0
    axes.set_xlim(0, largest)
    # Ticks at round multiples of the unit, with room for their numbers.
    steps, bins = [1, 2, 5, 10], max(2, round(1.25 * width))
    ticks = MaxNLocator(nbins=bins, steps=steps, integer=x != "seconds" and unit == 1).tick_values(0, largest / unit)
    axes.xaxis.set_major_locator(MultipleLocator(float(ticks[1] - ticks[0]) * unit))


_X_NAMES = {"timesteps": "timesteps", "seconds": "wall-clock time", "generation": "generation", "episodes": "episodes"}


def _unit(x: XAxis, largest: float) -> tuple[float, str]:
    if x == "seconds":
        return (3600.0, "hours") if largest > 10800 else (60.0, "minutes") if largest > 300 else (1.0, "seconds")
    return (1e9, "billions") if largest >= 1e9 else (1e6, "millions") if largest >= 1e6 else (1.0, "")
