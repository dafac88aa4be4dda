"""Trackio: a run in its local database, or where its variables TRACKIO_SPACE_ID and TRACKIO_SERVER_URL say."""

from collections.abc import Sequence
from pathlib import Path

import trackio

from pyes.reports.loggers.base import LoggedRun, Logger, Row
from pyes.system.text import quoted


class Trackio(Logger):
    """Logs to trackio; see `Logger`. The step is the generation."""

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        # Nothing is measured of this process, which does nothing else.
        self._run = trackio.init(
            project=run.project,
            name=run.memory.setdefault("name", run.name.replace("/", "-")),
            config=run.config,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        self._step = 0
        self.where = f"trackio show --project {quoted(run.project)}, run {run.memory['name']}"

    def held(self, sent: int, tried: int) -> int:
        """Return that it holds all rows that it was given; a video is beside the last one."""
        self._step = max(0, tried - 1)
        return tried

    def log(self, rows: Sequence[Row]) -> None:
        """Hand rows to the library."""
        for row in rows:
            self._step = int(row["generation"])
            self._run.log(dict(row), step=self._step)

    def policy(self, files: Sequence[Path]) -> None:
        """Log the policy as a new version of an artifact."""
        artifact = trackio.Artifact(f"policy-{self.run.memory['name']}", type="model")
        for file in files:
            artifact.add_file(str(file))
        self._run.log_artifact(artifact)

    def video(self, file: Path) -> None:
        """Log the video beside the last row."""
        self._run.log({"video": trackio.Video(str(file), format="mp4")}, step=self._step)

    def close(self, *, failed: bool) -> None:
        """Wait until all is sent, or written."""
        self._run.finish()
