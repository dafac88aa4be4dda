"""Metrics of a run: one row per generation in ``metrics.csv``, one per node in ``nodes.csv``."""

import csv
import io
import logging
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pyes.errors import RunDirectoryError
from pyes.system.files import READABLE, AppendFile, set_aside, write_file
from pyes.system.lifetime import Closing

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class MetricsRow:
    """Metrics of a generation.

    ``timesteps`` and ``episodes`` are cumulative and count only training; ``seconds`` is the wall-clock time since the
    run was ready to begin, including evaluations, and continues after a resume; the others belong to the generation.
    Returns are the task's own, without reward offset. None becomes an empty field: a time that was lost with a killed
    head, an evaluation that was not due, or a value that the algorithm does not have.
    """

    generation: int
    timesteps: int
    episodes: int
    seconds: float
    return_mean: float
    return_std: float
    return_min: float
    return_max: float
    length_mean: float
    eval_return_mean: float | None = None
    eval_return_std: float | None = None
    eval_failed_episodes: int | None = None
    theta_norm: float
    gradient_norm: float | None
    sigma: float | None
    learning_rate: float | None
    episode_limit: int
    episodes_per_member: int
    theta_hash: str
    steps_per_second: float | None = None
    evaluate_seconds: float | None = None
    update_seconds: float | None = None
    idle_fraction: float | None = None
    failed_members: int
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(kw_only=True)
class NodeRow:
    """Metrics of one node in a generation; ``round_trip`` is in seconds."""

    generation: int
    node: str
    workers: int
    members: int
    timesteps: int
    steps_per_second: float
    idle_fraction: float
    round_trip: float
    bytes_sent: int
    bytes_received: int


COLUMNS = tuple(each.name for each in fields(MetricsRow))
#: Columns that do not follow from the journal.
_MEASURED: dict[str, type[int] | type[float]] = {
    **dict.fromkeys(("seconds", "steps_per_second", "evaluate_seconds", "update_seconds", "idle_fraction"), float),
    **dict.fromkeys(("bytes_sent", "bytes_received"), int),
}
_NODE_COLUMNS = tuple(each.name for each in fields(NodeRow))


class MetricsWriter(Closing):
    """Appends rows to metrics.csv, each immediately and atomically.

    A file with other columns, written by another version, is renamed.

    Parameters
    ----------
    path : Path
        metrics.csv; its rows of generations 0, 1, ... are kept up to the first gap.
    generations : int
        Rows of this and later generations are dropped.
    recorded : iterable of mappings
        Values of each row that the journal has; the first row that differs and all later ones are dropped.
    task_began : int
        Generation from which on the task is that of now.

    Attributes
    ----------
    generation : int
        Generation of the next row.
    difference : str
        How the first dropped row differs from the journal; empty if no row differs.
    seconds : float
        Seconds of the last row.
    last_evaluation : (int, float, float) or None
        The center (named as in `best_evaluation`), mean and standard deviation of the last evaluation of this task.
    best_evaluation : (int, float) or None
        See the function of this name, of all rows so far of this task.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        generations: int = 0,
        recorded: Iterable[Mapping[str, float | str]] = (),
        task_began: int = 0,
    ) -> None:
        data = _data(path, COLUMNS)
        lines, self.difference = _right_rows(_whole_rows(data, generations), recorded)
        if self.difference:
            logger.warning("%s: %s", path.name, self.difference)
        last = lines[-1][1] if lines else {}
        self.generation = len(lines)
        self.seconds = float(last.get("seconds", 0))
        self._task_began = task_began
        self.last_evaluation: tuple[int, float, float] | None = None
        evaluated = (row for _, row in reversed(lines) if row["eval_return_mean"])
        if (row := next(evaluated, None)) and int(row["generation"]) >= task_began:
            self.last_evaluation = (
                int(row["generation"]) + 1,
                float(row["eval_return_mean"]),
                float(row["eval_return_std"]),
            )
        self.best_evaluation = best_evaluation((row for _, row in lines), task_began)
        self._file = _open_table(path, COLUMNS, sum(len(line) for line, _ in lines))

    def write(self, row: MetricsRow) -> None:
        """Append the row of generation ``self.generation``.

        Raises
        ------
        ConfigError
            The file cannot be written; earlier rows are unchanged.
        """
        assert row.generation == self.generation
        self._file.append(_line(_texts(row)))
        self.generation += 1
        self.seconds = row.seconds
        mean, deviation = row.eval_return_mean, row.eval_return_std
        if mean is None or deviation is None or row.generation < self._task_began:
            return
        self.last_evaluation = row.generation + 1, mean, deviation
        mean = float(_text(mean))  # as a run that goes on from the file reads it: which is the best must not change
        if math.isfinite(mean) and (self.best_evaluation is None or mean > self.best_evaluation[1]):
            self.best_evaluation = row.generation + 1, mean

    def sync(self) -> None:
        """Sync the rows to disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class NodesWriter(Closing):
    """Appends rows to nodes.csv, which is created with the first row; a file with other columns is renamed.

    Parameters
    ----------
    path : Path
        nodes.csv.
    generations : int
        Rows of this and later generations are dropped.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """

    def __init__(self, path: Path, generations: int) -> None:
        self._path = path
        lines = _data(path, _NODE_COLUMNS).splitlines(keepends=True)
        kept = [line for line in lines if line.endswith(b"\n") and _generation(line) < generations]
        if len(kept) < len(lines):
            write_file(path, b"".join([_line(_NODE_COLUMNS), *kept]))
        self._size = sum(map(len, kept))
        self._file: AppendFile | None = None

    def write(self, rows: list[NodeRow]) -> None:
        """Append the rows of a generation."""
        if rows:
            self._file = self._file or _open_table(self._path, _NODE_COLUMNS, self._size)
            self._file.append(b"".join(_line(_texts(row)) for row in rows))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _data(path: Path, columns: tuple[str, ...]) -> bytes:
    """Return the bytes after a table's header; a file with another header is renamed, so that nothing is lost."""
    header, data = _line(columns), path.read_bytes() if path.exists() else b""
    if data.startswith(header):
        return data[len(header) :]
    plain = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    if plain.startswith(header):  # an editor or a spreadsheet has written it
        write_file(path, plain)
        return plain[len(header) :]
    if not header.startswith(data):  # otherwise a kill has cut the header
        logger.warning("%s has other columns than this version writes; it is now %s", path.name, set_aside(path))
    return b""


def _open_table(path: Path, columns: tuple[str, ...], size: int) -> AppendFile:
    """Open a table for appending after the first ``size`` bytes of rows; writes the header if it is missing."""
    header = _line(columns)
    whole = path.exists() and path.stat().st_size >= len(header)
    file = AppendFile(path, len(header) + size if whole else 0)
    if not whole:
        file.append(header)
    return file


def _generation(line: bytes) -> int:
    number = line.partition(b",")[0]
    return int(number) if number.isdigit() else 0


def read_rows(path: Path, most_bytes: int | None = None) -> list[dict[str, str]]:
    """Return the complete rows of a metrics file, without a last line that a kill has cut.

    Parameters
    ----------
    path : Path
    most_bytes : int or None
        Where the file is longer, only the rows in its last so many bytes are read.

    Raises
    ------
    RunDirectoryError
        It is damaged: it has bytes that are no text; or it may not be read.
    """
    try:
        data = _read_end(path, most_bytes)
    except PermissionError as error:
        raise RunDirectoryError(f"cannot read {path}: {error.strerror}; {READABLE}") from error
    except IsADirectoryError as error:
        raise RunDirectoryError(f"cannot read {path}: it is a directory; move it away") from error
    try:
        text = data.decode()
        whole = text[: text.rfind("\n") + 1]
        return list(csv.DictReader(whole.splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RunDirectoryError(f"cannot read {path}: {error}; train again or restore it from a copy") from error


def _read_end(path: Path, most_bytes: int | None) -> bytes:
    """Return the header and all rows, or those in the last so many bytes."""
    with open(path, "rb") as file:
        header = file.readline()
        begin, end = file.tell(), file.seek(0, os.SEEK_END)
        file.seek(begin)
        if most_bytes is not None and end - most_bytes > begin:
            file.seek(end - most_bytes)
            file.readline()  # the rest of a row
        return header + file.read()


def add_measured(row: MetricsRow, written: Mapping[str, str]) -> None:
    """Fill in the columns that do not follow from the journal, from the same row as it was written before.

    Nothing is taken from another row, nor from fields that are empty, since nothing was measured, or damaged.
    """
    if (written.get("generation"), written.get("theta_hash")) != (str(row.generation), row.theta_hash):
        return
    for name, kind in _MEASURED.items():
        if math.isfinite(value := number(written.get(name))):
            setattr(row, name, kind(value))


def last_row(path: Path) -> dict[str, str]:
    """Return the row of the last generation before any damage; empty if there is none, or the columns are others."""
    header, data = _line(COLUMNS), path.read_bytes() if path.exists() else b""
    if not data.startswith(header):
        return {}
    *_, (_, row) = (b"", {}), *_whole_rows(data[len(header) :], sys.maxsize)
    return row


def best_evaluation(rows: Iterable[Mapping[str, str]], since: int = 0) -> tuple[int, float] | None:
    """Return the best center and its mean return in an evaluation; the first of equal ones, None without any.

    A center is named by its generation, the number of its updates: one more than that of the row. Rows of generations
    before ``since`` do not count.
    """
    evaluated = ((number(row.get("generation")) + 1, number(row.get("eval_return_mean"))) for row in rows)
    known = ((int(center), mean) for center, mean in evaluated if center > since and math.isfinite(mean))
    return max(known, key=lambda each: each[1], default=None)


def _whole_rows(data: bytes, generations: int) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Yield the lines of generations 0, 1, ... below ``generations``, up to the first damaged or missing one."""
    for generation, line in enumerate(data.splitlines(keepends=True)[:generations]):
        if not line.endswith(b"\n"):  # cut by a kill, or zeros where a power cut lost the bytes
            return
        try:
            values = next(csv.reader([line.decode(errors="replace")]), [])
        except csv.Error:  # a field of over 128 KiB
            return
        row = dict(zip(COLUMNS, values, strict=False))
        if len(values) != len(COLUMNS) or row["generation"] != str(generation):
            return
        yield line, row


def _right_rows(
    rows: Iterable[tuple[bytes, dict[str, str]]], recorded: Iterable[Mapping[str, float | str]]
) -> tuple[list[tuple[bytes, dict[str, str]]], str]:
    """Return the rows before the first one that cannot be right, and what is wrong with that."""
    right: list[tuple[bytes, dict[str, str]]] = []
    values = iter(recorded)
    for line, row in rows:
        if wrong := _difference(row, next(values, {})):
            end = "it and the rows after it are written anew, without times and what else the journal lacks"
            return right, f"generation {row['generation']} has {wrong}; {end}"
        right.append((line, row))
    return right, ""


def _difference(row: dict[str, str], recorded: Mapping[str, float | str]) -> str:
    """Return what is wrong in a row; empty if nothing is."""
    if not math.isfinite(number(row["seconds"])):
        return f"seconds={row['seconds']!r}, expected a finite number"
    for key, value in recorded.items():
        text = row[key]
        # The figures of another build of NumPy may differ in their last digits.
        same = text == value if isinstance(value, str) else _is_close(number(text), value)
        if not same:
            shown = value if isinstance(value, str) else f"{value:.9g}"
            return f"{key}={text or 'nothing'}, the journal has {shown}"
    mean, deviation = row["eval_return_mean"], row["eval_return_std"]  # the journal lacks those that were not due
    if (mean or deviation) and -math.inf in (number(mean), number(deviation)):
        return f"eval_return_mean={mean!r} and eval_return_std={deviation!r}, expected two numbers or nothing"
    return ""


def _is_close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(first) and math.isnan(second))


def number(text: str | None) -> float:
    """Return a field as a number; -inf, which no figure is, where it is none, or missing in a damaged row."""
    try:
        return float(text or "")
    except ValueError:
        return -math.inf


def _texts(row: MetricsRow | NodeRow) -> list[Any]:
    """Return the values of a row."""
    return [_text(value) if isinstance(value, float) else value for value in asdict(row).values()]


def _text(value: float) -> str:
    """Return a number as the files have it: nine digits are enough to distinguish all float32 values."""
    return f"{value:.9g}"


def _line(values: Iterable[Any]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()
