"""MLflow: a run on the server, or in the store, of the variable MLFLOW_TRACKING_URI.

Owns the time of each metric, which follows from its row: a store takes the same row twice for the same one.
"""

import os
from collections.abc import Sequence
from pathlib import Path

# The library would try again for minutes, and say nothing; here that is the caller's part.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from pyes.config.section import flat
from pyes.reports.loggers.base import LoggedRun, Logger, Row

_METRICS = 1000  # of a request, at most
_PARAMS = 100
_LONGEST = 500  # letters of a parameter


class MLflow(Logger):
    """Logs to MLflow; see `Logger`. The step is the generation."""

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        self._client = MlflowClient()
        memory = run.memory
        if "id" in memory:
            self._client.update_run(memory["id"], status="RUNNING")
        else:
            memory["begun"] = run.begun()
            memory["id"] = self._new_run(int(1000 * memory["begun"]))
        self._id = memory["id"]
        if "params" not in memory:  # else the server refuses those of a run that goes on with others
            self._log_params()
            memory["params"] = True
        self._client.log_dict(self._id, run.config, "config.json")
        self.where = f"{self._client.tracking_uri}, project {run.project}, run {self._id}"

    def _new_run(self, begun: int) -> str:
        """Return the id of a new run, which began at a time in milliseconds."""
        project = self.run.project
        found = self._client.get_experiment_by_name(project)
        experiment = self._client.create_experiment(project) if found is None else found.experiment_id
        return str(self._client.create_run(experiment, begun, run_name=self.run.name).info.run_id)

    def _log_params(self) -> None:
        params = [Param(key, str(value)[:_LONGEST]) for key, value in flat(self.run.config).items()]
        for start in range(0, len(params), _PARAMS):
            self._client.log_batch(self._id, params=params[start : start + _PARAMS])

    def held(self, sent: int, tried: int) -> int:
        """Return what the server says, if anything is in doubt."""
        if sent == tried:
            return sent
        history = self._client.get_metric_history(self._id, "generation")
        return max((int(each.step) + 1 for each in history), default=0)

    def log(self, rows: Sequence[Row]) -> None:
        """Send rows."""
        begun = self.run.memory["begun"]
        metrics = [
            Metric(key, value, int(1000 * (begun + row["seconds"])), int(row["generation"]))
            for row in rows
            for key, value in row.items()
        ]
        for start in range(0, len(metrics), _METRICS):
            self._client.log_batch(self._id, metrics=metrics[start : start + _METRICS])

    def policy(self, files: Sequence[Path]) -> None:
        """Send the files as artifacts."""
        for file in files:
            self._client.log_artifact(self._id, str(file), "policy")

    def video(self, file: Path) -> None:
        """Send the video as an artifact."""
        self._client.log_artifact(self._id, str(file))

    def close(self, *, failed: bool) -> None:
        """Say that the run has ended."""
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")
