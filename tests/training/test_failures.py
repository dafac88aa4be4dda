"""What fails often is counted exactly and logged a few times; an evaluation that fails does not end a run."""

import re

import numpy as np
import pytest
from heads import merge

import pyes
from pyes.run import journal
from pyes.run.metrics import read_rows

SETTINGS = {
    "task": {"name": "function", "factory": "user_functions:sphere", "dim": 5},
    "network": {"bias": False},
    "algorithm": {"population_size": 40},
    "evaluation": {"every": 0},
    "snapshot": {"every": 0},
    "noise": {"entries": 100_000},
    "cluster": {"name": "inline"},
    "generations": 4,
}


def _train(run, function, **changes):
    task = {"factory": f"user_functions:{function}"}
    settings = merge(merge(SETTINGS, {"task": task, "run_dir": str(run)}), changes)
    return pyes.train(settings, display=False)


def _records(run, kind):
    recording = journal.read(run / "journal.bin")
    return [recording[i] for i, entry in enumerate(recording.entries) if entry.kind == kind]


@pytest.mark.parametrize("workers", [0, 2])
def test_members_that_fail_often_are_all_counted_and_few_are_logged(tmp_path, capsys, workers):
    cluster = {"name": "local", "workers": workers} if workers else {"name": "inline"}
    run = tmp_path / "run"
    settings = merge(SETTINGS, {"run_dir": str(run), "cluster": cluster, "generations": 5})
    settings = merge(settings, {"task": {"factory": "user_functions:unlucky"}, "algorithm": {"population_size": 1000}})
    pyes.train(settings)
    failed = sum(int(np.count_nonzero(record.status)) for record in _records(run, journal.Kind.GENERATION))
    assert 300 < failed < 700
    assert sum(int(row["failed_members"]) for row in read_rows(run / "metrics.csv")) == failed
    assert f"\n{failed} members or evaluation episodes failed" in capsys.readouterr().err
    log = (run / "train.log").read_text()
    assert log.count("Traceback") == 6  # three of each of the two errors
    assert len(log) < 20_000
    totals = re.findall(r"an episode failed: (\w+) in .*user_functions.py:\d+: [\d,]+ more like this, ([\d,]+)", log)
    assert sorted(name for name, _ in totals) == ["RuntimeError", "ZeroDivisionError"]
    assert sum(int(total.replace(",", "")) for _, total in totals) == failed
