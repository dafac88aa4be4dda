import json

import pytest
from made_runs import make_run, write_metrics

from pyes.errors import ConfigError, RunDirectoryError
from pyes.reports import tables


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


def test_markdown_has_a_row_a_group(two):
    assert tables.table([two], [200]).to_markdown().splitlines() == [
        "| LunarLanderContinuous-v3 | seeds | final evaluation | best evaluation | reached 200 | timesteps to 200 "
        "| episodes to 200 | seconds to 200 | timesteps a run | seconds a run |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| sigma 0.3 | 5 | 192.0 (190.0 to 194.0) | 202.0 (190.0 to 204.0) | 4/5 | 3,750 | 192 | 1.5 | 4,800 | 2.0 |",
        "| sigma 0.7 | 1 | - | - | 0/1 | - | - | - | 4,000 | 2.0 |",
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
    assert f"| {expected} |" in tables.table([tmp_path]).to_markdown()


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
    assert lines[0].startswith("| runs | seeds |")
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| CartPole-v1", "| a\\|b:c", "| named"]


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no runs to tabulate"):
        tables.table([])
    with pytest.raises(RunDirectoryError, match="no run directory at"):
        tables.table([tmp_path / "nope"])
