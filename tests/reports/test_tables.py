import json

import numpy as np
import pytest
from made_runs import make_run, write_metrics

import pyes
from pyes.errors import ConfigError, RunDirectoryError
from pyes.reports import tables
from pyes.run import journal
from pyes.run.journal import Evaluation, Journal, Start


@pytest.fixture
def two(tmp_path):
    """Five seeds of one configuration, of which four reach 200, and one run of another that has no evaluation yet."""
    for seed in range(5):
        evaluations = [(1, 100 + seed), (2, 200 + seed if seed else 150), (3, 190 + seed)]
        make_run(tmp_path / f"{seed}", seed, evaluations=evaluations, timesteps=1000 + 100 * seed)
    make_run(tmp_path / "9", algorithm={"sigma": 0.7})
    return tmp_path


def test_row_has_medians_least_and_greatest(two):
    first, second = tables.table([two], [200, 203.5]).rows
    assert (first.label, first.seeds) == ("sigma 0.3", [0, 1, 2, 3, 4])
    assert first.final_evaluation == tables.Spread(192, 190, 194)
    assert first.best_evaluation == tables.Spread(202, 190, 204)
    assert first.targets == [
        tables.Reached(200, 4, 3750, 192, 1.5),  # of the seeds 1 to 4
        tables.Reached(203.5, 1, 4200, 192, 1.5),
    ]
    assert (first.timesteps, first.seconds) == (4800, 2.0)
    assert second.final_evaluation is None
    assert second.targets[0] == tables.Reached(200, 0, None, None, None)


def test_a_last_evaluation_that_failed_is_named_and_no_older_one_stands_for_it(tmp_path):
    for seed in range(4):
        make_run(tmp_path / f"{seed}", seed, evaluations=[(1, 100 + seed), (3, "nan" if seed == 3 else 200 + seed)])
    made = tables.table([tmp_path])
    assert made.rows[0].final_evaluation == tables.Spread(201, 200, 202)
    assert made.rows[0].best_evaluation == tables.Spread(200.5, 103, 202)
    assert made.rows[0].failed == 1
    assert "sigma" not in made.notes()[0]
    assert "the last evaluation failed in 1 of 4 runs" in made.to_markdown().replace("\n", " ")


def test_the_initial_center_counts_and_has_cost_nothing(tmp_path):
    run = make_run(tmp_path / "run", evaluations=[(1, -120), (3, -110)])
    with Journal(journal.read(run / "journal.bin")) as written:
        written.append(Start(0, {"algorithm": {"factory": "not_here:Mine"}}, "table", "hash", {}))
        written.append(Evaluation(0, "hash", np.full(2, -100.0), np.zeros(2, np.uint8)))
    (row,) = tables.table([run], [-115, -105]).rows
    assert row.final_evaluation == tables.Spread(-110, -110, -110)
    assert row.best_evaluation == tables.Spread(-100, -100, -100)
    assert row.targets == [tables.Reached(target, 1, 0, 0, 0) for target in (-115, -105)]


def test_evaluations_in_a_task_that_the_run_has_no_more_do_not_count(tmp_path):
    def settings(center):
        task = {"name": "function", "factory": "user_functions:sphere", "dim": 5, "env_kwargs": {"center": center}}
        return {"task": task, "cluster": {"name": "inline"}, "network": {"init": "zero"}, "evaluation": {"every": 1}}

    run = str(tmp_path / "run")
    pyes.train({**settings(0.1), "noise": {"entries": 1000}, "generations": 2, "run_dir": run}, display=False)
    assert tables.table([run], [-1]).rows[0].targets[0].reached == 1
    pyes.train({"resume": run, "force": True, "task": settings(9.0)["task"], "generations": 4}, display=False)
    row = tables.table([run], [-1]).rows[0]
    assert row.targets == [tables.Reached(-1, 0, None, None, None)]
    assert row.best_evaluation.max < -300


def test_targets_are_numbers_or_one(two):
    assert [each.target for each in tables.table([two], 200).rows[0].targets] == [200]
    with pytest.raises(ConfigError, match=r"targets: got \['200'\], expected a list, each item a finite number"):
        tables.table([two], ["200"])


def test_markdown_has_a_row_a_group(two):
    head, empty, *rows = tables.table([two], [200]).to_markdown().splitlines()
    assert (head, empty) == ("LunarLanderContinuous-v3", "")
    assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in (rows[0], *rows[2:4])] == [
        ["runs", "seeds", "final evaluation", "best evaluation", "reached 200", "timesteps to 200", "episodes to 200",
         "seconds to 200", "timesteps", "seconds"],
        ["sigma 0.3", "5", "192.0 (190.0 to 194.0)", "202.0 (190.0 to 204.0)", "4/5", "3,750", "192", "1.5", "4,800",
         "2.0"],
        ["sigma 0.7", "1", "-", "-", "0/1", "-", "-", "-", "4,000", "2.0"],
    ]  # fmt: skip


@pytest.fixture
def three(tmp_path):
    """Three configurations over five seeds, of which the third shares none with the others."""
    finals = {0.3: (50, 60, 70, 80, 90), 0.7: (450, 450, 480, 500, 500), 0.9: (40, 50, 60, 70, 80)}
    for i, (sigma, values) in enumerate(finals.items()):
        for seed, value in enumerate(values, start=5 * (i == 2)):
            make_run(tmp_path / f"{i}{seed}", seed, evaluations=[(1, value)], algorithm={"sigma": sigma})
    return tmp_path


def test_intervals_and_tests_are_a_second_table(three):
    made = tables.table(three)
    lines = made.to_markdown().splitlines()
    assert lines[2:13] == [
        "| runs      | seeds |       final evaluation |        best evaluation | timesteps | seconds |",
        "| --------- | ----: | ---------------------: | ---------------------: | --------: | ------: |",
        "| sigma 0.3 |     5 | 70.00 (50.00 to 90.00) | 70.00 (50.00 to 90.00) |     4,000 |     2.0 |",
        "| sigma 0.7 |     5 | 480.0 (450.0 to 500.0) | 480.0 (450.0 to 500.0) |     4,000 |     2.0 |",
        "| sigma 0.9 |     5 | 60.00 (40.00 to 80.00) | 60.00 (40.00 to 80.00) |     4,000 |     2.0 |",
        "",
        "| final evaluation |   mean (95 % interval) | difference |      p | pairs |",
        "| ---------------- | ---------------------: | ---------: | -----: | ----: |",
        "| sigma 0.3        | 70.00 (58.00 to 82.00) |          - |      - |     - |",
        "| sigma 0.7        | 476.0 (456.0 to 496.0) |     +406.0 | 0.0625 |     5 |",
        "| sigma 0.9        | 60.00 (48.00 to 72.00) |          - |      - |     0 |",
    ]
    assert max(map(len, lines)) <= 100
    values = json.loads(json.dumps(made.to_mapping()))["rows"]
    assert values[0]["final_mean"] == {"mean": 70, "low": 58, "high": 82}
    assert [row["comparison"] for row in values] == [
        None,
        {"to": "sigma 0.3", "pairs": 5, "difference": 406, "p": 0.0625},
        {"to": "sigma 0.3", "pairs": 0, "difference": None, "p": None},
    ]


def test_single_runs_have_no_intervals(tmp_path):
    make_run(tmp_path / "run", evaluations=[(1, 3)])
    assert len(tables.table(tmp_path).to_markdown().splitlines()) == 5


def test_arguments_of_the_environment_are_the_task_too(tmp_path):
    for gravity in (10, 30):
        task = {"env_id": "Pendulum-v1", "env_kwargs": {"g": gravity}}
        for seed in range(3):
            make_run(tmp_path / f"{gravity}-{seed}", seed, evaluations=[(1, -gravity)], task=task)
    assert [row.comparison for row in tables.table(tmp_path).rows] == [None, None]


def test_task_has_a_first_group_of_its_own(tmp_path):
    for i, (task, sigma) in enumerate((task, sigma) for task in ("CartPole-v1", "Pendulum-v1") for sigma in (0.1, 0.2)):
        for seed in (1, 2):
            settings = {"task": {"env_id": task}, "algorithm": {"sigma": sigma}}
            make_run(tmp_path / f"{i}{seed}", seed, evaluations=[(1, 10 * i + i * seed)], **settings)
    rows = tables.table(tmp_path).rows
    assert [row.comparison for row in rows] == [
        None,
        tables.Comparison("CartPole-v1, sigma 0.1", 2, 11.5, 0.5),
        None,
        tables.Comparison("Pendulum-v1, sigma 0.1", 2, 11.5, 0.5),
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.0,), "0"),
        ((-0.00012345, 0.0), "-0.0000617 (-0.0001234 to 0.0000000)"),
        ((9.5, 475.0), "242.2 (9.5 to 475.0)"),
        ((-1234.5,), "-1,234"),
        ((6543210.0,), "6,543,210"),
    ],
)
def test_markdown_gives_four_digits_of_the_largest(tmp_path, values, expected):
    for seed, value in enumerate(values):
        make_run(tmp_path / f"{seed}", seed, evaluations=[(1, value)])
    assert f" {expected} |" in tables.table([tmp_path]).to_markdown()


def test_mapping_is_json(two):
    values = json.loads(json.dumps(tables.table([two], [200]).to_mapping(), allow_nan=False))
    assert values["task"] == "LunarLanderContinuous-v3"
    assert values["rows"][0]["final_evaluation"] == {"median": 192, "min": 190, "max": 194}
    assert values["rows"][1]["targets"][0]["timesteps"] is None
    assert [path.rsplit("/", 1)[1] for path in values["rows"][0]["runs"]] == list("01234")


def test_runs_of_several_tasks_and_strange_names_make_a_whole_table(tmp_path):
    make_run(tmp_path / "0", task={"env_id": "CartPole-v1"})
    make_run(tmp_path / "1", task={"name": "python", "factory": "a|b:c"})
    write_metrics(tmp_path / "named", [1])
    lines = tables.table([tmp_path]).to_markdown().splitlines()
    assert lines[0].startswith("| runs ")
    assert [line.split("  ")[0].removesuffix(" |") for line in lines[2:]] == ["| CartPole-v1", "| a\\|b:c", "| named"]


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no runs to tabulate"):
        tables.table([])
    with pytest.raises(RunDirectoryError, match="no run directory at"):
        tables.table([tmp_path / "nope"])
