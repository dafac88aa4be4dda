"""Loggers by themselves, without the process in which they live."""

import io
import os
import sys
from pathlib import Path

import pytest
from samples import row

from pyes.errors import PyesError
from pyes.reports.loggers import companion
from pyes.reports.loggers.base import LoggedRun
from pyes.reports.loggers.companion import _Rows
from pyes.reports.loggers.memory import Memory
from pyes.run.metrics import MetricsWriter


def test_tensorboard_shows_a_run_that_went_on_without_rows_of_which_it_is_not_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setitem(sys.modules, "torch", None)  # it is not needed
    from pyes.reports.loggers.tensorboard import TensorBoard

    with MetricsWriter(tmp_path / "metrics.csv") as writer:
        for generation in range(4):
            writer.write(row(generation, return_mean=1.0))
    rows = _Rows(tmp_path / "metrics.csv")
    run = LoggedRun(tmp_path, "pyes", {"seed": 3}, {})
    for certain, tried, value in ((0, 0, 1.0), (2, 4, 2.0)):  # the second part knows two of the first part's four rows
        board = TensorBoard(run)
        assert board.held(certain, tried) == certain
        rows.skip(certain)
        board.log([{**each, "return_mean": value} for each in rows.take(10)])
        board.close(failed=False)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    shown = [(event.step, event.value) for event in events.Scalars("return_mean")]
    assert shown == [(0, 1.0), (100, 1.0), (200, 2.0), (300, 2.0)]


def test_rows_that_are_sent_later_have_the_times_at_which_they_were_made(tmp_path: Path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from pyes.reports.loggers.tensorboard import TensorBoard

    with MetricsWriter(tmp_path / "metrics.csv") as writer:
        for generation in range(3):
            writer.write(row(generation, seconds=10.0 * generation))
    os.utime(tmp_path / "metrics.csv", (1e9, 1e9))
    board = TensorBoard(LoggedRun(tmp_path, "pyes", {}, {}))
    board.log(_Rows(tmp_path / "metrics.csv").take(10))
    board.close(failed=False)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.wall_time for event in events.Scalars("return_mean")] == [1e9 - 20, 1e9 - 10, 1e9]


def test_rows_are_whole_and_come_once_while_the_file_grows(tmp_path: Path):
    path = tmp_path / "metrics.csv"
    rows = _Rows(path)
    with MetricsWriter(path) as writer:
        rows.skip(1)
        assert rows.take(10) == []
        for generation in range(3):
            writer.write(row(generation, eval_return_mean=None))
        first = rows.take(10)
        writer.write(row(3, eval_return_mean=2.5))
        with open(path, "a") as file:
            file.write("4,400,")  # a row that is being written
        second = rows.take(10)
    assert [each["generation"] for each in first] == [1, 2]
    assert [each["generation"] for each in second] == [3]
    assert "eval_return_mean" not in first[0]
    assert second[0]["eval_return_mean"] == 2.5
    assert "theta_hash" not in first[0]


def test_a_companion_outlives_a_killed_run_for_a_while_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And gives way to a longer wait of a run that lives."""
    slept: list[float] = []
    monkeypatch.setattr(companion.sys, "stdin", io.StringIO("finished\n"))
    monkeypatch.setattr(companion.time, "sleep", slept.append)
    monkeypatch.setattr(companion.os, "_exit", slept.append)
    fed = companion.Companion({"run": str(tmp_path), "name": "any"}, lambda text, warning: None)
    companion._listen(fed, wait=200.0)
    assert fed.ended.is_set()
    assert fed.ending == "finished"
    assert slept == [companion._ALONE + 200.0, 1]


def test_memory_that_is_damaged_is_as_none(tmp_path: Path):
    (tmp_path / "loggers").mkdir()
    memory = Memory(tmp_path, "wandb")
    memory.sent, memory.tried, memory.own["id"] = 3, 5, "abc"
    memory.save()
    again = Memory(tmp_path, "wandb")
    assert (again.sent, again.tried, again.own) == (3, 5, {"id": "abc"})
    (tmp_path / "loggers" / "wandb.json").write_text('{"sent"')
    damaged = Memory(tmp_path, "wandb")
    assert (damaged.sent, damaged.tried, damaged.own) == (0, 0, {})
    for text in ("[]", "5", '{"sent": null}', '{"sent": 3, "own": []}', '{"sent": true}'):
        (tmp_path / "loggers" / "wandb.json").write_text(text)
        damaged = Memory(tmp_path, "wandb")
        assert (damaged.sent, damaged.tried, damaged.own) == (0, 0, {})


def test_columns_go_by_their_names_and_damage_is_named(tmp_path: Path):
    path = tmp_path / "metrics.csv"
    path.write_text("generation,return_std,return_mean,theta_hash\n0,1.5,7,12\n1,2.5\n")
    assert _Rows(path).take(1) == [{"generation": 0.0, "return_std": 1.5, "return_mean": 7.0}]
    with pytest.raises(PyesError, match=r"metrics\.csv is damaged at generation 1; "):
        _Rows(path).take(2)
