"""What fails often is counted exactly and logged a few times; an evaluation that fails does not end a run."""

import json
import os
import re
import sys

import commands
import numpy as np
import pytest
from heads import merge

import pyes
from pyes.algorithms.openai_es import OpenAIES
from pyes.errors import DivergedError, TaskError
from pyes.reports.replay import evaluate
from pyes.run import journal
from pyes.run.metrics import read_rows
from pyes.system import user_code

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


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
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


HOLLOW = {"network": {"init": "zero"}, "algorithm": {"learning_rate": 1e-6}, "evaluation": {"every": 2, "episodes": 1}}


def test_an_evaluation_that_fails_is_recorded_and_shown_and_the_run_goes_on(tmp_path, capsys):
    """At so small a learning rate, theta stays where the function is NaN."""
    run = tmp_path / "run"
    settings = merge(SETTINGS, {"task": {"factory": "user_functions:hollow"}, "run_dir": str(run), **HOLLOW})
    result = pyes.train(settings)
    assert (result.generations, result.stopped_by, result.objective) == (4, "generations", None)
    assert [int(record.status[0]) for record in _records(run, journal.Kind.EVALUATION)] == [2, 2, 2]
    assert [row["eval_return_mean"] for row in read_rows(run / "metrics.csv")] == ["", "nan", "", "nan"]
    shown = capsys.readouterr().err
    assert "evaluation failed" in shown
    assert "3 members or evaluation episodes failed" in shown
    assert (
        "all episodes of an evaluation failed (generation 2, 1 episode: the return is nan"
        in (run / "train.log").read_text()
    )
    assert np.isfinite(pyes.load(run).theta).all()


@pytest.mark.slow
def test_a_run_whose_evaluation_failed_goes_on_when_it_is_resumed(tmp_path):
    _train(tmp_path / "whole", "hollow", **HOLLOW)
    _train(tmp_path / "parts", "hollow", **HOLLOW, generations=2)
    result = _train(tmp_path / "parts", "hollow", **HOLLOW, resume=str(tmp_path / "parts"))
    assert (result.generations, result.objective) == (4, None)
    whole, parts = ((tmp_path / name / "journal.bin").read_bytes() for name in ("whole", "parts"))
    assert whole == parts
    (tmp_path / "parts" / "metrics.csv").unlink()
    assert _train(tmp_path / "parts", "hollow", **HOLLOW, resume=str(tmp_path / "parts")).objective is None
    assert (tmp_path / "parts" / "journal.bin").read_bytes() == whole


def test_a_final_evaluation_that_is_not_recorded_may_fail_too(tmp_path):
    result = _train(tmp_path / "run", "hollow", **merge(HOLLOW, {"evaluation": {"every": 100}}))
    assert (result.generations, result.objective) == (4, None)


@pytest.mark.slow
def test_a_generation_of_which_all_members_fail_ends_the_run(tmp_path):
    reason = r"ValueError: no value, not even one \(.*user_functions\.py:\d+ in broken\)"
    with pytest.raises(TaskError, match=rf"all 40 members failed: {reason} .*; see .*train\.log") as caught:
        _train(tmp_path / "run", "broken")
    assert caught.traceback[-1].name == "broken"  # what --debug ends in, with cluster=inline


FAULTY = (
    "task.env_id=faulty:Faulty-v0",
    "algorithm.population_size=4",
    "noise.entries=10000",
    "evaluation.every=0",
    "generations=1",
    "run_dir=run",
)
ON_PATH = {"PYTHONPATH": os.pathsep.join(sys.path)}
EVALUATE = ("evaluate", "run", "--episodes", "5")
REPLAY = ("replay", "run", "--generation", "0", "--member", "1")


@pytest.fixture(scope="module", autouse=True)
def server():
    """Have the process from which commands are forked started before what each test leaves behind is counted."""
    if sys.platform != "win32":
        from hosts import start_server  # POSIX alone has what its module imports

        start_server()


@pytest.fixture
def run(tmp_path):
    """Return the folder of a run whose environment had no fault."""
    assert commands.pyes("train", *FAULTY, "cluster=inline", cwd=tmp_path, **ON_PATH).returncode == 0
    return tmp_path / "run"


def test_an_evaluation_goes_on_after_an_episode_that_raises(run):
    faults = json.dumps({"fault": "raise", "every": 3})
    done = commands.pyes("evaluate", "run", "--episodes", "20", "--json", cwd=run.parent, FAULTY=faults, **ON_PATH)
    found = json.loads(done.stdout)
    whole = commands.pyes("evaluate", "run", "--episodes", "20", "--json", cwd=run.parent, **ON_PATH)
    failed = [each is None for each in found["returns"]]
    assert 0 < sum(failed) < 20
    assert [length == 0 for length in found["lengths"]] == failed
    expected = json.loads(whole.stdout)["returns"]
    assert [each for each in found["returns"] if each is not None] == [
        each for each, lost in zip(expected, failed, strict=True) if not lost
    ]
    assert re.fullmatch(r"faulty:Faulty-v0 raised in the episode of environment seed \d+: .*_fail\)", found["error"])
    said = commands.pyes("evaluate", "run", "--episodes", "20", cwd=run.parent, FAULTY=faults, **ON_PATH).stdout
    assert f"over {20 - sum(failed)} episodes" in said
    assert f"{sum(failed)} episodes failed: faulty:Faulty-v0 raised" in said


@pytest.mark.slow
@pytest.mark.parametrize("command", [EVALUATE, REPLAY], ids=["evaluate", "replay"])
@pytest.mark.parametrize(
    "fault",
    [
        "panic",
        "keyboard",
        "bytes",
        "no_text",
        "sys_exit",
        "close_raise",
    ],
)
def test_whatever_an_environment_raises_when_it_is_run_again_is_one_line(run, command, fault):
    faults = json.dumps({"fault": fault, "every": 1})
    done = commands.pyes(*command, cwd=run.parent, FAULTY=faults, **ON_PATH)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert re.fullmatch(
        r"pyes: error: faulty:Faulty-v0 raised in the episode of environment seed \d+: .*faulty\.py:\d+ in _fail\)",
        last,
    )
    assert "Traceback" not in done.stderr


TRAIN = ("train", *FAULTY[:-1], "run_dir=new", "cluster=inline")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "fault", "status"),
    [
        (TRAIN, "make_exit", 5),
        (TRAIN, "close_exit", 7),
        (EVALUATE, "close_exit", 7),
        (REPLAY, "make_exit", 5),
    ],
)
def test_an_environment_that_ends_its_process_is_named(run, command, fault, status):
    faults = json.dumps({"fault": fault, "every": 2**40})
    done = commands.started(*command, cwd=run.parent, FAULTY=faults, **ON_PATH)
    assert done.returncode == status
    assert re.fullmatch(
        r"pyes: error: this process has ended while .*faulty:Faulty-v0 was .*: by os\._exit, a crash or a signal",
        done.stderr.splitlines()[-1],
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["close_raise", "close_sys_exit", "close_panic", "close_hang"])
def test_an_environment_that_cannot_be_closed_is_named_in_the_log_and_the_run_goes_on(tmp_path, fault, monkeypatch):
    monkeypatch.setattr(user_code, "CLOSING_SECONDS", 0.5)
    task = {"env_id": "faulty:Faulty-v0", "env_kwargs": {"fault": fault, "every": 2}, "common_random_numbers": "none"}
    settings = {**SETTINGS, "task": task, "network": {}, "run_dir": str(tmp_path / "run"), "generations": 2}
    assert pyes.train(settings, display=False).generations == 2
    log = (tmp_path / "run" / "train.log").read_text()
    assert re.search(r"closing the environment of faulty:Faulty-v0 failed: .* \(.*faulty\.py:\d+ in close\)", log)
    assert "an episode failed: RuntimeError: the simulator is unhappy (" in log


DISCRETE = {"task": {"env_id": "CartPole-v1"}, "network": {}}
TOO_LARGE = [
    ({"name": "openai_es", "learning_rate": 1e38}, "adam"),
    ({"name": "openai_es", "learning_rate": 1e300}, "sgd"),
    ({"name": "ars", "learning_rate": 1e38}, None),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("algorithm", "optimizer"), TOO_LARGE)
def test_an_update_that_is_not_finite_ends_the_run(tmp_path, algorithm, optimizer):
    run = tmp_path / "run"
    where = {"cluster": {"name": "inline"}, "noise": {"entries": 10_000}, "run_dir": str(run), "generations": 3}
    settings = {**DISCRETE, **where, "algorithm": {**algorithm, "population_size": 8}}
    settings |= {"optimizer": {"name": optimizer}} if optimizer else {}
    for again in ({}, {"resume": str(run)}):
        with pytest.raises(DivergedError, match=r"generation 0: its update was too large, theta has a value of -?inf"):
            pyes.train(again or settings, display=False)
    assert not (run / "policy.safetensors").exists()
    assert np.isfinite(evaluate(run, episodes=1, generation=0).return_mean)


class Refusing(OpenAIES):
    """Learns from five generations: more than those with which an algorithm is checked before a run."""

    def _learn(self, population, returns):
        if self.generation == 5:
            raise TaskError("it does not learn from the sixth")
        super()._learn(population, returns)


def test_a_generation_that_the_algorithm_cannot_learn_from_is_recorded_once(tmp_path):
    algorithm = {"factory": "tests.training.test_failures:Refusing", "population_size": 4}
    settings = merge(SETTINGS, {"run_dir": str(tmp_path / "run"), "snapshot": {"every": 1}, "generations": 8})
    for again in ({**settings, "algorithm": algorithm}, {"resume": tmp_path / "run"}, {"resume": tmp_path / "run"}):
        with pytest.raises(TaskError, match="does not learn from the sixth"):
            pyes.train(again, display=False)
        assert [record.generation for record in _records(tmp_path / "run", journal.Kind.GENERATION)] == [*range(6)]
