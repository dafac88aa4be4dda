"""Weights & Biases: a run there, in whatever mode the variable WANDB_MODE says.

The library has a process of its own, which sends; in the mode ``offline`` it only writes files, for `wandb sync`.
"""

import secrets
from collections.abc import Sequence
from pathlib import Path

import wandb

from pyes.reports.loggers.base import LoggedRun, Logger, Row
from pyes.system.text import quoted


class WeightsAndBiases(Logger):
    """Logs to W&B; see `Logger`. The step is the generation, the axis of the curves the timesteps."""

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        identity = run.memory.setdefault("id", secrets.token_hex(4))
        folder = run.path / "loggers"
        self._run = wandb.init(
            project=run.project,
            name=run.name,
            id=identity,
            resume="allow",
            dir=folder,
            config=run.config,
            allow_val_change=True,
            # What it would watch is its own process, which does nothing else.
            settings=wandb.Settings(
                silent=True, console="off", x_disable_stats=True, disable_git=True, disable_code=True, save_code=False
            ),
        )
        self._run.define_metric("timesteps")
        self._run.define_metric("*", step_metric="timesteps")
        sync = f"wandb sync {quoted(folder)}/wandb/offline-run-*-{identity}"
        self.where = sync if self._run.offline else self._run.settings.run_url or sync

    def log(self, rows: Sequence[Row]) -> None:
        """Hand rows to the library."""
        for row in rows:
            self._run.log(dict(row), step=int(row["generation"]))

    def policy(self, files: Sequence[Path]) -> None:
        """Log the policy as a new version of an artifact of the run."""
        artifact = wandb.Artifact(f"policy-{self._run.id}", type="model")
        for file in files:
            artifact.add_file(str(file))
        self._run.log_artifact(artifact)

    def video(self, file: Path) -> None:
        """Log the video beside the last row."""
        self._run.log({"video": wandb.Video(str(file), format="mp4")})

    def close(self, *, failed: bool) -> None:
        """Wait until all is sent, or written."""
        self._run.finish(exit_code=int(failed))
