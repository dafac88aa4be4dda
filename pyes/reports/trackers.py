"""Sends what runs did to programs that track experiments: curves, configuration and policy.

Owns the trackers and what of a run each has had. Reads the run directory alone, so it sends finished runs, and runs in
progress from beside them, equally. Invariant: no row is sent twice, also when it goes on after an end.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyes import config as configuration
from pyes.config import LoggerConfig
from pyes.errors import ConfigError, missing
from pyes.run.directory import RunDirectory
from pyes.run.metrics import read_rows
from pyes.system import lookup
from pyes.system.files import write_file

_LOOK_SECONDS = 0.5  # between looks at a run in progress
OWN = "own"  # name of the tracker of `logger.factory`


@dataclass(frozen=True)
class Tracked:
    """A run, as trackers see it.

    Attributes
    ----------
    path : Path
        The run directory.
    name : str
        Name of the run.
    project : str
        What it belongs to: `logger.project`.
    config : mapping
        Its settings, with dotted keys.
    id : str
        What the tracker called the run when it began; empty at first.
    """

    path: Path
    name: str
    project: str
    config: Mapping[str, Any]
    id: str


class Tracker(Protocol):
    """Takes the figures of one run; made with a `Tracked`. Any method may raise: that ends the tracker, not the run."""

    #: What the tracker calls the run; stored, and in `Tracked.id` when the run goes on.
    id: str

    def log(self, timesteps: int, values: Mapping[str, float]) -> None:
        """Take the figures of a generation, by the name of their column in metrics.csv."""
        ...

    def finish(self, policy: Path | None) -> None:
        """Take the policy, a folder with policy.safetensors and policy.json, and end."""
        ...


def send(run: Path, name: str, *, waiting: Callable[[], bool] = lambda: False) -> int:
    """Send what a tracker has not had of a run; return the number of rows.

    Parameters
    ----------
    run : Path
        Run directory.
    name : str
        Of the tracker: one of `TRACKERS`, or `OWN`.
    waiting : callable
        Whether the run goes on: then later rows are sent, too.

    Raises
    ------
    ConfigError
        The tracker is not installed, or unknown.
    """
    directory = RunDirectory(run)
    path = run / "loggers" / f"{name}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    had, sent, go_on = int(before.get("rows", 0)), 0, True
    config = directory.read_config()
    settings = configuration.flat(configuration.to_mapping(config))
    known = str(before.get("id", ""))
    tracker = made(name, config.logger, Tracked(run, run.resolve().name, config.logger.project, settings, known))
    path.parent.mkdir(exist_ok=True)
    while go_on:
        go_on = waiting()  # before the look: rows that are written until then are sent
        rows = read_rows(directory.metrics) if directory.metrics.exists() else []
        try:
            for row in rows[had + sent :]:
                tracker.log(int(row["timesteps"]), _numbers(row))
                sent += 1
        finally:
            write_file(path, json.dumps({"rows": had + sent, "id": tracker.id}).encode())
        if go_on:
            time.sleep(_LOOK_SECONDS)
    tracker.finish(run if (run / "policy.json").exists() else None)
    return sent


def _numbers(row: Mapping[str, str]) -> dict[str, float]:
    numbers = {}
    for key, text in row.items():
        with suppress(ValueError, TypeError):
            numbers[key] = float(text)
    return numbers


def made(name: str, config: LoggerConfig, run: Tracked) -> Tracker:
    """Return a tracker by its name.

    Raises
    ------
    ConfigError
        It is unknown, or not installed.
    """
    if name == OWN:
        tracker: Tracker = lookup.find("logger.factory", config.factory, "'my_trackers:Tracker'")(run)
        return tracker
    if name not in TRACKERS:
        raise ConfigError(f"got {name!r}, expected one of {', '.join([*TRACKERS, OWN])}")
    try:
        return TRACKERS[name](run)
    except ImportError as error:
        raise missing(f"logger {name}", name, name, error) from error


class TensorBoard:
    """Events in the folder ``tensorboard`` of the run, by TensorBoard's own writer, which needs no torch."""

    def __init__(self, run: Tracked) -> None:
        event = importlib.import_module("tensorboard.compat.proto.event_pb2")
        summary = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._event, self._summary = event.Event, summary.Summary
        self._writer = writer.EventFileWriter(str(RunDirectory(run.path).tensorboard))
        self.id = run.name

    def log(self, timesteps: int, values: Mapping[str, float]) -> None:
        """Add events."""
        every = [self._summary.Value(tag=key, simple_value=value) for key, value in values.items()]
        event = self._event(wall_time=time.time(), step=timesteps, summary=self._summary(value=every))
        self._writer.add_event(event)

    def finish(self, policy: Path | None) -> None:
        """Write what is pending."""
        self._writer.close()


class WandB:
    """Weights & Biases; ``WANDB_MODE=offline`` keeps everything in the run directory."""

    def __init__(self, run: Tracked) -> None:
        self._wandb = importlib.import_module("wandb")
        self._run = self._wandb.init(
            project=run.project,
            name=run.name,
            dir=str(run.path),
            config=dict(run.config),
            id=run.id or None,
            resume="allow",
        )
        self.id = str(self._run.id)

    def log(self, timesteps: int, values: Mapping[str, float]) -> None:
        """Add a step."""
        self._run.log(dict(values), step=timesteps)

    def finish(self, policy: Path | None) -> None:
        """Send the policy, and wait until everything has been sent."""
        if policy is not None:
            artifact = self._wandb.Artifact(f"policy-{self.id}", type="model")
            for name in ("policy.safetensors", "policy.json"):
                artifact.add_file(str(policy / name))
            self._run.log_artifact(artifact)
        self._run.finish()


class MLflow:
    """MLflow, at the server of ``MLFLOW_TRACKING_URI``."""

    def __init__(self, run: Tracked) -> None:
        self._client = importlib.import_module("mlflow").MlflowClient()
        self._entities = importlib.import_module("mlflow.entities")
        if run.id:
            self.id = run.id
            return
        known = self._client.get_experiment_by_name(run.project)
        experiment = known.experiment_id if known else self._client.create_experiment(run.project)
        self.id = self._client.create_run(experiment, run_name=run.name).info.run_id
        every = [self._entities.Param(key, str(value)[:500]) for key, value in run.config.items()]
        for begin in range(0, len(every), 100):  # the most that a call takes
            self._client.log_batch(self.id, params=every[begin : begin + 100])

    def log(self, timesteps: int, values: Mapping[str, float]) -> None:
        """Add a step."""
        now = int(1000 * time.time())
        every = [self._entities.Metric(key, value, now, timesteps) for key, value in values.items()]
        self._client.log_batch(self.id, metrics=every)

    def finish(self, policy: Path | None) -> None:
        """Send the policy, and mark the run as finished."""
        if policy is not None:
            for name in ("policy.safetensors", "policy.json"):
                self._client.log_artifact(self.id, str(policy / name))
        self._client.set_terminated(self.id)


#: The trackers by their names.
TRACKERS: dict[str, Callable[[Tracked], Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def standard_input_is_open() -> bool:
    """Return whether the program that started this one still holds its standard input; takes no time."""
    import select

    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return not readable or bool(os.read(sys.stdin.fileno(), 2**12))
