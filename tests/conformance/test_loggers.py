"""Conformance of loggers: each has the rows of a run once, its settings, policy and video, also when the run goes on.

What is asserted is read back from the place itself: from event files, W&B's transaction logs, a server of MLflow with a
store in SQLite, trackio's database. A new logger is tested by one more entry in `PLACES`.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from heads import merge, until

import pyes
from pyes.run.metrics import read_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RUN = {
    "seed": 7,
    "task": {"env_id": "CartPole-v1", "max_timesteps": 30},
    "algorithm": {"population_size": 4},
    "generations": 5,
    "evaluation": {"every": 2, "episodes": 2},
    "noise": {"entries": 100_000},
    "cluster": {"name": "inline"},
    "logger": {"project": "conformance", "wait": 120.0},
}


SECONDS = 30.0  # of a run whose server dies: importing MLflow takes a good part of it


@dataclass
class Found:
    """What a place has of a run.

    Attributes
    ----------
    returns : list of (int, float)
        Generation and mean return of each row, in the order of the place; one that is there twice is twice in it.
    seed : int or None
        Of the configuration.
    policy, video : bytes or None
        Files; None where the place does not take them.
    """

    returns: list[tuple[int, float]]
    seed: int | None
    policy: bytes | None
    video: bytes | None


def in_tensorboard(run: Path) -> Found:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), {"tensors": 0, "images": 0, "scalars": 0}).Reload()
    numbers = [int(event.value) for event in events.Scalars("generation")]
    values = [event.value for event in events.Scalars("return_mean")]
    text = events.Tensors("config")[0].tensor_proto.string_val[0].decode()
    config = json.loads(text.removeprefix("```json\n").removesuffix("\n```"))
    video = events.Images("video")[-1].encoded_image_string
    assert video.startswith(b"GIF89a")
    return Found(list(zip(numbers, values, strict=True)), config["seed"], None, video)


def records_of(file: Path) -> Iterator[Any]:
    """Yield the records of a transaction log: seven bytes, then blocks of 32 KiB as LevelDB has them."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32_768 - place % 32_768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        part = data[place + 7 : place + 7 + length]
        place += 7 + length
        whole = part if kind in (1, 2) else whole + part
        if kind in (1, 4):
            yield Record.FromString(whole)


def values_of(items: Any) -> dict[str, Any]:
    return {each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in items}


def in_wandb(run: Path) -> Found:
    found, identities = Found([], None, None, None), set()
    for folder in sorted((run / "loggers" / "wandb").glob("offline-run-*")):
        (file,) = folder.glob("*.wandb")
        for record in records_of(file):
            kind = record.WhichOneof("record_type")
            if kind == "history":
                row = values_of(record.history.item)
                found.returns.append((row["generation"], row["return_mean"]))
            elif kind == "run":
                identities.add((record.run.run_id, record.run.project))
                found.seed = values_of(record.run.config.update)["seed"]
            elif kind == "artifact":
                files = {each.path: Path(each.local_path) for each in record.artifact.manifest.contents}
                assert set(files) == {"policy.safetensors", "policy.json"}
                found.policy = files["policy.safetensors"].read_bytes()
        found.video = next((folder / "files" / "media" / "videos").glob("*.mp4")).read_bytes()
    ((_, project),) = identities
    assert project == "conformance"
    return found


def in_mlflow(run: Path) -> Found:
    from mlflow import MlflowClient

    client = MlflowClient()
    (experiment,) = [each for each in client.search_experiments() if each.name == "conformance"]
    (logged,) = (
        each
        for each in client.search_runs([experiment.experiment_id])
        if each.info.run_name == "/".join(run.parts[-2:])
    )
    assert logged.info.status == "FINISHED"
    identity = logged.info.run_id
    history = client.get_metric_history(identity, "return_mean")
    folder = run.parent / "downloaded"
    folder.mkdir(exist_ok=True)
    files = Path(client.download_artifacts(identity, "", str(folder)))
    video = files / "video.mp4"
    return Found(
        [(each.step, each.value) for each in history],
        int(logged.data.params["seed"]),
        (files / "policy" / "policy.safetensors").read_bytes(),
        video.read_bytes() if video.exists() else None,
    )


def in_trackio(run: Path) -> Found:
    from trackio.sqlite_storage import SQLiteStorage

    name = "-".join(run.parts[-2:])
    assert name in SQLiteStorage.get_runs("conformance")
    logs = SQLiteStorage.get_logs("conformance", name)
    rows = [each for each in logs if "return_mean" in each]
    (config,) = (SQLiteStorage.get_run_config("conformance", name),)
    folder = Path(os.environ["TRACKIO_DIR"])
    policy = (run / "policy.safetensors").read_bytes()
    kept = [each.read_bytes() for each in folder.rglob("*") if each.is_file() and each.stat().st_size == len(policy)]
    videos = sorted(folder.rglob("*.mp4"), key=lambda each: each.stat().st_mtime)
    return Found(
        [(int(each["generation"]), each["return_mean"]) for each in rows],
        config["seed"],
        policy if policy in kept else b"",
        videos[-1].read_bytes(),
    )


PLACES: dict[str, Callable[[Path], Found]] = {
    "tensorboard": in_tensorboard,
    "wandb": in_wandb,
    "mlflow": in_mlflow,
    "trackio": in_trackio,
}
ALL = [pytest.param(each, marks=() if each == "tensorboard" else pytest.mark.loggers) for each in PLACES]


@pytest.fixture
def address() -> str:
    """Return the address of a server of MLflow."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def places(name: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have every library write below the test's folder, and MLflow's server run."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    if name != "mlflow":
        yield
        return
    server = start_mlflow(address, tmp_path)
    yield
    stop(server)


def start_mlflow(address: str, folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "files")]
    with open(folder / "server.log", "ab") as log:
        server = subprocess.Popen([*command, *store, "--workers", "1"], stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return server
    stop(server)
    raise AssertionError((folder / "server.log").read_text())


def stop(server: "subprocess.Popen[bytes]") -> None:
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def train(run: Path, name: str, **changes: Any) -> None:
    config = merge(RUN, {"run_dir": str(run), "logger": {name: True}})
    pyes.train(merge(config, changes), display=False)


def check(found: Found, run: Path) -> None:
    written = [(int(row["generation"]), float(row["return_mean"])) for row in read_rows(run / "metrics.csv")]
    assert found.returns == [(number, pytest.approx(value)) for number, value in written]
    assert found.seed == 7
    if found.policy is not None:
        assert found.policy == (run / "policy.safetensors").read_bytes()
    assert found.video is not None
    if not found.video.startswith(b"GIF"):
        assert found.video == (run / "loggers" / "video.mp4").read_bytes()
    log = (run / "train.log").read_text()
    assert "not sent" not in log
    assert "WARNING MainProcess pyes.training.loggers" not in log


@pytest.mark.parametrize("name", ALL)
def test_a_place_has_the_whole_run_also_after_it_went_on(name: str, places: None, tmp_path: Path):
    run = tmp_path / name / "run"
    train(run, name)
    check(PLACES[name](run), run)
    train(run, name, resume=str(run), generations=8)
    check(PLACES[name](run), run)
    assert len(read_rows(run / "metrics.csv")) == 8


@pytest.mark.loggers
@pytest.mark.parametrize("name", ["mlflow"])
def test_a_server_of_mlflow_that_dies_in_mid_run_gets_every_row_once_later(name: str, address: str, tmp_path: Path):
    run, server = tmp_path / name / "run", start_mlflow(address, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", address)
        sent = run / "loggers" / "mlflow.json"
        killer = threading.Thread(
            target=lambda: (until(lambda: json.loads(sent.read_text())["sent"], "rows"), stop(server))
        )
        killer.start()
        short = {"env_id": "Acrobot-v1", "max_timesteps": 500}
        logger = {name: True, "wait": 4.0, "video": False}
        begun = time.monotonic()
        changes = {"evaluation": {"every": 0}, "task": short}
        train(run, name, generations=None, time_limit=SECONDS, logger=logger, **changes)
        assert time.monotonic() - begun < SECONDS + 10
        killer.join()
        rows = len(read_rows(run / "metrics.csv"))
        said = [line for line in (run / "train.log").read_text().splitlines() if "logger mlflow: " in line]
        assert ["tried again now and then" in line for line in said] == [False, True, False]
        assert f" of {rows:,} rows were not sent" in said[-1]
        again = start_mlflow(address, tmp_path)
        try:
            logger["wait"] = 200.0
            train(run, name, resume=str(run), generations=rows, time_limit=None, logger=logger, **changes)
            returns = in_mlflow(run).returns
        finally:
            stop(again)
        assert [number for number, _ in returns] == list(range(rows))
