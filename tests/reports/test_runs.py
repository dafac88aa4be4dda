import errno
import os
import re

import numpy as np
import pytest
from made_runs import make_run

import pyes
from pyes.errors import RunDirectoryError
from pyes.reports import report, runs
from pyes.run import journal
from pyes.run.journal import Evaluation, Generation, Journal, Start
from pyes.run.metrics import COLUMNS


def _one(path):
    (run,) = runs.read([path])
    return run


@pytest.mark.parametrize("x", runs.X_AXES)
def test_curve_reads_its_column(tmp_path, x):
    first = {"timesteps": 1000, "seconds": 0.5, "generation": 0, "episodes": 64}[x]
    assert _one(make_run(tmp_path / "run")).curve(x)[0][0] == first


def test_curve_is_of_evaluations_where_there_are_any(tmp_path):
    x, y = _one(make_run(tmp_path / "run", evaluations=[(1, 20), (3, 40)])).curve("timesteps")
    np.testing.assert_array_equal(x, [2000, 4000])
    np.testing.assert_array_equal(y, [20, 40])
    np.testing.assert_array_equal(_one(make_run(tmp_path / "other")).curve("timesteps")[1], [1, 2, 3, 4])


def test_evaluation_is_that_of_the_center_after_the_update_of_its_row(tmp_path):
    evaluated = make_run(tmp_path / "run", evaluations=[(0, 20), (3, 40)])
    np.testing.assert_array_equal(_one(evaluated).curve("generation")[0], [1, 4])
    np.testing.assert_array_equal(_one(make_run(tmp_path / "other")).curve("generation")[0], [0, 1, 2, 3])


def test_curve_of_evaluations_begins_with_the_initial_center(tmp_path):
    config = {
        "task": {"name": "function", "factory": "user_functions:sphere", "dim": 5, "env_kwargs": {"center": 1.0}},
        "noise": {"entries": 1000}, "cluster": {"name": "inline"}, "generations": 4, "run_dir": str(tmp_path / "run"),
        "evaluation": {"every": 2}, "network": {"init": "zero"},
    }  # fmt: skip
    pyes.train(config, display=False)
    run = _one(tmp_path / "run")
    assert run.initial == -5.0
    for x, first in (("generation", 2), ("timesteps", run.evaluations[0]["timesteps"])):
        axis, returns = run.curve(x)
        assert (axis[0], returns[0], axis[1]) == (0, -5.0, first)
    (tmp_path / "run" / "journal.bin").unlink()
    assert len(_one(tmp_path / "run").curve("generation")[0]) == 2


@pytest.mark.slow
def test_an_evaluation_of_an_earlier_task_is_not_the_last_one(tmp_path):
    run = str(tmp_path / "run")
    settings = {"task": {"env_id": "CartPole-v1"}, "noise": {"entries": 10_000}, "cluster": {"name": "inline"}}
    pyes.train({**settings, "run_dir": run, "generations": 2, "evaluation": {"every": 2}}, display=False)
    assert _one(tmp_path / "run").final > 7
    shorter = {"task": {"max_timesteps": 7}, "evaluation": {"every": 0}, "cluster": settings["cluster"]}
    pyes.train({**shorter, "resume": run, "force": True, "generations": 3}, display=False)
    read = _one(tmp_path / "run")
    assert (len(read.evaluations), read.final, read.ends_in_failure) == (1, None, False)
    assert report._row(read)[-2] == "-"
    assert report._turning_points(read) == {"the beginning": 0, "the end": 3}


def test_columns_are_arrays_with_nan_where_there_is_no_number(tmp_path):
    make_run(tmp_path / "run", evaluations=[(2, 40)])
    (run,) = pyes.read([str(tmp_path / "run")])
    np.testing.assert_array_equal(run["eval_return_mean"], [np.nan, np.nan, 40, np.nan])
    assert list(run.columns) == [name for name in COLUMNS if name != "theta_hash"]
    assert {(each.dtype.str, each.shape) for each in run.columns.values()} == {("<f8", (4,))}
    with pytest.raises(KeyError, match="there is no column 'return'; expected one of generation, timesteps"):
        run["return"]


def test_column_that_this_version_does_not_write_is_there(tmp_path):
    file = make_run(tmp_path / "run") / "metrics.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([f"{lines[0]},temperature", *(f"{line},{i}" for i, line in enumerate(lines[1:])), ""]))
    np.testing.assert_array_equal(_one(tmp_path)["temperature"], [0, 1, 2, 3])


@pytest.mark.parametrize("mean", [9.5, np.nan])
def test_curve_begins_with_the_evaluation_of_the_initial_center(tmp_path, mean):
    evaluated, other = (make_run(tmp_path / name, evaluations=[(1, 20)]) for name in "ab")
    start = Start(0, {}, "table", "hash", {})
    generation = Generation(0, "hash", np.ones(2), np.ones(2, np.uint8), np.zeros(2, np.uint8), 0, np.empty(0))
    evaluation, later = (Evaluation(g, "hash", np.full(2, mean), np.zeros(2, np.uint8)) for g in (0, 2))
    for run, records in ((evaluated, (start, evaluation, later)), (other, (start, generation, evaluation))):
        with Journal(journal.read(run / "journal.bin")) as written:
            for record in records:
                written.append(record)
    first, second = (_one(run).curve(x) for run, x in ((evaluated, "generation"), (other, "generation")))
    np.testing.assert_array_equal(first, [[0, 2], [9.5, 20]] if mean == 9.5 else [[2], [20]])
    np.testing.assert_array_equal(second, [[2], [20]])
    (evaluated / "journal.bin").write_bytes(b"no journal at all")
    np.testing.assert_array_equal(_one(evaluated).curve("timesteps"), [[2000], [20]])


def test_read_run_that_is_named_twice_is_there_once(tmp_path):
    make_run(tmp_path / "all" / "0")
    assert len(runs.read([tmp_path / "all", tmp_path / "all" / "0"])) == 1


def test_read_configuration_parts_settings_from_conditions(tmp_path):
    run = _one(make_run(tmp_path / "run", seed=7, target_return=3, algorithm={"sigma": 0.5}))
    assert run.seed == 7
    assert run.settings["algorithm.sigma"] == 0.5
    assert run.conditions["generations"] == 200
    assert not {"seed", "run_dir", "snapshot.every", "task.factory"} & {*run.settings, *run.conditions}


@pytest.mark.parametrize(("last", "expected"), [(40, 40), (41, 40), (39, None), ("", None)])
def test_target_is_that_of_a_run_whose_last_evaluation_reached_it(tmp_path, last, expected):
    run = _one(make_run(tmp_path / "run", evaluations=[(1, 50), (3, last)], target_return=40))
    assert run.target == expected


def test_read_configuration_is_the_journals_where_its_file_is_lost(tmp_path):
    config = {
        "task": {"name": "function", "factory": "user_functions:sphere", "dim": 5}, "noise": {"entries": 1000},
        "cluster": {"name": "inline"}, "generations": 1, "run_dir": str(tmp_path / "run"),
    }  # fmt: skip
    pyes.train(config, display=False)
    whole = _one(tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    assert (_one(tmp_path / "run").seed, _one(tmp_path / "run").settings) == (whole.seed, whole.settings)


def test_read_folder_of_runs_in_natural_order_without_those_that_have_not_begun(tmp_path):
    for i in (10, 9, 1):
        make_run(tmp_path / "multirun" / "day" / f"{i}")
    (tmp_path / "multirun" / "day" / "11").mkdir()
    (tmp_path / "multirun" / "day" / "11" / "metrics.csv").write_text(",".join(COLUMNS) + "\n")
    assert [run.path.name for run in runs.read([tmp_path / "multirun"])] == ["1", "9", "10"]


def test_runs_that_links_lead_to_are_read_once(tmp_path):
    run = make_run(tmp_path / "runs" / "one")
    (tmp_path / "figure").mkdir()
    (tmp_path / "figure" / "best").symlink_to(run)
    (tmp_path / "figure" / "again").symlink_to(tmp_path / "figure")
    (tmp_path / "figure" / "up").symlink_to(tmp_path)
    assert [each.path for each in runs.read([tmp_path / "figure"])] == [tmp_path / "figure" / "best"]
    (tmp_path / "runs" / "latest").symlink_to(run)
    assert [each.path for each in runs.read([tmp_path / "runs"])] == [run]


def test_read_leaves_out_a_last_row_cut_short_and_returns_that_are_not_finite(tmp_path):
    run = make_run(tmp_path / "run", returns=("nan", 2, "inf", 4, 5))
    (run / "metrics.csv").write_text((run / "metrics.csv").read_text()[:-20])
    np.testing.assert_array_equal(_one(run).curve("timesteps")[1], [2, 4])


def _error(path):
    with pytest.raises(RunDirectoryError) as error:
        runs.read([path])
    assert "\n" not in str(error.value)
    return str(error.value)


def test_read_missing_and_empty_runs_are_one_line(tmp_path):
    assert "no run directory at" in _error(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    metrics = tmp_path / "empty" / "metrics.csv"
    assert "no metrics.csv" in _error(metrics.parent)
    for text in ("", ",".join(COLUMNS) + "\n"):
        metrics.write_text(text)
        assert "no generations yet" in _error(metrics.parent)
    assert "1 runs below" in _error(tmp_path)
    metrics.write_text("a,b\n1,2\n")
    assert "no column" in _error(metrics.parent)
    metrics.write_bytes(b"\xff\xfe\n" * 9)
    assert "cannot read" in _error(metrics.parent)


def test_read_damaged_configuration_is_one_line(tmp_path):
    run = make_run(tmp_path / "run")
    for text in ('{"seed": ', '{"seed": [1]}', '{"seed": 1, "timesteps": [3]}', '{"target_return": "x"}'):
        (run / "config.json").write_text(text)
        assert re.search(r"configuration of .* is damaged: .* \(config\.json\)", _error(run))


def test_a_folder_that_cannot_be_read_is_refused_rather_than_left_out(tmp_path):
    make_run(tmp_path / "runs" / "0")
    with pytest.raises(RunDirectoryError, match=r"cannot read .*runs/1: Permission denied; make it readable"):
        runs._refuse_folder(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "runs" / "1")))
    runs._refuse_folder(FileNotFoundError(errno.ENOENT, "gone", "x"))


def test_metrics_that_are_a_folder_are_one_line(tmp_path):
    (tmp_path / "run" / "metrics.csv").mkdir(parents=True)
    assert "it is a directory; move it away" in _error(tmp_path / "run")


def test_the_hash_is_that_of_the_last_row_that_was_read(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "metrics.csv").write_text((run / "metrics.csv").read_text() + "4,5000\n")  # a damaged row
    read = _one(run)
    assert (read.theta_hash, len(read.rows)) == ("00ff00ff00ff00ff", 4)
    assert runs.read([read]) == [read]
