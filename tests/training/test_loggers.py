"""Trackers get each row once, and whatever they do, the run is the same and does not wait."""

import json
import time
from pathlib import Path

import pytest

import pyes
from pyes.errors import ConfigError
from pyes.reports import trackers
from pyes.run.metrics import read_rows
from pyes.training import loggers

SETTINGS = {
    "task": {"name": "native", "env_id": "CartPole-v1"},
    "algorithm": {"population_size": 4},
    "generations": 5,
    "evaluation": {"every": 2, "episodes": 2},
    "noise": {"entries": 10_000},
    "cluster": {"name": "inline"},
}


def train(run, generations=5, **logger):
    path = {"resume": str(run)} if (run / "journal.bin").exists() else {"run_dir": str(run)}
    pyes.train({**SETTINGS, "generations": generations, "logger": logger, **path}, display=False)
    return run


def notes(run):
    return [json.loads(line) for line in (run / "notes.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def _users_modules(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Make the run without trackers."""
    return train(tmp_path_factory.mktemp("alone") / "run")


def test_a_tracker_of_ones_own_gets_each_row_once_over_a_resume(tmp_path, alone):
    run = train(tmp_path / "run", 3, factory="user_trackers:Notes", project="mine")
    train(run, 5, factory="user_trackers:Notes", project="mine")
    said = notes(run)
    assert said[0] == ["begin", "", "run", "mine", 0]
    assert [each[2] for each in said if each[0] == "log"] == [0, 1, 2, 3, 4]
    rows = read_rows(run / "metrics.csv")
    assert [each[1] for each in said if each[0] == "log"] == [int(row["timesteps"]) for row in rows]
    assert [each[1] for each in said if each[0] == "begin"] == ["", "+"]
    assert said[-1] == ["finish", ["policy.json", "policy.safetensors"]]
    assert (run / "journal.bin").read_bytes() == (alone / "journal.bin").read_bytes()
    assert trackers.send(run, "own") == 0


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("Full", "no room for another run"),
        pytest.param("Gone", "the server is gone", marks=pytest.mark.slow),
        pytest.param("Killed", "exit status 7", marks=pytest.mark.slow),
        pytest.param("Stuck", "took too long and was ended", marks=pytest.mark.slow),
        pytest.param("None", "user_trackers has no None", marks=pytest.mark.slow),
    ],
)
def test_a_tracker_that_fails_costs_one_warning(tmp_path, alone, monkeypatch, kind, line):
    monkeypatch.setattr(loggers, "_END_SECONDS", 5.0 if kind == "Stuck" else 30.0)
    begun = time.monotonic()
    run = train(tmp_path / "run", factory=f"user_trackers:{kind}")
    assert time.monotonic() - begun < 60.0
    warnings = [each for each in (run / "train.log").read_text().splitlines() if "logger own" in each]
    assert len(warnings) == 1
    assert line in warnings[0]
    assert f"pyes log {run} --to own" in warnings[0]
    assert (run / "journal.bin").read_bytes() == (alone / "journal.bin").read_bytes()
    assert (run / "policy.safetensors").read_bytes() == (alone / "policy.safetensors").read_bytes()


@pytest.mark.slow
def test_several_at_once_and_tensorboard_reads_the_rows(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = train(tmp_path / "run", names=["tensorboard"], factory="user_trackers:Notes")
    events = accumulator.EventAccumulator(str(run / "tensorboard")).Reload()
    rows = read_rows(run / "metrics.csv")
    shown = [(event.step, event.value) for event in events.Scalars("return_mean")]
    assert shown == [(int(row["timesteps"]), pytest.approx(float(row["return_mean"]))) for row in rows]
    assert "torch" not in (run / "loggers" / "tensorboard.log").read_text()
    assert notes(run)[-1][0] == "finish"


def test_a_run_that_has_ended_is_sent_later(alone, tmp_path):
    before = (alone / "journal.bin").read_bytes()
    assert trackers.send(alone, "tensorboard") == 5
    assert trackers.send(alone, "tensorboard") == 0
    assert list((alone / "tensorboard").iterdir())
    assert (alone / "journal.bin").read_bytes() == before


def test_unknown_trackers_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"logger\.names.*tensorboard"):
        train(tmp_path / "run", names=["sheets"])
