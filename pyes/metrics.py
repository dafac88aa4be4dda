"""Metrics of a run: one row a generation, in ``metrics.csv`` and, on request, in TensorBoard."""

import csv
import io
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyes.errors import ConfigError
from pyes.files import write_file


@dataclass(frozen=True)
class Row:
    """What is recorded of a generation.

    ``timesteps`` and ``episodes`` are cumulative and count training only; ``seconds`` is the wall clock since the first
    generation began, evaluations included, and goes on across a resume; the others are the generation's own. Returns
    are the task's own, without any reward offset. None becomes an empty field.
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
    eval_return_mean: float | None
    eval_return_std: float | None
    theta_norm: float
    gradient_norm: float
    sigma: float
    learning_rate: float
    episode_limit: int
    theta_hash: str
    steps_per_second: float
    evaluate_seconds: float
    update_seconds: float
    idle_fraction: float
    failed_members: int
    bytes_sent: int
    bytes_received: int


COLUMNS = tuple(field.name for field in fields(Row))


class MetricsWriter:
    """Appends rows to metrics.csv, each flushed when written, and to TensorBoard.

    Parameters
    ----------
    path : Path                 metrics.csv; rows of an earlier part of the run stay
    generation : int            the first one to come: rows from there on are dropped (they will be written again)
    tensorboard : Path | None   where TensorBoard events go

    Raises
    ------
    ConfigError    TensorBoard is wanted and not installed, or the file cannot be written
    """

    def __init__(self, path: Path, generation: int = 0, tensorboard: Path | None = None) -> None:
        self._tensorboard = None if tensorboard is None else _open_tensorboard(tensorboard)
        rows = [row for row in read_rows(path) if int(row["generation"]) < generation] if path.exists() else []
        head = io.StringIO(newline="")
        kept = csv.DictWriter(head, COLUMNS, lineterminator="\n")
        kept.writeheader()
        kept.writerows(rows)
        write_file(path, head.getvalue().encode())
        self._file = open(path, "a", newline="", encoding="utf-8")  # noqa: SIM115 - closed in close
        self._writer = csv.DictWriter(self._file, COLUMNS, lineterminator="\n")

    def write(self, row: Row) -> None:
        """Append one row."""
        self._writer.writerow({key: _text(value) for key, value in asdict(row).items()})
        self._file.flush()
        if self._tensorboard is not None:
            for key, value in asdict(row).items():
                if isinstance(value, int | float) and key != "timesteps":
                    self._tensorboard.add_scalar(key, value, row.timesteps)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the whole rows of a metrics file; a last line cut short by a kill is left out."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return list(csv.DictReader(whole.splitlines()))


def _text(value: Any) -> Any:
    # Nine digits name every float32 and keep files of different runs comparable by eye.
    return f"{value:.9g}" if isinstance(value, float) else value


def _open_tensorboard(path: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError("logger.tensorboard needs TensorBoard; try pip install 'pyes-rl[tensorboard]'") from error
    return SummaryWriter(str(path))
