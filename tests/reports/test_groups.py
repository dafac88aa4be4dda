import json
import shutil

import pytest
from made_runs import make_run, write_metrics

import pyes
from pyes.reports.groups import group, once
from pyes.reports.runs import read


def _groups(*paths):
    return [(each.label, len(each.runs)) for each in group(read(paths))]


def _rewrite(run, **algorithm):
    """Give a run an algorithm that this version may not have."""
    config = json.loads((run / "config.json").read_text())
    config["algorithm"] |= algorithm
    (run / "config.json").write_text(json.dumps(config))


def test_runs_that_differ_in_seed_alone_are_one_group(tmp_path):
    for i in range(3):
        make_run(tmp_path / f"{i}", seed=i)
    make_run(tmp_path / "other", seed=0, algorithm={"sigma": 0.7})
    assert _groups(tmp_path) == [("sigma 0.3", 3), ("sigma 0.7", 1)]


def test_copies_and_repetitions_of_a_run_count_once(tmp_path):
    for name, seed in (("0", 0), ("1", 1), ("0 again", 0)):
        make_run(tmp_path / name, seed=seed)
    shutil.copytree(tmp_path / "1", tmp_path / "backup")
    hashes = {"0": "aa", "1": "bb", "0 again": "aa", "backup": "bb"}
    for name, digest in hashes.items():
        file = tmp_path / name / "metrics.csv"
        head, *rows = file.read_text().splitlines()
        place = head.split(",").index("theta_hash")
        cells = [row.split(",") for row in rows]
        for row in cells:
            row[place] = digest
        file.write_text("\n".join([head, *(",".join(row) for row in cells)]) + "\n")
    (both,) = group(once(read([tmp_path])))
    assert [run.path.name for run in both.runs] == ["0", "1"]


def test_runs_that_are_equal_stay_together(tmp_path):
    for name in "ab":
        make_run(tmp_path / name)
    assert _groups(tmp_path) == [("OpenAI-ES", 2)]


def test_single_group_is_called_by_its_algorithm(tmp_path):
    assert _groups(make_run(tmp_path / "run")) == [("OpenAI-ES", 1)]


def test_conditions_do_not_part_runs_of_different_seeds(tmp_path):
    make_run(tmp_path / "0", seed=0, generations=10, cluster={"workers": 1})
    make_run(tmp_path / "1", seed=1, target_return=5, cluster={"name": "inline"}, evaluation={"every": 1})
    assert _groups(tmp_path) == [("OpenAI-ES", 2)]


def test_conditions_part_runs_where_a_seed_is_there_twice(tmp_path):
    for workers in (1, 2):
        for seed in (0, 1):
            make_run(tmp_path / f"{workers}{seed}", seed=seed, cluster={"workers": workers})
    assert _groups(tmp_path) == [("1 worker", 2), ("2 workers", 2)]


def test_algorithms_with_episodes_are_named_by_both(tmp_path):
    for i, (name, optimizer) in enumerate([("openai_es", None), ("nevergrad", "CMA"), ("xyz", None)]):
        for episodes in (1, 5):
            run = make_run(tmp_path / f"{i}{episodes}", task={"episodes": episodes}, algorithm={"sigma": 0.1 * (i + 1)})
            _rewrite(run, name=name, optimizer=optimizer)
    assert [label for label, _ in _groups(tmp_path)] == [
        "OpenAI-ES, 1 episode",
        "OpenAI-ES, 5 episodes",
        "Nevergrad CMA, 1 episode",
        "Nevergrad CMA, 5 episodes",
        "xyz, 1 episode",
        "xyz, 5 episodes",
    ]


def test_runs_without_a_configuration_go_by_their_names(tmp_path):
    write_metrics(tmp_path / "a", [1, 2])
    write_metrics(tmp_path / "b" / "0", [1, 2])
    write_metrics(tmp_path / "c" / "0", [1, 2])
    make_run(tmp_path / "d")
    assert _groups(tmp_path) == [("a", 1), (str(tmp_path / "b/0"), 1), (str(tmp_path / "c/0"), 1), ("OpenAI-ES", 1)]


@pytest.mark.slow
def test_run_whose_settings_were_changed_on_the_way_is_no_seed_of_its_last_settings(tmp_path):
    settings = {
        "task": {"env_id": "CartPole-v1", "max_timesteps": 20},
        "algorithm": {"population_size": 4, "sigma": 0.1},
        "cluster": {"name": "inline"},
        "generations": 2,
    }
    pyes.train({**settings, "run_dir": str(tmp_path / "changed")}, display=False)
    change = {"resume": str(tmp_path / "changed"), "generations": 3, "force": True, "algorithm": {"sigma": 0.5}}
    pyes.train(change, display=False)
    other = {"seed": 1, "algorithm": {"population_size": 4, "sigma": 0.5}, "run_dir": str(tmp_path / "other")}
    pyes.train(settings | other, display=False)
    assert _groups(tmp_path) == [("algorithm.sigma=0.1 until generation 2", 1), ("settings unchanged", 1)]
    assert _groups(tmp_path / "changed") == [("ARS, algorithm.sigma=0.1 until generation 2", 1)]
    pyes.train(settings | {"run_dir": str(tmp_path / "before")}, display=False)
    assert _groups(tmp_path / "before", tmp_path / "changed") == [
        ("sigma 0.1, settings unchanged", 1),
        ("sigma 0.5, algorithm.sigma=0.1 until generation 2", 1),
    ]
