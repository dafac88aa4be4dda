import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from heads import hashes_of, merge

import pyes
import pyes.reports.export
from pyes.cluster.inline import InlineCluster
from pyes.errors import StorageError, TaskError
from pyes.reports import plots
from pyes.reports.replay import evaluate
from pyes.run import journal
from pyes.run.directory import RunDirectory
from pyes.run.metrics import read_rows
from pyes.system.packing import theta_hash
from pyes.training import loop

TINY = {
    "task": {"env_id": "faulty:Faulty-v0"},
    "algorithm": {"population_size": 8},
    "generations": 6,
    "evaluation": {"every": 2, "episodes": 5, "share": None},
    "snapshot": {"every": 2},
    "noise": {"entries": 100_000},
    "cluster": {"workers": 2},
}


def _train(path, **changes):
    return pyes.train(merge(TINY, {"run_dir": str(path), **changes}), display=False)


def test_run_leaves_what_it_promises(tmp_path, learning_curves):
    result = _train(tmp_path / "run")
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {
        "lock", "config.json", "train.log", "metrics.csv", "snapshots", "journal.bin", "policy.safetensors",
        "policy.json", "best.safetensors", "best.json", "learning_curve.png",
    }  # fmt: skip
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [row["generation"] for row in rows] == list("012345")
    assert [bool(row["eval_return_mean"]) for row in rows] == [False, True] * 3
    assert result.stopped_by == "generations"
    assert result.generations == 6
    assert result.timesteps == 6 * 8 * 10
    assert result.objective == pytest.approx(float(rows[-1]["eval_return_mean"]))
    assert theta_hash(pyes.load(tmp_path / "run").theta) == rows[-1]["theta_hash"]


@pytest.mark.slow
def test_a_run_draws_no_learning_curve_where_it_is_not_wanted(tmp_path, learning_curves):
    _train(tmp_path / "run", learning_curve=False)
    assert not (tmp_path / "run" / "learning_curve.png").exists()
    pyes.train({"resume": str(tmp_path / "run"), "generations": 7, "learning_curve": True}, display=False)
    assert (tmp_path / "run" / "learning_curve.png").exists()


def test_run_without_its_picture_ends_as_any_other(tmp_path, learning_curves, monkeypatch):
    def without_fonts(*arguments):
        raise ValueError("Failed to find font DejaVu Sans")

    monkeypatch.setattr(plots, "plot", without_fonts)
    assert _train(tmp_path / "run").stopped_by == "generations"
    assert "no learning curve: ValueError: Failed to find font" in (tmp_path / "run" / "train.log").read_text()


def test_evaluations_are_judged_by_their_own_limit_of_timesteps(tmp_path, monkeypatch):
    limits = []
    monkeypatch.setattr(loop.Advice, "of_evaluation", lambda self, mean, std, limit: limits.append(limit) or [])
    task = {"env_id": "CartPole-v1", "max_timesteps": "steps 5 then 40 at 99 generations"}
    _train(tmp_path / "run", task=task, cluster={"name": "inline"})
    assert limits == [40] * 3


def test_training_learns(tmp_path):
    result = _train(tmp_path / "run", generations=60, algorithm={"population_size": 32}, evaluation={"every": 60})
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert result.objective > -2 > float(rows[0]["return_mean"])


@pytest.mark.slow
def test_run_with_memory_goes_on_exactly(tmp_path):
    network = {"name": "lstm", "hidden": [4]}
    _train(tmp_path / "whole", network=network)
    _train(tmp_path / "parts", network=network, generations=3)
    _train(tmp_path / "parts", network=network, resume=str(tmp_path / "parts"))
    assert hashes_of(tmp_path / "whole") == hashes_of(tmp_path / "parts")


FORKS = """
import os, threading, pyes
seen = []
os.register_at_fork(before=lambda: seen.append((threading.active_count(), len(os.listdir("/proc/self/task")))))
pyes.train({"run_dir": "run", "task": {"env_id": "CartPole-v1"}, "generations": 1, "noise": {"entries": 10000}})
print(*seen)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_the_workers_parent_is_forked_before_any_thread(tmp_path):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # NumPy's own would count
    command = [sys.executable, "-c", FORKS]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(1, 1) (1, 1)"]  # the witness of the environment, and the parent


@pytest.mark.slow
def test_evaluations_and_snapshots_do_not_change_theta(tmp_path):
    _train(tmp_path / "often")
    _train(tmp_path / "never", evaluation={"every": 0}, snapshot={"every": 0})
    assert hashes_of(tmp_path / "often") == hashes_of(tmp_path / "never")


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [{"normalize_observations": False}, {"action_noise": 0.1}, {"frame_skip": 2}],
    ids=lambda s: next(iter(s)),
)
def test_settings_of_the_task_change_theta(tmp_path, setting):
    _train(tmp_path / "plain")
    _train(tmp_path / "changed", task=setting)
    assert hashes_of(tmp_path / "plain")[1:] != hashes_of(tmp_path / "changed")[1:]


@pytest.mark.slow
def test_reported_returns_are_the_tasks_own_whatever_the_offset(tmp_path):
    _train(tmp_path / "plain")
    _train(tmp_path / "offset", task={"reward_offset_per_step": -3.0})
    first, second = (read_rows(tmp_path / name / "metrics.csv") for name in ("plain", "offset"))
    assert [row["return_mean"] for row in first] == [row["return_mean"] for row in second]


@pytest.mark.slow
def test_least_reward_is_for_training_alone(tmp_path):
    task = {"env_id": "Pendulum-v1", "max_timesteps": 20}
    own = _train(tmp_path / "own", task=task, generations=1)
    least = _train(tmp_path / "least", task={**task, "reward_min": -1.0}, generations=1)
    first, second = (read_rows(tmp_path / name / "metrics.csv")[0] for name in ("own", "least"))
    assert float(first["return_mean"]) < -20.0 <= float(second["return_mean"])
    again = evaluate(tmp_path / "least", episodes=5)
    assert again.return_mean == pytest.approx(least.objective, rel=1e-12)
    assert min(again.returns) < -20.0
    assert own.objective < -20.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharing", "mirrored", "seeds"),
    [("none", True, 8), ("pair", True, 4), ("pair", False, 8), ("generation", True, 1)],
)
def test_common_random_numbers_share_environment_seeds(tmp_path, monkeypatch, sharing, mirrored, seeds):
    seen = []

    def spy(cluster, batch, evaluate=InlineCluster.evaluate):
        seen.append(batch.seeds)
        return evaluate(cluster, batch)

    monkeypatch.setattr(InlineCluster, "evaluate", spy)
    _train(
        tmp_path / "run",
        task={"common_random_numbers": sharing, "episodes": 3},
        cluster={"name": "inline"},
        generations=2,
        evaluation={"every": 0},
        algorithm={"name": "openai_es", "mirrored": mirrored},
    )
    for batch in seen:
        assert batch.shape == (8, 3)
        assert len(np.unique(batch)) == 3 * seeds
        if seeds == 4:
            np.testing.assert_array_equal(batch[::2], batch[1::2])
    assert not np.isin(seen[0], seen[1]).any()


def test_an_evaluation_is_over_the_episodes_that_did_not_fail(tmp_path):
    faulty = {"env_kwargs": {"fault": "raise", "every": 2}, "common_random_numbers": "none"}
    result = _train(tmp_path / "run", task=faulty)
    recording = journal.read(tmp_path / "run" / "journal.bin")
    (*_, last) = (recording[i] for i, entry in enumerate(recording.entries) if entry.kind == journal.Kind.EVALUATION)
    known = last.returns[last.status == 0]
    assert 0 < len(known) < 5
    assert result.objective == known.mean()
    (*_, row) = read_rows(tmp_path / "run" / "metrics.csv")
    assert float(row["eval_return_mean"]) == pytest.approx(known.mean())
    assert float(row["eval_return_std"]) == pytest.approx(known.std())
    assert int(row["eval_failed_episodes"]) == 5 - len(known)


def test_failed_episodes_of_a_final_evaluation_are_told_wherever_the_others_are(tmp_path, capsys):
    """It is recorded in the metrics alone."""
    run = tmp_path / "run"
    faulty = {"env_kwargs": {"fault": "raise", "every": 2}, "common_random_numbers": "none"}
    evaluation = {"every": 100, "episodes": 9, "share": None}
    pyes.train(merge(TINY, {"run_dir": str(run), "task": faulty, "evaluation": evaluation, "cluster": {"workers": 1}}))
    recording = journal.read(run / "journal.bin")
    recorded = sum(np.count_nonzero(getattr(recording[i], "status", 0)) for i in range(len(recording)))
    failed = int(read_rows(run / "metrics.csv")[-1]["eval_failed_episodes"])
    assert 0 < failed < 9
    shown = capsys.readouterr().err
    assert f"({failed} episodes failed)" in shown or failed == 1
    assert f"\n{recorded + failed} members or evaluation episodes failed" in shown
    card = (pyes.reports.export.export(run, tmp_path / "policy") / "README.md").read_text()
    assert f"over {9 - failed} episode" in card


def test_what_was_reached_is_saved_when_the_task_fails_for_good(tmp_path):
    with pytest.raises(TaskError, match=r"all 8 members failed: RuntimeError: the simulator is unhappy \(.*_fail\) \("):
        _train(tmp_path / "run", task={"env_kwargs": {"fault": "raise", "every": 1}}, snapshot={"every": 0})
    assert pyes.load(tmp_path / "run").generation == 0


def test_the_policy_is_saved_where_a_snapshot_has_no_room(tmp_path, monkeypatch):
    def refuse(self, generation, state):
        raise StorageError("cannot write it: No space left on device")

    monkeypatch.setattr(RunDirectory, "save_snapshot", refuse)
    with pytest.raises(StorageError) as caught:
        _train(tmp_path / "run")
    assert caught.value.__notes__ == [
        f"(the run is whole in its journal: pyes train resume={tmp_path / 'run'} writes what is missing)"
    ]
    assert pyes.load(tmp_path / "run").generation == 6


def test_resume_goes_on_exactly(tmp_path):
    _train(tmp_path / "whole", task={"normalize_observations": True})
    _train(tmp_path / "parts", task={"normalize_observations": True}, generations=3)
    result = _train(tmp_path / "parts", task={"normalize_observations": True}, resume=str(tmp_path / "parts"))
    assert result.generations == 6
    assert hashes_of(tmp_path / "whole") == hashes_of(tmp_path / "parts")
    seconds = [float(row["seconds"]) for row in read_rows(tmp_path / "parts" / "metrics.csv")]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize(
    ("budget", "stopped_by"),
    [
        ({"timesteps": 100}, "timesteps"),
        ({"time_limit": 1e-9}, "time_limit"),
        ({"target_return": -1e9}, "target_return"),
    ],
)
def test_first_budget_reached_ends_the_run(tmp_path, budget, stopped_by):
    result = _train(tmp_path / "run", **budget)
    assert result.stopped_by == stopped_by
    assert result.generations < 6


@pytest.mark.slow
def test_a_program_that_its_own_workers_import_trains_once(tmp_path):
    """Where workers are spawned, as on macOS, they import it under another name."""
    (tmp_path / "program.py").write_text(
        "import multiprocessing, pyes\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('spawn').Process(target=print)\n"
        "    worker.start()\n"
        "    worker.join()\n"
        "    raise SystemExit(worker.exitcode)\n"
        "pyes.train({'task': {'env_id': 'CartPole-v1'}, 'run_dir': 'run'})\n"
    )
    command = [sys.executable, "program.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "put the call under if __name__ ==" in ended.stderr
    assert not (tmp_path / "run").exists()


@pytest.fixture
def now(monkeypatch):
    """Seconds, in a list of one: 10 more after a generation, 4 after an evaluation, none otherwise."""
    now, evaluate = [0.0], InlineCluster.evaluate

    def slow(self, batch):
        now[0] += 4.0 if batch.evaluation else 10.0
        return evaluate(self, batch)

    monkeypatch.setattr(InlineCluster, "evaluate", slow)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize(("limit", "generations", "seconds"), [(35.0, 2, 28.0), (60.0, 4, 52.0)])
def test_no_generation_is_begun_that_would_end_after_the_time_limit(tmp_path, limit, generations, seconds):
    result = _train(tmp_path / "run", cluster={"name": "inline"}, time_limit=limit)
    assert (result.stopped_by, result.generations) == ("time_limit", generations)
    assert float(read_rows(tmp_path / "run" / "metrics.csv")[-1]["seconds"]) == seconds


def test_an_evaluation_of_the_start_that_takes_all_the_time_is_the_last_of_the_run(tmp_path, now):
    result = _train(tmp_path / "run", cluster={"name": "inline"}, time_limit=6.0)
    assert (result.stopped_by, result.generations, now) == ("time_limit", 0, [4.0])
    assert (tmp_path / "run" / "policy.safetensors").exists()


def test_the_last_center_is_evaluated_if_the_time_limit_passes_while_a_snapshot_is_saved(tmp_path, monkeypatch, now):
    monkeypatch.setattr(loop.ending, "try_to_save", lambda run: now.__setitem__(0, now[0] + 10.0))
    settings = {"evaluation": {"every": 100}, "snapshot": {"every": 1}, "cluster": {"name": "inline"}}
    result = _train(tmp_path / "run", time_limit=35.0, **settings)
    assert (result.stopped_by, result.generations) == ("time_limit", 2)
    assert read_rows(tmp_path / "run" / "metrics.csv")[-1]["eval_return_mean"]


def test_failed_members_are_counted_and_the_run_goes_on(tmp_path):
    _train(tmp_path / "run", task={"env_kwargs": {"fault": "raise", "every": 3}, "common_random_numbers": "none"})
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert sum(int(row["failed_members"]) for row in rows) > 0
    assert all(np.isfinite(float(row["return_mean"])) for row in rows)
    assert "the simulator is unhappy" in (tmp_path / "run" / "train.log").read_text()


@pytest.mark.slow
def test_resume_keeps_what_is_left_out(tmp_path):
    _train(tmp_path / "run", generations=2, algorithm={"sigma": 0.2}, noise={"entries": "auto"})
    result = pyes.train({"resume": str(tmp_path / "run"), "generations": 4}, display=False)
    assert result.generations == 4
    config = RunDirectory(tmp_path / "run").read_config()
    assert (config.algorithm.sigma, config.generations) == (0.2, 4)
    assert isinstance(config.noise.entries, int)
