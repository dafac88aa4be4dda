"""What the page shows of runs as JSON values: state, curves, settings, nodes, log.

Reads the files of runs, which may be growing, damaged or gone: then the value says so in one line. Knows neither the
server nor individuals.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pyes import config as configuration
from pyes.errors import PyesError, RunDirectoryError
from pyes.reports import aggregates, runs
from pyes.reports.groups import group
from pyes.reports.runs import Run, XAxis
from pyes.run.directory import RunDirectory
from pyes.run.metrics import number, read_rows
from pyes.system import locks

_LOG_BYTES = 2**15  # at the end of the log
_NODES_BYTES = 2**16  # at the end of the table of nodes, or more
_STATE_BYTES = 2**14  # at the end of the metrics: some rows
_GENERATIONS = 10  # a node without a row in so many is gone
_MOST_POINTS = 2000  # of a curve: no screen is wider
#: Columns of metrics.csv that the page draws, by chart.
CHARTS = {
    "return": ("return_max", "return_mean", "return_min", "eval_return_mean"),
    "steps": ("sigma", "learning_rate"),
    "norms": ("theta_norm", "gradient_norm"),
    "speed": ("steps_per_second",),
    "length": ("length_mean",),
}


def found(paths: Sequence[Path]) -> list[Path]:
    """Return the run directories that paths name: themselves, or those somewhere below them.

    Raises
    ------
    RunDirectoryError
        There is none.
    """
    every = []
    for path in paths:
        if any((path / name).exists() for name in ("journal.bin", "metrics.csv", "config.json")):
            every.append(path)
            continue
        if not path.is_dir():
            raise RunDirectoryError(f"no run directory at {path}; name one that pyes train has printed")
        below = runs.folders_with(path, "journal.bin", "metrics.csv")
        if not below:
            raise RunDirectoryError(f"no run in or below {path}; name a directory that pyes train has printed")
        every += sorted(below, key=runs.natural)
    return list(dict.fromkeys(path.resolve() for path in every))


def states(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return how far runs are."""
    return [state(number, path, name) for number, (path, name) in enumerate(zip(paths, names(paths), strict=True))]


def names(paths: Sequence[Path]) -> list[str]:
    """Return what runs are called: by their folders or, where two have one name, by the paths from where they part."""
    if len({path.name for path in paths}) == len(paths):
        return [path.name for path in paths]
    base = os.path.commonpath(paths)
    return [os.path.relpath(path, base) for path in paths]


def state(number: int, path: Path, name: str) -> dict[str, Any]:
    """Return how far a run is; ``error`` says what is wrong with it, if anything is."""
    said: dict[str, Any] = {"number": number, "name": name, "path": str(path), "error": None, "generations": 0}
    try:
        if not path.exists():
            raise PyesError(f"{path} is gone")
        directory = RunDirectory(path)
        said["running"] = _held(directory.lock_file)
        said["bytes"] = directory.journal.stat().st_size if directory.journal.exists() else 0
        rows = read_rows(directory.metrics, _STATE_BYTES) if directory.metrics.exists() else []
        if rows:
            columns = ("generation", "timesteps", "seconds", "steps_per_second")
            said["last"] = {column: _number(rows[-1].get(column)) for column in columns}
            generation = said["last"]["generation"]
            said["generations"] = 0 if generation is None else int(generation) + 1
    except (PyesError, OSError) as error:
        said["error"] = " ".join(str(error).split())
    return said


def _held(lock: Path) -> bool:
    """Whether a process writes the run; not if that cannot be told."""
    try:
        with locks.unheld(lock):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def curves(paths: Sequence[Path], x: XAxis) -> dict[str, Any]:
    """Return the learning curves of all runs, in groups of equal settings, each with a line and a band."""
    read: list[Run] = []
    left_out = []
    for path in paths:
        try:
            read += _read(path)
        except (PyesError, OSError) as error:
            left_out.append(str(error))
    called = dict(zip(paths, names(paths), strict=True))
    groups = [_group(each.label, each.runs, x, called) for each in group(read)] if read else []
    return {"x": x, "groups": groups, "left_out": left_out}


#: What was read of a run, with sizes and times of the files that it is from: most of many runs stay as they are.
_known: dict[Path, tuple[list[tuple[int, int]], list[Run]]] = {}


def _read(path: Path) -> list[Run]:
    """Return what `pyes.read` does, anew where a file has changed."""
    directory = RunDirectory(path)
    files = [file.stat() for file in (directory.metrics, directory.journal, directory.config) if file.exists()]
    now = [(file.st_size, file.st_mtime_ns) for file in files]
    before, found = _known.get(path, ([], []))
    if not now or now != before:
        found = runs.read(path)
        _known[path] = now, found
    return found


def _group(label: str, members: Sequence[Run], x: XAxis, called: Mapping[Path, str]) -> dict[str, Any]:
    """Return the line of each run and, where there are several that overlap, their mean and range."""
    lines = [run.curve(x) for run in members]
    drawn: dict[str, Any] = {
        "label": label,
        "evaluated": all(bool(run.evaluations) for run in members),
        "runs": [
            {"name": called.get(run.path, run.path.name), "x": _values(_thinned(at)), "y": _values(_thinned(y))}
            for run, (at, y) in zip(members, lines, strict=True)
        ],
    }
    aligned = aggregates.align(lines, [run.ended for run in members]) if len(lines) > 1 else None
    if aligned is not None:
        grid, values = aligned
        band = aggregates.summarise(values, "range")
        parts = {"x": grid, "line": band.line, "low": band.low, "high": band.high}
        drawn["band"] = {name: _values(each) for name, each in parts.items()}
    return drawn


def _thinned(points: Any) -> Any:
    """Return each of so many points and the last one, so that a growing curve stays as it is for long."""
    stride = -(-len(points) // _MOST_POINTS) or 1
    return points if stride == 1 else [*points[:-1:stride], points[-1]]


def details(path: Path, others: Sequence[Path]) -> dict[str, Any]:
    """Return a run's metrics by generation, settings, what differs from other runs, nodes, and the end of its log.

    Raises
    ------
    RunDirectoryError
        One of its tables is damaged.
    """
    directory = RunDirectory(path)
    settings = _settings(directory)
    return {
        "metrics": _metrics(directory),
        "settings": settings,
        "differences": _differences(settings, [_settings(RunDirectory(each)) for each in others]),
        "nodes": _nodes(directory),
        "log": _log(directory),
    }


def _metrics(directory: RunDirectory) -> dict[str, Any]:
    if not directory.metrics.exists():
        return {}
    rows = read_rows(directory.metrics)
    indices = range(len(rows))
    evaluated = [index for index in indices if rows[index].get("eval_return_mean")]
    kept = [rows[index] for index in sorted({*_thinned(indices), *_thinned(evaluated)})]
    columns = ["generation", "timesteps", "episodes", "seconds", *(each for chart in CHARTS.values() for each in chart)]
    return {column: [_number(row.get(column)) for row in kept] for column in columns}


def _settings(directory: RunDirectory) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(directory.config.read_bytes())
        return configuration.flat(found) if isinstance(found, dict) else {}
    return {}


def _differences(settings: dict[str, Any], others: Sequence[dict[str, Any]]) -> list[str]:
    """Return the keys whose values differ from another run's, but for where they are."""
    keys = {key for other in others for key in settings.keys() | other.keys() if settings.get(key) != other.get(key)}
    return sorted(keys - {"run_dir", "resume"})


def _node_rows(directory: RunDirectory, most_bytes: int) -> list[dict[str, str]]:
    return [row for row in read_rows(directory.nodes, most_bytes) if "node" in row]


def _before(rows: Sequence[dict[str, str]]) -> float:
    """Return the generation before the last ones."""
    return number(rows[-1]["generation"]) - _GENERATIONS


def _nodes(directory: RunDirectory) -> list[dict[str, Any]]:
    """Return the last row of each node that took part in the last generations."""
    if not directory.nodes.exists():
        return []
    size, rows = _NODES_BYTES, _node_rows(directory, _NODES_BYTES)
    while rows and number(rows[0]["generation"]) > _before(rows) and size < directory.nodes.stat().st_size:
        size *= 2
        rows = _node_rows(directory, size)
    first = _before(rows) if rows else 0.0
    last = {row["node"]: row for row in rows if number(row["generation"]) > first}
    return [{key: value if key == "node" else _number(value) for key, value in row.items()} for row in last.values()]


def _log(directory: RunDirectory) -> str:
    if not directory.log.exists():
        return ""
    with open(directory.log, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LOG_BYTES))
        text = file.read().decode(errors="replace")
    return text if size <= _LOG_BYTES else text.partition("\n")[2]


def _number(text: Any) -> float | None:
    with suppress(TypeError, ValueError):
        number = float(text)
        return number if math.isfinite(number) else None
    return None


def _values(array: Any) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in np.asarray(array).tolist()]
