import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import commands
import pytest
from heads import count_of, until

import pyes
from pyes.config import from_mapping
from pyes.errors import ConfigError, JournalError, RunDirectoryError
from pyes.reports.export import export
from pyes.reports.replay import best_generation
from pyes.run import journal
from pyes.run.directory import RunDirectory
from pyes.run.journal import Journal, Kind
from pyes.run.metrics import MetricsWriter, read_rows
from pyes.training import ending

TINY = {
    "task": {"env_id": "CartPole-v1", "max_timesteps": 20},
    "algorithm": {"population_size": 4},
    "generations": 2,
    "evaluation": {"every": 2, "episodes": 2},
    "noise": {"entries": 10_000},
    "cluster": {"name": "inline"},
}


@pytest.fixture
def run(tmp_path):
    pyes.train({**TINY, "run_dir": str(tmp_path / "run")}, display=False)
    return tmp_path / "run"


def _go_on(run, **changes):
    return pyes.train({"resume": str(run), **changes}, display=False)


@pytest.mark.slow
def test_resume_goes_on_from_the_journal_alone(run, tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "journal.bin").write_bytes((run / "journal.bin").read_bytes())
    _go_on(run, generations=4)
    result = _go_on(
        tmp_path / "bare", generations=4, cluster={"name": "inline"}, evaluation={"every": 2, "episodes": 2}
    )
    assert result.generations == 4
    assert (tmp_path / "bare" / "journal.bin").read_bytes() == (run / "journal.bin").read_bytes()
    first, second = (read_rows(each / "metrics.csv") for each in (run, tmp_path / "bare"))
    assert [row["theta_hash"] for row in first] == [row["theta_hash"] for row in second]
    assert [row["eval_return_mean"] for row in first] == [row["eval_return_mean"] for row in second]
    assert second[0]["steps_per_second"] == ""


@pytest.mark.slow
@pytest.mark.parametrize("kept", [b"", b"generation,time"], ids=["gone", "torn"])
def test_resume_writes_the_rows_that_metrics_lack(run, kept):
    rows = read_rows(run / "metrics.csv")
    (run / "metrics.csv").write_bytes(kept)
    _go_on(run, generations=3)
    again = read_rows(run / "metrics.csv")
    assert [row["generation"] for row in again] == ["0", "1", "2"]
    for old, new in zip(rows, again, strict=False):
        for column in ("timesteps", "return_mean", "eval_return_mean", "theta_norm", "gradient_norm", "theta_hash"):
            assert old[column] == new[column]


def test_resume_refuses_a_run_whose_journal_is_gone(run):
    (run / "journal.bin").unlink()
    before = {path: path.read_bytes() for path in run.glob("*.csv")}
    with pytest.raises(JournalError, match="is missing or empty; restore it"):
        _go_on(run, generations=3)
    assert before == {path: path.read_bytes() for path in run.glob("*.csv")}


def test_an_exported_policy_is_no_run_to_go_on_with(run, tmp_path):
    """It has a configuration, too."""
    folder = export(run, tmp_path / "policy")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(RunDirectoryError, match="holds an exported policy without a journal"):
        _go_on(folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_resume_begins_a_run_that_was_killed_before_its_first_record(tmp_path):
    RunDirectory(tmp_path / "run").create(from_mapping({**TINY, "run_dir": str(tmp_path / "run")}))
    assert _go_on(tmp_path / "run").generations == 2


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"generations": 2}, {"timesteps": 1}, {"target_return": 1.0}])
def test_resume_of_a_run_that_has_reached_its_budget_changes_nothing(tmp_path, budget):
    run = tmp_path / "run"
    pyes.train({**TINY, "generations": None, **budget, "run_dir": str(run)}, display=False)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.suffix in (".bin", ".csv", ".safetensors")}
    assert _go_on(run).stopped_by == next(iter(budget))
    assert before == {path.name: path.read_bytes() for path in run.iterdir() if path.name in before}


@pytest.mark.slow
def test_a_run_that_had_reached_its_budget_says_what_to_go_on_with(tmp_path, capsys):
    config = {
        "task": {"name": "function", "factory": "user_functions:sphere", "dim": 5}, "generations": 3,
        "noise": {"entries": 1000}, "cluster": {"name": "inline"}, "run_dir": str(tmp_path / "run"),
    }  # fmt: skip
    pyes.train(config)
    metrics = tmp_path / "run" / "metrics.csv"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    pyes.train({"resume": str(tmp_path / "run")})  # the row of the last generation was left to write
    told = capsys.readouterr().err
    assert told.count("reached generations=3 after 3 generations") == 2
    assert "nothing was left" not in told
    used = read_rows(metrics)[-1]["timesteps"]
    for budget, larger in (({}, "generations=6"), ({"timesteps": 1}, f"timesteps={2 * int(used)}")):
        pyes.train({"resume": str(tmp_path / "run"), **budget})
        assert f"nothing was left to do; go on with a larger budget, as {larger}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["generations", "timesteps", "time_limit"])
def test_resume_evaluates_the_last_center_of_a_run_that_was_interrupted_in_its_last_generation(tmp_path, budget):
    run = tmp_path / "run"
    rare = {"evaluation": {"every": 50, "episodes": 2}, "run_dir": str(run)}
    whole = pyes.train({**TINY, **rare}, display=False)
    journal, *lines = (run / "journal.bin").read_bytes(), *(run / "metrics.csv").read_text().splitlines()
    last = read_rows(run / "metrics.csv")[-1]
    # As an interrupted run leaves it.
    without = {**last, "eval_return_mean": "", "eval_return_std": "", "eval_failed_episodes": ""}
    (run / "metrics.csv").write_text("\n".join([*lines[:-1], ",".join(without.values()), ""]))
    ends = {"generations": None, budget: {"generations": 2, "timesteps": 1, "time_limit": 1e-9}[budget]}
    again = _go_on(run, **ends)
    assert again.objective == whole.objective is not None
    assert again.stopped_by == budget
    row = read_rows(run / "metrics.csv")[-1]
    assert {**row, "seconds": last["seconds"]} == last
    assert float(row["seconds"]) > float(last["seconds"])
    assert (run / "journal.bin").read_bytes() == journal
    _go_on(run, **ends)
    assert len(read_rows(run / "metrics.csv")) == 2


def test_resume_refuses_changed_settings_with_old_and_new_value(run):
    with pytest.raises(ConfigError) as error:
        _go_on(run, seed=1, algorithm={"sigma": 0.2})
    assert str(error.value) == (
        "resume: these settings decide the run and cannot change: algorithm.sigma (was 0.1, got 0.2), "
        "seed (was 0, got 1); add force=true to continue with them, or start a new run"
    )


@pytest.mark.slow
def test_force_goes_another_way_and_records_it(run):
    before = (run / "journal.bin").read_bytes()
    result = _go_on(run, generations=4, force=True, algorithm={"sigma": 0.2, "population_size": 6})
    assert result.generations == 4
    assert (run / "journal.bin").read_bytes().startswith(before)
    recording = journal.read(run / "journal.bin")
    starts = [recording[i] for i, entry in enumerate(recording.entries) if entry.kind == journal.Kind.START]
    assert [(start.generation, start.settings["algorithm"]["sigma"]) for start in starts] == [(0, 0.1), (2, 0.2)]
    assert [row["sigma"] for row in read_rows(run / "metrics.csv")] == ["0.1", "0.1", "0.2", "0.2"]
    _go_on(run, generations=5)  # the new way is now the run's own
    with pytest.raises(ConfigError, match=r"algorithm.sigma \(was 0.2, got 0.3\)"):
        _go_on(run, generations=6, algorithm={"sigma": 0.3})


def test_force_makes_no_evaluation_of_the_last_center_that_was_due_under_other_settings(run, tmp_path):
    """As a kill in the last evaluation leaves the run."""
    recording = journal.read(run / "journal.bin")
    assert recording.entries[-1].kind == Kind.EVALUATION
    (tmp_path / "killed").mkdir()
    with Journal(journal.read(tmp_path / "killed" / "journal.bin")) as writer:
        for index in range(len(recording) - 1):
            writer.append(recording[index])
    task = {"max_timesteps": 7}
    _go_on(tmp_path / "killed", generations=4, force=True, task=task, cluster=TINY["cluster"], evaluation={"every": 2})
    after = journal.read(tmp_path / "killed" / "journal.bin").entries[len(recording) - 1 :]
    kinds = [(entry.kind, entry.generation) for entry in after]
    assert kinds[:2] == [(Kind.START, 2), (Kind.GENERATION, 2)]
    rows = read_rows(tmp_path / "killed" / "metrics.csv")
    assert [bool(row["eval_return_mean"]) for row in rows] == [False, False, False, True]
    assert float(rows[-1]["eval_return_mean"]) <= 7


def test_force_without_a_change_is_a_plain_resume(run, tmp_path):
    _go_on(run, generations=3, force=True)
    assert sum(entry.kind == journal.Kind.START for entry in journal.read(run / "journal.bin").entries) == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"network": {"init": "zero"}}, "network.init"), ({"noise": {"seed": 5}}, "noise.seed (was 0, got 5)")],
)
def test_force_cannot_change_network_or_noise(run, changes, named):
    with pytest.raises(ConfigError) as error:
        _go_on(run, generations=3, force=True, **changes)
    assert named in str(error.value)
    assert str(error.value).endswith("start a new run")


def test_force_cannot_change_the_centers_of_novelty_search(tmp_path):
    task = {**TINY["task"], "behaviour": "final_observation"}
    config = {**TINY, "task": task, "algorithm": {"name": "ns_es", "population_size": 4, "parents": 2}}
    pyes.train({**config, "run_dir": str(tmp_path / "run")}, display=False)
    before = (tmp_path / "run" / "journal.bin").read_bytes()
    with pytest.raises(
        ConfigError, match=r"^resume: .* cannot change: algorithm\.parents \(was 2, got 3\); start a new run$"
    ):
        _go_on(tmp_path / "run", generations=3, force=True, algorithm={"parents": 3})
    assert (tmp_path / "run" / "journal.bin").read_bytes() == before


@pytest.mark.slow
def test_force_makes_members_pairs_where_the_run_has_grown_to_an_odd_number(tmp_path):
    settings = {
        **TINY,
        "task": {"env_id": "Pendulum-v1", "max_timesteps": 20},
        "algorithm": {"name": "openai_es", "population_size": 4, "mirrored": False},
        "growth": {"timesteps": 100, "population_max": 8},
    }
    run = pyes.train({**settings, "run_dir": str(tmp_path / "run")}, display=False).run_dir
    assert _go_on(run, generations=4, force=True, algorithm={"mirrored": True}).generations == 4
    episodes = [int(row["episodes"]) for row in read_rows(run / "metrics.csv")]
    assert episodes == [4, 9, 13, 19]


def test_force_can_change_the_parents_of_the_genetic_algorithm(tmp_path):
    config = {**TINY, "algorithm": {"name": "ga", "population_size": 4, "parents": 2}, "run_dir": str(tmp_path / "run")}
    pyes.train(config, display=False)
    assert _go_on(tmp_path / "run", generations=3, force=True, algorithm={"parents": 3}).generations == 3


def test_resume_names_only_ways_out_that_there_are(run):
    with pytest.raises(ConfigError, match=r"cannot change: .*algorithm\.name .*; start a new run$"):
        _go_on(run, algorithm={"name": "ga"})


def test_force_takes_a_task_of_another_kind_with_other_keys(tmp_path):
    task = {"name": "native", "env_id": "CartPole-v1"}
    pyes.train({**TINY, "task": task, "run_dir": str(tmp_path / "run")}, display=False)
    task = {"name": "gymnasium", "env_id": "CartPole-v1", "max_timesteps": 20}
    assert _go_on(tmp_path / "run", generations=3, force=True, task=task).generations == 3


def test_force_takes_another_function_of_the_same_kind(tmp_path):
    task = {"name": "function", "factory": "pyes.tasks.functions:quadratic", "dim": 3}
    pyes.train({**TINY, "task": task, "run_dir": str(tmp_path / "run")}, display=False)
    other = {"factory": "pyes.tasks.functions:rastrigin"}
    assert _go_on(tmp_path / "run", generations=3, force=True, task=other).generations == 3


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["", "++"])
def test_resume_with_timesteps_alone_is_not_ended_by_generations(run, sign):
    again = commands.started("train", f"resume={run}", f"{sign}timesteps=500", cwd=run.parent)
    assert again.returncode == 0, again.stderr
    assert int(read_rows(run / "metrics.csv")[-1]["timesteps"]) >= 500
    assert _go_on(run, generations=20, timesteps=None).generations == 20
    result = _go_on(run, timesteps=1500)
    assert (result.stopped_by, result.generations > 20) == ("timesteps", True)


@pytest.mark.slow
def test_resume_goes_on_after_an_older_journal_was_restored(run):
    older = (run / "journal.bin").read_bytes()
    _go_on(run, generations=6, snapshot={"every": 1})
    whole = (run / "journal.bin").read_bytes()
    (run / "journal.bin").write_bytes(older)
    _go_on(run, generations=4)
    names = sorted(path.name for path in (run / "snapshots").iterdir())
    assert names == ["generation-00000003.safetensors", "generation-00000004.safetensors"]
    _go_on(run, generations=6)
    assert (run / "journal.bin").read_bytes() == whole


def test_force_without_resume_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="force: got true, expected false without resume=RUN"):
        pyes.train({**TINY, "run_dir": str(tmp_path / "run"), "force": True}, display=False)


def test_a_task_for_which_the_network_does_not_fit_is_refused(run):
    with pytest.raises(
        ConfigError, match="Acrobot-v1 needs a network of 6 inputs and 3 outputs, the run has one of 4 and 2"
    ):
        _go_on(run, generations=3, force=True, task={"env_id": "Acrobot-v1"})
    assert _go_on(run, generations=3).generations == 3  # it is the run that it was


def test_resume_on_another_kind_of_cluster_drops_the_keys_of_the_former(run):
    settings = json.loads((run / "config.json").read_text())
    settings["cluster"] = {"name": "socket", "listen": "tcp://127.0.0.1:0"}
    (run / "config.json").write_text(json.dumps(settings))
    assert _go_on(run, generations=3, cluster={"name": "inline"}).generations == 3


def test_no_run_is_one_line_and_makes_nothing(tmp_path):
    with pytest.raises(ConfigError, match="resume: got 5, expected a string or null"):
        pyes.train({"resume": 5}, display=False)
    with pytest.raises(RunDirectoryError, match="holds no run"):
        _go_on(tmp_path / "none")
    with pytest.raises(RunDirectoryError, match="no run directory at"):
        pyes.train(from_mapping({"resume": str(tmp_path / "none")}), display=False)
    assert not (tmp_path / "none").exists()


def test_settings_that_were_written_but_never_recorded_are_not_the_runs(run):
    """A head that was killed between config.json and the journal."""
    directory = RunDirectory(run)
    config = directory.read_config()
    directory.write_config(replace(config, seed=5, generations=7))
    assert _go_on(run).generations == 7
    assert directory.read_config().seed == 0


def test_objective_of_a_run_with_nothing_left_to_do_is_its_last_evaluation(tmp_path):
    config = {**TINY, "run_dir": str(tmp_path / "run"), "generations": 3}
    first = pyes.train(config, display=False)
    assert first.objective == pytest.approx(_go_on(tmp_path / "run").objective, rel=1e-8)


def test_objective_is_that_of_the_journals_last_evaluation_where_its_row_is_missing(tmp_path):
    """The run was killed between the two; the row before has the evaluation of another center."""
    run = tmp_path / "run"
    every = {"evaluation": {"every": 1, "episodes": 2, "share": None}, "task": {"env_id": "Pendulum-v1"}}
    first = pyes.train({**TINY, **every, "run_dir": str(run), "generations": 3}, display=False)
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(lines[:-1]))
    assert float(read_rows(run / "metrics.csv")[-1]["eval_return_mean"]) != first.objective
    assert _go_on(run).objective == pytest.approx(first.objective, rel=1e-8)


@pytest.mark.slow
def test_a_target_is_reached_by_the_present_center_alone(tmp_path):
    run = tmp_path / "run"
    every = {"evaluation": {"every": 2, "episodes": 2, "share": None}}
    pyes.train({**TINY, **every, "run_dir": str(run), "generations": 3}, display=False)
    *lines, _ = (run / "metrics.csv").read_text().splitlines()
    last = read_rows(run / "metrics.csv")[-1]
    without = {**last, "eval_return_mean": "", "eval_return_std": "", "eval_failed_episodes": ""}
    (run / "metrics.csv").write_text("\n".join([*lines, ",".join(without.values()), ""]))  # as if interrupted here
    result = _go_on(run, generations=None, target_return=-1e9)
    assert (result.generations, result.stopped_by) == (4, "target_return")
    assert _go_on(run).generations == 4


def test_another_task_has_no_evaluation_before_its_first(run):
    kept = {"generations": 3, "evaluation": {"every": 0}}
    assert _go_on(run, force=True, task={"env_id": "CartPole-v0"}, **kept).objective is None


def _mistyped(key, value):
    return lambda text: json.dumps({**json.loads(text), key: value})


DAMAGES = [
    (_mistyped("generatons", 5), "unknown key 'generatons': did you mean 'generations'"),
    (_mistyped("algorithm", {"sigma": math.nan}), "algorithm.sigma: got nan, expected a finite number"),
    (_mistyped("seed", 2**64), "seed: got 18446744073709551616, expected an integer"),
    (lambda text: text[: len(text) // 2], r"line \d+ column \d+"),
    (lambda text: "null", "configuration: got null, expected a mapping"),
    (lambda text: "[" * 100_000, "nested too deeply"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "named"), DAMAGES, ids=["key", "nan", "seed", "cut", "null", "deep"])
def test_a_configuration_that_cannot_be_used_is_named_and_left_alone(run, damage, named):
    path = run / "config.json"
    path.write_text(damage(path.read_text()))
    before = {each.name: each.read_bytes() for each in run.iterdir() if each.is_file()}
    for resumed in (lambda: _go_on(run), lambda: pyes.train(from_mapping({**TINY, "resume": str(run)}), display=False)):
        with pytest.raises(RunDirectoryError, match=rf"config\.json cannot be used: .*{named}.*force=true"):
            resumed()
    assert {each.name: each.read_bytes() for each in run.iterdir() if each.is_file()} == before | {
        "lock": (run / "lock").read_bytes()
    }


def test_force_says_that_it_replaces_a_configuration_that_cannot_be_used(run, capsys):
    (run / "config.json").write_text("null")
    kept = {"generations": 3, "cluster": {"name": "inline"}, "evaluation": {"every": 0}}
    assert pyes.train({"resume": str(run), "force": True, **kept}).generations == 3
    assert (run / "config.old-1.json").read_text() == "null"
    assert RunDirectory(run).read_config().generations == 3
    assert "config.json cannot be used: configuration: got null" in capsys.readouterr().err
    assert "it is now config.old-1.json" in (run / "train.log").read_text()


CHANGED = [
    ("return_mean", "999", "return_mean=999, the journal has"),
    ("seconds", "nan", "seconds='nan', expected a finite number"),
    ("theta_hash", "0123456789abcdef", "theta_hash=0123456789abcdef, the journal has"),
    ("eval_return_mean", "", "eval_return_mean=nothing, the journal has"),
    ("timesteps", "many", "timesteps=many, the journal has"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("column", "value", "said"), CHANGED)
@pytest.mark.parametrize("generation", [1, 3])
def test_a_row_that_is_not_what_the_journal_has_is_written_anew(tmp_path, capsys, generation, column, value, said):
    run = tmp_path / "run"
    evaluation = {"every": 2, "episodes": 2, "share": None}
    pyes.train({**TINY, "run_dir": str(run), "generations": 4, "evaluation": evaluation}, display=False)
    rows = read_rows(run / "metrics.csv")
    changed = [dict(row) for row in rows]
    changed[generation][column] = value
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in changed)]
    (run / "metrics.csv").write_text("\n".join(lines) + "\n")
    pyes.train({"resume": str(run), "generations": 5})
    again = read_rows(run / "metrics.csv")
    for old, new in zip(rows, again, strict=False):
        clock = ("seconds", "steps_per_second", "evaluate_seconds", "update_seconds", "idle_fraction")
        assert [old[key] for key in old if key not in clock] == [new[key] for key in new if key not in clock]
    assert len(again) == 5
    assert all(math.isfinite(float(row["seconds"])) for row in again)
    for text in (capsys.readouterr().err, (run / "train.log").read_text()):
        assert f"metrics.csv: generation {generation} has {said}" in text


@pytest.mark.slow
@pytest.mark.parametrize(("column", "value"), [("eval_return_mean", "2o.5"), ("eval_return_std", "")])
def test_a_damaged_evaluation_that_the_journal_lacks_is_written_anew(tmp_path, column, value):
    """The last one of a run is not recorded unless it was due."""
    run = tmp_path / "run"
    pyes.train({**TINY, "run_dir": str(run), "generations": 3}, display=False)
    rows = read_rows(run / "metrics.csv")
    changed = [*rows[:-1], {**rows[-1], column: value}]
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in changed)]
    (run / "metrics.csv").write_text("\n".join(lines) + "\n")
    _go_on(run)
    again = read_rows(run / "metrics.csv")
    assert [row["eval_return_mean"] for row in again] == [row["eval_return_mean"] for row in rows]
    assert "generation 2 has eval_return_mean=" in (run / "train.log").read_text()


@pytest.mark.slow
def test_a_best_center_of_the_last_evaluation_is_saved_where_that_failed_at_first(tmp_path, monkeypatch):
    """Two runs of three and four generations, whose last evaluations are not recorded, on a disk that is full."""
    run = tmp_path / "run"
    settings = {**TINY, "task": {"env_id": "CartPole-v1", "max_timesteps": 200}, "run_dir": str(run)}

    def full(run):
        raise ConfigError("cannot write best.safetensors: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ending, "save", full)
        with pytest.raises(ConfigError, match="No space left"):
            pyes.train({**settings, "generations": 3, "evaluation": {"every": 50, "episodes": 4}}, display=False)
        with pytest.raises(ConfigError, match="No space left"):
            _go_on(run, generations=4, evaluation={"every": 50, "episodes": 1})
    assert not (run / "best.safetensors").exists()
    means = [row["eval_return_mean"] for row in read_rows(run / "metrics.csv")]
    assert means[:2] == ["", ""]
    assert "" not in means[2:]
    _go_on(run, generations=5, evaluation={"every": 0, "episodes": 1})
    best = best_generation(run)
    assert pyes.load(run / "best.safetensors").generation == best
    assert best == (3 if float(means[2]) >= float(means[3]) else 4)


@pytest.mark.slow
def test_failures_of_all_parts_of_a_run_are_counted(tmp_path, capsys):
    run = tmp_path / "run"
    task = {"name": "function", "factory": "user_functions:unlucky", "dim": 5}
    settings = {**TINY, "task": task, "network": {"bias": False}, "algorithm": {"population_size": 100}}
    settings |= {"run_dir": str(run), "evaluation": {"every": 0}, "snapshot": {"every": 1}}
    pyes.train({**settings, "generations": 3}, display=False)
    pyes.train({"resume": str(run), "generations": 4}, display=False)
    pyes.train({"resume": str(run), "generations": 5, "force": True, "algorithm": {"learning_rate": 0.001}})
    failed = sum(int(row["failed_members"]) for row in read_rows(run / "metrics.csv"))
    assert failed > 10
    assert f"\n{failed} members or evaluation episodes failed" in capsys.readouterr().err


def test_rows_and_records_are_forced_to_disk_before_a_snapshot(tmp_path, monkeypatch):
    steps = []
    for kind, name in ((MetricsWriter, "sync"), (journal.Journal, "sync"), (RunDirectory, "save_snapshot")):
        whole = getattr(kind, name)

        def noted(self, *arguments, whole=whole, step=f"{kind.__name__}.{name}"):
            steps.append(step)
            return whole(self, *arguments)

        monkeypatch.setattr(kind, name, noted)
    pyes.train({**TINY, "run_dir": str(tmp_path / "run"), "snapshot": {"every": 1}}, display=False)
    places = [i for i, step in enumerate(steps) if step == "RunDirectory.save_snapshot"]
    assert len(places) >= 2
    for before, place in zip([-1, *places], places, strict=False):
        assert {"MetricsWriter.sync", "Journal.sync"} <= set(steps[before + 1 : place])


def test_rows_that_nobody_has_changed_stay_as_they_are(tmp_path):
    run = tmp_path / "run"
    pyes.train({**TINY, "run_dir": str(run), "generations": 3}, display=False)  # ends with an unrecorded evaluation
    before = (run / "metrics.csv").read_text()
    pyes.train({"resume": str(run), "generations": 5}, display=False)
    assert (run / "metrics.csv").read_text().startswith(before)
    assert "metrics.csv" not in (run / "train.log").read_text()


@pytest.mark.slow
def test_best_is_of_the_task_of_now(tmp_path):
    """The second one never rewards, so that every evaluation of the first one is above all of it."""
    task = {"env_id": "CartPole-v1", "max_timesteps": 500}
    settings = {**TINY, "task": task, "evaluation": {"every": 1, "episodes": 2}}
    run = pyes.train({**settings, "run_dir": str(tmp_path / "run")}, display=False).run_dir
    limit = {"max_timesteps": "steps 100 then 500 at 3 generations"}  # evaluations have the larger one
    _go_on(run, generations=3, force=True, task={"reward_min": -1.0, **limit})  # on which no evaluation depends
    assert best_generation(run) <= 3
    _go_on(run, generations=5, force=True, task={"env_kwargs": {"sutton_barto_reward": True}})
    assert best_generation(run) > 3
    assert pyes.load(run, "best").task["env_kwargs"] == {"sutton_barto_reward": True}


def test_a_run_that_goes_on_stays_where_it_is(run, tmp_path):
    with pytest.raises(ConfigError, match=r"run_dir: got .*elsewhere, but the run stays in .*run; leave run_dir out"):
        _go_on(run, generations=4, run_dir=str(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()
    assert _go_on(run, generations=4, run_dir=str(run)).generations == 4


@pytest.mark.slow
def test_a_run_whose_folder_is_renamed_says_so_and_makes_no_other_one(tmp_path):
    ends = {"generations": None, "time_limit": 3.0}

    def train():
        with pytest.raises(RunDirectoryError, match="run has been moved or deleted; resume the run where it is now"):
            pyes.train({**TINY, **ends, "snapshot": {"every": 1}, "run_dir": str(tmp_path / "run")}, display=False)

    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train)
        until(lambda: count_of(tmp_path / "run") > 2, "some generations")
        (tmp_path / "run").rename(tmp_path / "renamed")
        training.result()
    assert [each.name for each in tmp_path.iterdir()] == ["renamed"]
    assert "only journal and metrics are written" in (tmp_path / "renamed" / "train.log").read_text()
    generations = journal.read(tmp_path / "renamed" / "journal.bin").generations
    assert _go_on(tmp_path / "renamed", generations=generations + 1, time_limit=None).generations > generations
