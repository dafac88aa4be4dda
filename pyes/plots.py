"""Learning curves of runs as one figure.

Owns the reading of metrics.csv for drawing, the grouping of runs, and the lines and bands of the figure. Knows nothing
of a run in progress. Invariant: equal runs give an equal picture.

A *group* is runs whose configurations differ in nothing but the seed: a mean line and a band from the least to the
greatest of them, drawn where all of them have data.
"""

import csv
import importlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pyes import figures
from pyes.errors import ConfigError, RunDirectoryError
from pyes.metrics import read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

XAxis = Literal["timesteps", "seconds", "generation", "episodes"]

#: What may differ between the runs of one group.
_NOT_A_SETTING = ("seed", "run_dir", "resume", "logger", "snapshot")
#: Keys whose value speaks for itself.
_NAMES = ("name", "env_id", "run")
#: Colours that stay apart for colour-blind readers (Okabe & Ito 2008), the darkest yellow left out.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
_DASHES = ("-", "--", ":", "-.")

Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Run:
    """One run's curve: x ascending, and the returns there."""

    path: Path
    settings: dict[str, Any]  # dotted keys
    seed: Any
    x: Float64Array
    y: Float64Array
    evaluated: bool  # whether y are evaluations of the center, not means of the population


def plot(runs: Sequence[str | Path], output: str | Path, x: XAxis = "timesteps") -> Path:
    """Draw the learning curves of runs, and return the path of the figure.

    Parameters
    ----------
    runs      run directories, or folders with runs somewhere below (of a multirun)
    output    .png, .svg or .pdf file to write
    x         timesteps, seconds, generation or episodes: what the horizontal axis counts

    Raises
    ------
    ConfigError          no runs given, ``x`` or the suffix is unknown, or the figure cannot be written
    RunDirectoryError    a run is missing, or has no metrics yet
    """
    output = figures.check_output(output)
    if x not in get_args(XAxis):
        raise ConfigError(f"x is {x!r}, expected one of {', '.join(get_args(XAxis))}")
    if not runs:
        raise ConfigError("no runs to plot; name one or more run directories")
    groups = _group(_read_all([Path(run) for run in runs], x))
    figures.write(output, lambda figure: _draw(figure, groups, x))
    return output


# Reading


def _read_all(paths: Iterable[Path], x: XAxis) -> list[_Run]:
    runs: dict[Path, _Run] = {}
    for path in paths:
        for run in _read_below(path, x):
            runs.setdefault(run.path.resolve(), run)  # a run that is named twice counts once
    return list(runs.values())


def _read_below(path: Path, x: XAxis) -> list[_Run]:
    """Read a run, or all runs below a folder that is none itself."""
    if not path.is_dir():
        raise RunDirectoryError(f"no run directory at {path}; name one that pyes train has printed")
    if (path / "metrics.csv").exists():
        return [_read(path, x)]
    found = sorted((file.parent for file in path.rglob("metrics.csv")), key=_natural)
    if not found:
        raise RunDirectoryError(f"no metrics.csv in or below {path}; name a directory that pyes train has printed")
    # Of a sweep still under way, the runs without a first generation are not there yet.
    begun = [run for run in found if _rows(run)]
    if not begun:
        raise RunDirectoryError(f"none of the {len(found)} runs below {path} has finished a generation")
    return [_read(run, x) for run in begun]


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort key by which run 10 follows run 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path)) if part]


def _read(path: Path, x: XAxis) -> _Run:
    rows = _rows(path)
    if not rows:
        raise RunDirectoryError(
            f"{path / 'metrics.csv'} has no generations yet; wait for the first one, or train again"
        )
    config = _config(path)
    evaluations = [(row[x], row["eval_return_mean"]) for row in rows if "eval_return_mean" in row]
    points = evaluations or [(row[x], row["return_mean"]) for row in rows]
    curve = np.array(sorted(dict(points).items()), np.float64)
    settings = {key: value for key, value in _flat(config).items() if key.partition(".")[0] not in _NOT_A_SETTING}
    return _Run(path, settings or {"run": path.name}, config.get("seed"), curve[:, 0], curve[:, 1], bool(evaluations))


def _rows(path: Path) -> list[dict[str, float]]:
    """Return the finite numbers of metrics.csv, row by row; a row that lacks some that are needed is left out."""
    file = path / "metrics.csv"
    try:
        texts = read_rows(file)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunDirectoryError(f"cannot read {file}: {error}; train again or restore it from a copy") from error
    needed = {*get_args(XAxis), "return_mean"}
    if texts and not needed <= texts[0].keys():
        missing = ", ".join(sorted(needed - texts[0].keys()))
        raise RunDirectoryError(f"{file} has no column {missing}; expected the metrics of a pyes run")
    rows = (_numbers(text) for text in texts)
    return [row for row in rows if needed <= row.keys()]


def _numbers(texts: Mapping[str, str | None]) -> dict[str, float]:
    numbers = {}
    for key, text in texts.items():
        try:
            number = float(text or "nan")
        except (TypeError, ValueError):
            continue  # a digest, or the rest of a damaged row
        if math.isfinite(number):
            numbers[key] = number
    return numbers


def _config(path: Path) -> dict[str, Any]:
    """Return the configuration a run was trained with, from the best source there is; empty without any."""
    try:
        if (path / "config.json").exists():
            return dict(json.loads((path / "config.json").read_bytes()))
        if (path / ".hydra" / "config.yaml").exists():
            yaml = importlib.import_module("yaml")  # comes with Hydra, and so do these files
            return dict(yaml.safe_load((path / ".hydra" / "config.yaml").read_bytes()))
        if (path / "policy.json").exists():
            policy = json.loads((path / "policy.json").read_bytes())
            return {key: policy[key] for key in ("seed", "task", "network") if key in policy}
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise RunDirectoryError(f"the configuration of {path} is damaged: {reason}; restore it from a copy") from error
    return {}


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


# Grouping and naming


def _group(runs: Iterable[_Run]) -> list[list[_Run]]:
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.settings, sort_keys=True, default=str), []).append(run)
    return list(groups.values())


def _labels(groups: Sequence[list[_Run]]) -> list[str]:
    """Name each group by the settings in which the groups differ."""
    settings = [group[0].settings for group in groups]
    keys = _telling(settings)
    prefixes = _prefixes(keys)
    return [", ".join(prefixes[key] + _text(each.get(key)) for key in keys) for each in settings]


def _telling(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that differ; a name (of a task, an algorithm) stands for its section where that is enough."""
    every = dict.fromkeys(key for each in settings for key in each)
    differing = [key for key in every if len({_text(each.get(key)) for each in settings}) > 1]
    names = [key for key in differing if key.rpartition(".")[2] in _NAMES]
    named = {key.split(".")[0] for key in names}
    brief = [key for key in differing if key in names or key.split(".")[0] not in named]
    distinct = {tuple(_text(each.get(key)) for key in brief) for each in settings}
    return brief if len(distinct) == len(settings) else differing


def _prefixes(keys: Sequence[str]) -> dict[str, str]:
    """Return what to write before each key's value: the key's last part where that is enough, nothing for a name."""
    last = [key.rpartition(".")[2] for key in keys]
    return {
        key: "" if part in _NAMES else f"{key if last.count(part) > 1 else part}="
        for key, part in zip(keys, last, strict=True)
    }


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, default=str).strip('"')


def _title(runs: Sequence[_Run]) -> str:
    names = ("task.factory", "task.env_id", "task.name")
    tasks = {next((str(run.settings[key]) for key in names if run.settings.get(key)), "") for run in runs}
    return tasks.pop() if len(tasks) == 1 else "Learning curves"


# Drawing


def _draw(figure: "Figure", groups: Sequence[list[_Run]], x: XAxis) -> None:
    runs = [run for group in groups for run in group]
    axes = figure.add_subplot()
    handles = [_draw_group(axes, group, index) for index, group in enumerate(groups)]
    axes.set_title(_title(runs) or "Learning curves", loc="left")
    axes.set_ylabel(_y_label(runs))
    axes.margins(y=0.06)
    axes.tick_params(length=3)
    axes.yaxis.set_major_formatter(figures.format_number)
    _scale_x(axes, x, max(float(run.x[-1]) for run in runs))
    _explain(figure, axes, groups, handles)


def _explain(figure: "Figure", axes: "Axes", groups: Sequence[list[_Run]], handles: Sequence[Any]) -> None:
    """Say what lines and bands are: below the axes, where nothing is covered, or in the corner for a single group."""
    caption = _caption(groups)
    if len(groups) > 1:
        labels = _with_counts(_labels(groups), groups)
        columns = max(1, min(len(labels), 90 // (max(map(len, labels)) + 8)))
        rows = math.ceil(len(labels) / columns)
        figure.set_size_inches(figures.WIDTH, figures.HEIGHT + 0.2 * (rows - 1))
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=caption or None)
        legend.get_title().set(fontsize=8, color="#666666")
    elif caption:
        figures.set_caption(axes, caption)


def _draw_group(axes: "Axes", group: Sequence[_Run], index: int) -> Any:
    """Draw one group, and return the line that stands for it in the legend."""
    style = {"color": _COLORS[index % len(_COLORS)], "linestyle": _DASHES[index // len(_COLORS) % len(_DASHES)]}
    start = max(float(run.x[0]) for run in group)
    stop = min(float(run.x[-1]) for run in group)
    if len(group) == 1 or start >= stop:
        # Runs that never overlap have no mean; each is drawn by itself.
        lines = [_draw_line(axes, run.x, run.y, style) for run in group]
        return lines[0]
    everywhere = np.unique(np.concatenate([run.x for run in group]))
    grid = everywhere[(everywhere >= start) & (everywhere <= stop)]
    curves = np.array([np.interp(grid, run.x, run.y) for run in group])
    axes.fill_between(grid, curves.min(axis=0), curves.max(axis=0), color=style["color"], alpha=0.18, linewidth=0)
    return _draw_line(axes, grid, curves.mean(axis=0), style)


def _draw_line(axes: "Axes", x: Float64Array, y: Float64Array, style: Mapping[str, Any]) -> Any:
    # Few points are shown as such: what lies between them is not known, and a single one would be no line at all.
    marker = "o" if len(x) <= 25 else ""
    return axes.plot(x, y, marker=marker, markersize=3.5, linewidth=1.8 if len(x) < 300 else 1.0, **style)[0]


def _y_label(runs: Sequence[_Run]) -> str:
    kinds = {run.evaluated for run in runs}
    if kinds == {True}:
        return "return of the center (evaluation mean)"
    return "mean return of the population" if kinds == {False} else "mean return"


def _caption(groups: Sequence[list[_Run]]) -> str:
    counts = {len(group) for group in groups}
    if counts == {1}:
        return ""
    return f"mean and range of {counts.pop()} runs" if len(counts) == 1 else "mean and range of runs"


def _with_counts(labels: Sequence[str], groups: Sequence[list[_Run]]) -> list[str]:
    if len({len(group) for group in groups}) == 1:
        return list(labels)
    return [f"{label} ({len(group)})" for label, group in zip(labels, groups, strict=True)]


def _scale_x(axes: "Axes", x: XAxis, largest: float) -> None:
    """Choose the unit of the horizontal axis so that its ticks are short."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    unit, name = _unit(x, largest)
    axes.set_xlabel(f"{_X_NAMES[x]}{f' ({name})' if name else ''}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / unit:,.10g}")
    largest = largest or 1.0  # a single generation, counted from 0
    axes.set_xlim(0, largest * 1.02)
    # Round numbers of the unit, not of what is below it.
    steps = [1, 2, 5, 10]
    ticks = MaxNLocator(nbins=9, steps=steps, integer=x != "seconds" and unit == 1).tick_values(0, largest / unit)
    axes.xaxis.set_major_locator(MultipleLocator(float(ticks[1] - ticks[0]) * unit))


_X_NAMES = {"timesteps": "timesteps", "seconds": "wall-clock time", "generation": "generation", "episodes": "episodes"}


def _unit(x: XAxis, largest: float) -> tuple[float, str]:
    if x == "seconds":
        return (3600.0, "hours") if largest > 10800 else (60.0, "minutes") if largest > 300 else (1.0, "seconds")
    return (1e9, "billions") if largest >= 1e9 else (1e6, "millions") if largest >= 1e6 else (1.0, "")
