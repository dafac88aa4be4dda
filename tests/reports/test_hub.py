import json
import shutil

import numpy as np
import pytest
import yaml

import pyes
from pyes.errors import ConfigError
from pyes.reports.export import export
from pyes.reports.replay import evaluate
from pyes.run.metrics import read_rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run of two generations, evaluated after the second."""
    folder = tmp_path_factory.mktemp("hub") / "run"
    config = {
        "seed": 3,
        "generations": 2,
        "run_dir": str(folder),
        "task": {"env_id": "CartPole-v1"},
        "network": {"name": "linear"},
        "algorithm": {"population_size": 4},
        "evaluation": {"every": 2, "episodes": 5, "share": None},
        "cluster": {"workers": 1},
    }
    return pyes.train(config, display=False).run_dir


def _front(folder):
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), text


def test_folder_is_a_policy_with_its_result(run, tmp_path):
    folder = export(run, tmp_path / "some" / "policy")
    front, text = _front(folder)
    known = evaluate(run, episodes=5)
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"]["type"] == "CartPole-v1"
    assert result["metrics"][0]["value"] == f"{known.return_mean:.2f} +/- {known.return_std:.2f}"
    assert (front["library_name"], front["tags"][0]) == ("pyes", "CartPole-v1")
    assert "over 5 episodes" in text
    assert pyes.load(folder).description()["theta_hash"] in text
    np.testing.assert_array_equal(pyes.load(folder).theta, pyes.load(run).theta)
    assert evaluate(folder, episodes=5) == known


def test_folder_of_a_policy_takes_another_one(run, tmp_path):
    export(run, tmp_path / "policy")
    export(run, tmp_path / "policy", generation=1)
    assert pyes.load(tmp_path / "policy").generation == 1


def test_a_policy_file_takes_the_settings_of_another_run_away(run, tmp_path):
    folder = export(run, tmp_path / "policy")
    shutil.copy(run / "policy.safetensors", tmp_path / "alone.safetensors")
    shutil.copy(run / "policy.json", tmp_path / "alone.json")
    export(tmp_path / "alone.safetensors", folder)
    assert not (folder / "config.json").exists()
    assert "settings of the training are not here" in (folder / "README.md").read_text()


@pytest.mark.slow
def test_a_center_of_another_task_than_that_of_the_settings_has_no_result(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    branch = {"resume": str(tmp_path / "run"), "force": True, "generations": 4}
    pyes.train(branch | {"task": {"env_kwargs": {"sutton_barto_reward": True}}}, display=False)
    assert "model-index" not in _front(export(tmp_path / "run", tmp_path / "before", generation=2))[0]
    assert "model-index" in _front(export(tmp_path / "run", tmp_path / "after", generation=4))[0]


def test_settings_of_the_folder_repeat_the_training(run, tmp_path):
    settings = json.loads((export(run, tmp_path / "policy") / "config.json").read_text())
    again = pyes.train({**settings, "run_dir": str(tmp_path / "again"), "cluster": {"workers": 1}}, display=False)
    np.testing.assert_array_equal(pyes.load(again.run_dir).theta, pyes.load(run).theta)
    assert not {"run_dir", "resume", "cluster"} & set(settings)


def test_settings_that_were_changed_on_the_way_are_not_said_to_repeat_it(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    branch = {"resume": str(tmp_path / "run"), "force": True, "generations": 4, "algorithm": {"sigma": 0.5}}
    text = (export(pyes.train(branch, display=False).run_dir, tmp_path / "policy") / "README.md").read_text()
    assert "so they do not repeat the training" in text
    assert "repeats it" not in text


def test_policy_that_was_not_evaluated_has_no_result(run, tmp_path):
    front, text = _front(export(run, tmp_path / "policy", generation=1))
    assert "model-index" not in front
    assert "has not been evaluated" in text


def test_policy_whose_evaluation_failed_has_no_result(tmp_path):
    """At so small a learning rate, theta stays where the function is NaN."""
    config = {
        "generations": 2,
        "run_dir": str(tmp_path / "run"),
        "task": {"name": "function", "factory": "user_functions:hollow", "dim": 5},
        "network": {"init": "zero"},
        "algorithm": {"name": "openai_es", "learning_rate": 1e-6},
        "evaluation": {"every": 2},
        "cluster": {"name": "inline"},
    }
    front, text = _front(export(pyes.train(config, display=False).run_dir, tmp_path / "policy"))
    assert "model-index" not in front
    assert "All episodes of its evaluation failed" in text
    assert front["tags"][0] == "user_functions:hollow"  # the name of a task of one's own


def test_best_center_is_said_to_be_chosen_by_its_evaluation(run, tmp_path):
    front, text = _front(export(run, tmp_path / "policy", generation="best"))
    assert "model-index" not in front
    assert "over 5 episodes, by which it was chosen" in text


def test_folder_of_a_file_has_no_settings(run, tmp_path):
    (tmp_path / "v1.0").mkdir()
    folder = export(export(run, tmp_path / "policy.safetensors"), tmp_path / "v1.0")
    assert not (folder / "config.json").exists()
    assert "settings of the training are not here" in _front(folder)[1]
    assert "What it came to in its run is not known here" in _front(folder)[1]


def test_episodes_of_an_evaluation_before_the_last_part_of_the_run_are_not_told(run, tmp_path):
    """The last evaluation of each part is in the metrics alone."""
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "journal.bin").unlink()
    rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.csv").write_text("".join([*rows, rows[-1].replace("1,", "2,", 1)]))
    text = _front(export(tmp_path / "run", tmp_path / "policy"))[1]
    assert "episodes" not in text.split("## Use")[0]
    assert ", on seeds that training does not use." in text


@pytest.mark.parametrize(("column", "text"), [("generation", "g"), ("eval_failed_episodes", "x")])
def test_a_damaged_file_of_metrics_hinders_no_export(run, tmp_path, column, text):
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "journal.bin").unlink()
    rows = [line.split(",") for line in (copy / "metrics.csv").read_text().splitlines()]
    place = rows[0].index(column)
    for row in rows[1:] if column != "generation" else rows[:1]:
        row[place] = text
    (copy / "metrics.csv").write_text("".join(f"{','.join(row)}\n" for row in rows))
    assert "episodes" not in _front(export(copy, tmp_path / "policy"))[1].split("## Use")[0]


def test_a_function_has_neither_videos_nor_episodes(tmp_path):
    config = {
        "generations": 1,
        "run_dir": str(tmp_path / "run"),
        "task": {"name": "function", "factory": "user_functions:sphere", "dim": 5},
        "cluster": {"name": "inline"},
    }
    text = _front(export(pyes.train(config, display=False).run_dir, tmp_path / "policy"))[1]
    assert "pyes video" not in text
    assert "make_env" not in text
    assert 'pyes.load(".").theta' in text


def test_folder_that_cannot_take_it_is_one_line(run, tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("README.md", "config.json", "policy.json"):
        (tmp_path / name[:3]).mkdir()
        (tmp_path / name[:3] / name).write_text("mine")
    refused = {run: "holds a run", tmp_path / "file": "cannot make the folder"}
    refused |= {tmp_path / "REA": "README.md is not of an", tmp_path / "con": "config.json is not of an"}
    refused |= {tmp_path / "pol": "policy.json is not of an"}
    for folder, message in refused.items():
        with pytest.raises(ConfigError, match=message) as error:
            export(run, folder)
        assert "\n" not in str(error.value)


def test_card_has_an_evaluation_that_was_made_at_the_end_alone(tmp_path):
    """It is in the metrics and in no record; here it is small."""
    config = {
        "generations": 50,
        "run_dir": str(tmp_path / "run"),
        "task": {"name": "function", "factory": "pyes.tasks.functions:quadratic", "dim": 3},
        "algorithm": {"name": "openai_es", "population_size": 50, "sigma": 0.01, "learning_rate": 0.05},
        "evaluation": {"every": 1000},
        "cluster": {"name": "inline"},
    }
    run = pyes.train(config, display=False).run_dir
    mean = float(read_rows(run / "metrics.csv")[-1]["eval_return_mean"])
    front, text = _front(export(run, tmp_path / "policy"))
    (result,) = front["model-index"][0]["results"]
    assert -0.01 < mean < 0
    assert float(result["metrics"][0]["value"].split(" +/- ")[0]) == pytest.approx(mean, rel=1e-2)
    assert "over 1 episode" in text
