"""The interface of a logger.

Knows no library. A logger is called from one thread of a process of its own, so it may be slow, raise, or hang.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyes.run.metrics import last_row, number

#: A row of metrics.csv: its numbers by column, without empty fields and texts.
Row = Mapping[str, float]


@dataclass(frozen=True)
class LoggedRun:
    """What a logger is told of the run.

    Attributes
    ----------
    path : Path
        The run directory.
    project : str
        ``logger.project``.
    config : dict
        The whole configuration, as in config.json.
    memory : dict
        What this logger will need when the run goes on, such as an id that a server gave: anything that JSON has. It
        is kept in the run directory.
    """

    path: Path
    project: str
    config: dict[str, Any]
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the run: the last two folders of its path."""
        return "/".join(self.path.absolute().parts[-2:])

    def begun(self) -> float:
        """Return the time from which on the seconds of its rows count: now, if it has none yet."""
        metrics = self.path / "metrics.csv"
        last = last_row(metrics)
        return metrics.stat().st_mtime - number(last["seconds"]) if last else time.time()


class Logger:
    """A place to which the rows of a run are sent.

    What a method raises is told to the user once. Then another object is made after a while, which goes on with the
    first row that is not sent.

    Parameters
    ----------
    run : LoggedRun
    **kwargs
        ``logger.kwargs``, for a class that ``logger.factory`` names.
    """

    #: Where one finds the run, such as an address; shown when the run begins.
    where: str = ""

    def __init__(self, run: LoggedRun) -> None:
        self.run = run

    def held(self, sent: int, tried: int) -> int:
        """Return how many rows it holds, which are not sent again.

        Parameters
        ----------
        sent, tried : int
            It holds the first ``sent`` rows for certain. What became of those before the row ``tried`` is not known,
            since the process was killed while it sent them; a logger that cannot tell leaves them out.
        """
        return tried

    def log(self, rows: Sequence[Row]) -> None:
        """Send the next rows, all or none of them."""
        raise NotImplementedError

    def policy(self, files: Sequence[Path]) -> None:
        """Send the files of the policy at the end of the run."""

    def video(self, file: Path) -> None:
        """Send the video of an episode of that policy."""

    def close(self, *, failed: bool) -> None:
        """End the run there, until it is resumed.

        Parameters
        ----------
        failed : bool
            Whether the run ended by an error.
        """
