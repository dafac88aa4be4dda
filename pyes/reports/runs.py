"""Reads the configurations and curves of runs, finished or in progress, from their directories.

Owns the reading of metrics.csv and of the configuration for comparisons. Knows nothing of what is drawn or tabulated.
Invariant: a `Run` has at least one generation.
"""

import contextlib
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pyes import config as configuration
from pyes.errors import ConfigError, JournalError, RunDirectoryError
from pyes.reports import wording
from pyes.run import evaluations, journal
from pyes.run.directory import RunDirectory
from pyes.run.history import task_began
from pyes.run.metrics import COLUMNS, read_rows
from pyes.system.files import READABLE
from pyes.system.text import literal

XAxis = Literal["timesteps", "seconds", "generation", "episodes"]
X_AXES: tuple[XAxis, ...] = get_args(XAxis)

#: Keys about where a run is stored and what it writes, left out of comparisons.
_SILENT = ("run_dir", "resume", "force", "logger", "snapshot")
_BUDGETS = ("generations", "timesteps", "time_limit", "target_return")

Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """One run, with its metrics: ``run["return_mean"]`` is a column, ``run.columns`` has them all.

    Attributes
    ----------
    path : Path
        Run directory.
    seed : int or None
        Its seed; None if the run has no configuration.
    settings : Mapping[str, Any]
        Settings that affect theta, with dotted keys, null values left out; empty without a configuration. In a
        run that went on by force the entry ``"changed"`` names those that had other values before some generation.
    conditions : Mapping[str, Any]
        Settings that do not: budgets, cluster, evaluation.
    rows : Sequence[Mapping[str, float]]
        The finite numbers of each generation; at least one.
    initial : float or None
        Mean return in the evaluation of the initial center; None if there was none.
    task_began : int
        Generation from which on the task is that of now, which evaluations of another one cannot be compared with.
    theta_hash : str
        Of the center after the last generation.
    """

    path: Path
    seed: int | None
    settings: Mapping[str, Any]
    conditions: Mapping[str, Any]
    rows: Sequence[Mapping[str, float]]
    initial: float | None = None
    task_began: int = 0
    theta_hash: str = ""

    def __getitem__(self, name: str) -> Float64Array:
        """Return a column of metrics.csv."""
        if name not in self.columns:
            raise KeyError(f"there is no column {name!r}; expected one of {', '.join(self.columns)}")
        return self.columns[name]

    @cached_property
    def columns(self) -> dict[str, Float64Array]:
        """All columns of metrics.csv but ``theta_hash``, float64 (generations,), with NaN where there is no number."""
        names = dict.fromkeys((*COLUMNS, *(key for row in self.rows for key in row)))
        del names["theta_hash"]
        return {name: np.array([row.get(name, math.nan) for row in self.rows]) for name in names}

    @property
    def evaluations(self) -> list[Mapping[str, float]]:
        """The rows that have an evaluation of the center, of which some episode did not fail."""
        return [row for row in self.rows if math.isfinite(row.get("eval_return_mean", math.nan))]

    @property
    def comparable(self) -> list[Mapping[str, float]]:
        """The evaluations in the task of now, with columns of costs; that of the initial center has cost nothing."""
        first: list[Mapping[str, float]] = []
        if self.initial is not None and not self.task_began:
            first = [{"eval_return_mean": self.initial, "timesteps": 0.0, "episodes": 0.0, "seconds": 0.0}]
        return [*first, *(row for row in self.evaluations if row["generation"] >= self.task_began)]

    @property
    def last_evaluation(self) -> Mapping[str, float] | None:
        """The row with the last evaluation in the task of now, whose mean is NaN if all episodes failed, or None."""
        of_now = (row for row in reversed(self.rows) if row["generation"] >= self.task_began)
        return next((row for row in of_now if "eval_return_mean" in row), None)

    @property
    def ends_in_failure(self) -> bool:
        """Whether all episodes of the last evaluation failed, so that no return is known of the last center."""
        return self.last_evaluation is not None and math.isnan(self.last_evaluation["eval_return_mean"])

    @property
    def final(self) -> float | None:
        """Mean return of the last evaluation; None without one, or if it failed."""
        last = self.last_evaluation
        return None if last is None or self.ends_in_failure else last["eval_return_mean"]

    @property
    def target(self) -> float | None:
        """The ``target_return`` that ended the run, or None."""
        target = self.conditions.get("target_return")
        last = self.rows[-1].get("eval_return_mean", -math.inf)
        return float(target) if target is not None and last >= target else None

    @property
    def ended(self) -> bool:
        """Whether the run has used up a budget: generations, timesteps, nine tenths of its time, or its target."""
        last, budgets = self.rows[-1], self.conditions
        used: dict[str, float] = {
            "generations": last["generation"] + 1,
            "timesteps": last["timesteps"],
            "time_limit": last["seconds"] / 0.9,
        }
        return self.target is not None or any(key in budgets and used[key] >= budgets[key] for key in used)

    def curve(self, x: XAxis) -> tuple[Float64Array, Float64Array]:
        """Return ascending x and the returns: evaluations of the center, or else means of the population.

        A row's evaluation is of the center after its update, which is that of the next generation. Before them
        is the evaluation of the initial center, at 0.
        """
        updated = 1 if x == "generation" else 0
        points = [(row[x] + updated, row["eval_return_mean"]) for row in self.evaluations]
        if points and self.initial is not None:
            points.append((0.0, self.initial))
        points = points or [(row[x], row["return_mean"]) for row in self.rows]
        curve = np.array(sorted(dict(points).items()), np.float64)
        return curve[:, 0], curve[:, 1]


def read(runs: str | Path | Iterable[str | Path | Run]) -> list[Run]:
    """Read runs, finished or in progress; one that is named twice is there once.

    Parameters
    ----------
    runs : str, Path, or several of them
        Run directories, or folders with runs somewhere below them (such as a multirun). Those that were read before are
        taken as they are.

    Raises
    ------
    RunDirectoryError
        A run is missing, is damaged, or has no generations yet.
    """
    found: dict[Path, Run] = {}
    for each in [runs] if isinstance(runs, str | Path) else runs:
        for run in [each] if isinstance(each, Run) else _read_below(Path(each)):
            found.setdefault(run.path.resolve(), run)
    return list(found.values())


def task_settings(run: Run) -> dict[str, Any]:
    """Return the settings that name a run's task: in runs of one task and seed, evaluations have the same episodes."""
    names = ("task.factory", "task.env_id", "task.name", "task.dim")
    return {key: value for key, value in run.settings.items() if key in names or key.startswith("task.env_kwargs")}


def title(runs: Iterable[Run]) -> str:
    """Return the task that all runs have in common, or an empty string."""
    names = ("task.factory", "task.env_id", "task.name")
    tasks = {next((str(run.settings[key]) for key in names if run.settings.get(key)), "") for run in runs}
    return tasks.pop() if len(tasks) == 1 else ""


def folders_with(path: Path, *names: str, onerror: Callable[[OSError], None] | None = None) -> list[Path]:
    """Return the folders in and below a path that have a file of one of these names, each once.

    Links are followed, after all that is there itself; but not to a folder above the path. ``onerror`` is called with a
    folder that cannot be read.
    """
    found: list[Path] = []
    seen = {os.path.realpath(parent) for parent in path.resolve().parents}
    starts = [str(path)]
    for start in starts:
        for folder, below, files in os.walk(start, onerror=onerror):
            place = os.path.realpath(folder)
            if place in seen:
                below.clear()
                continue
            seen.add(place)
            if any(name in files for name in names):
                found.append(Path(folder))
            starts += [each for name in below if os.path.islink(each := os.path.join(folder, name))]
    return found


def _refuse_folder(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # what vanishes meanwhile is left out
        advice = READABLE if isinstance(error, PermissionError) else "mend that, or name the runs one by one"
        raise RunDirectoryError(f"cannot read {error.filename}: {error.strerror}; {advice}") from error


def _read_below(path: Path) -> list[Run]:
    if not path.is_dir():
        raise RunDirectoryError(f"no run directory at {path}; name one that pyes train has printed")
    if (path / "metrics.csv").exists():
        rows, digest = _rows(path)
        if not rows:
            raise RunDirectoryError(
                f"{path / 'metrics.csv'} has no generations yet; wait for the first one, or train again"
            )
        return [_run(path, rows, digest)]
    found = sorted(folders_with(path, "metrics.csv", onerror=_refuse_folder), key=natural)
    if not found:
        raise RunDirectoryError(f"no metrics.csv in or below {path}; {RunDirectory(path).how_to_get_metrics()}")
    # In a sweep that is still in progress, some runs have no generation yet.
    read_of = {run: _rows(run) for run in found}
    begun = [_run(run, rows, digest) for run, (rows, digest) in read_of.items() if rows]
    if not begun:
        raise RunDirectoryError(f"none of the {len(found)} runs below {path} has finished a generation")
    return begun


def natural(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that puts run 10 after run 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(path)) if part]


def _run(path: Path, rows: Sequence[Mapping[str, float]], digest: str) -> Run:
    recording = recording_if_readable(path / "journal.bin")
    config = _config(path)
    if not config and recording.starts:
        config = recording.starts[-1].settings
    told = {key: value for key, value in config.items() if key not in ("seed", *_SILENT)}
    settings = _given({key: value for key, value in told.items() if key not in configuration.FREE})
    if settings and recording.branches:
        settings[wording.CHANGED] = _changed(recording)
    conditions = _given({key: value for key, value in told.items() if key in configuration.FREE})
    mean, _ = evaluations.initial(recording) or (math.nan, math.nan)
    initial = mean if math.isfinite(mean) else None
    began = 0
    with contextlib.suppress(ConfigError):  # settings that are not valid here
        began = task_began(recording)
    return Run(path, config.get("seed"), settings, conditions, rows, initial, began, digest)


def _changed(recording: journal.Recording) -> str:
    """Return which settings were others before which generation."""
    parts = []
    for before, after in itertools.pairwise(recording.starts):
        changes = configuration.changes(before.settings, after.settings)
        old = (f"{key}={literal(value)}" for key, (value, _) in changes.items())
        parts.append(f"{', '.join(old)} until generation {after.generation}")
    return "; ".join(parts)


def recording_if_readable(file: Path) -> journal.Recording:
    """Return the journal of a run; an empty one if there is none to be read."""
    with contextlib.suppress(JournalError):
        return journal.read(file)
    return journal.Recording(file)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings to dotted keys, without empty values."""
    return {key: value for key, value in configuration.flat(values).items() if value is not None and value != {}}


def _rows(path: Path) -> tuple[list[dict[str, float]], str]:
    """Return the finite numbers of each row of metrics.csv, and the last hash, without rows that lack a needed one."""
    file = path / "metrics.csv"
    try:
        texts = read_rows(file)
    except OSError as error:
        raise RunDirectoryError(f"cannot read {file}: {error}; train again or restore it from a copy") from error
    needed = {*X_AXES, "return_mean"}
    if texts and not needed <= texts[0].keys():
        missing = ", ".join(sorted(needed - texts[0].keys()))
        raise RunDirectoryError(f"{file} has no column {missing}; expected the metrics of a pyes run")
    rows = [(row, text.get("theta_hash") or "") for text in texts if needed <= (row := _numbers(text)).keys()]
    return [row for row, _ in rows], rows[-1][1] if rows else ""


def _numbers(texts: Mapping[str, str | None]) -> dict[str, float]:
    numbers = {}
    for key, text in texts.items():
        try:
            number = float(text or "nan")
        except (TypeError, ValueError):
            continue  # a digest, or part of a damaged row
        if math.isfinite(number) or (key == "eval_return_mean" and text):  # NaN: all of its episodes failed
            numbers[key] = number
    return numbers


def _config(path: Path) -> dict[str, Any]:
    """Return the configuration of a run; empty without its file."""
    file = path / "config.json"
    try:
        config = dict(json.loads(file.read_bytes())) if file.exists() else {}
        for key in ("seed", *_BUDGETS):
            if not isinstance(got := config.get(key), int | float | None):
                raise ValueError(f"{key} is {got!r}, expected a number")
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        text = f"the configuration of {path} is damaged: {reason} ({file.name}); restore it from a copy"
        raise RunDirectoryError(text) from error
    return config
