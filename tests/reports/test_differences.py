"""`pyes diff`: the first setting, member or figure in which two runs differ."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyes import cli
from pyes.errors import RunDirectoryError
from pyes.reports.differences import compare
from pyes.run.journal import Evaluation, Generation, Journal, Start, read

START = Start(0, {"seed": 3, "task": {"env_id": "CartPole-v1", "episodes": 1}}, "table", "0", {"numpy": "2.0"})
MEMBERS = Generation(
    generation=1,
    theta_hash="1",
    returns=np.array([1.0, np.nan, 3.0]),
    lengths=np.array([1, 2, 3], np.uint8),
    status=np.array([0, 1, 0], np.uint8),
    observations=6,
    sums=np.array([0.5, 0.25]),
    behaviours=np.array([1, 2, np.nan, np.nan, 5, 6], np.float32),
)
EVALUATION = Evaluation(1, "1", np.array([1.0, 2.0]), np.zeros(2, np.uint8))
FIRST = replace(MEMBERS, generation=0, theta_hash="0")
RECORDS = [START, FIRST, EVALUATION, MEMBERS]


def make(run: Path, *records: Any) -> Path:
    run.mkdir()
    with Journal(read(run / "journal.bin")) as writer:
        for record in records:
            writer.append(record)
    return run


def test_a_run_that_has_recorded_nothing_is_named(tmp_path):
    one, other = make(tmp_path / "one", *RECORDS), make(tmp_path / "other")
    with pytest.raises(RunDirectoryError, match="other has recorded nothing yet"):
        compare(one, other)


def changed(array: Any, place: int, value: float) -> Any:
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (RECORDS, None),
        ([replace(START, versions={"numpy": "1.26"}), *RECORDS[1:]], None),
        ([START, FIRST, MEMBERS], None),  # evaluations decide nothing
        ([START, FIRST], None),  # as far as both have gone
        (
            [replace(START, settings=START.settings | {"task": {"env_id": "CartPole-v1", "episodes": 2}}), FIRST],
            "settings: task.episodes 1 and 2",
        ),
        (
            [replace(START, settings={"seed": 3, "task": {"name": "native", "env_id": "Acrobot-v1"}}), FIRST],
            "settings: task.env_id 'CartPole-v1' and 'Acrobot-v1'; task.name 'gymnasium' and 'native'; ",
        ),
        ([START, replace(FIRST, theta_hash="other")], "generation 0: theta_hash 0 and other"),
        ([START, FIRST, replace(EVALUATION, theta_hash="other")], "evaluation of center 1: theta_hash 1 and other"),
        (
            [START, FIRST, replace(MEMBERS, returns=changed(MEMBERS.returns, 2, 3.5))],
            "generation 1, member 2: return 3 and 3.5",
        ),
        (
            [START, FIRST, replace(MEMBERS, returns=changed(MEMBERS.returns, 1, 0))],
            "generation 1, member 1: return nan and 0",
        ),
        (
            [
                START,
                replace(
                    FIRST, lengths=changed(FIRST.lengths, 1, 9), behaviours=changed(FIRST.behaviours, 0, 7)
                ),
            ],
            "generation 0, member 0: behaviour 1, 2 and 7, 2",
        ),
        ([START, replace(FIRST, returns=FIRST.returns[:2])], "generation 0, 3 members and 2"),
        ([START, replace(FIRST, observations=7)], "generation 0: observations 6 and 7"),
        ([START, replace(FIRST, sums=FIRST.sums * 2)], "generation 0: sums"),
        ([START, FIRST, replace(EVALUATION, returns=np.arange(1.0, 6.0), status=np.zeros(5, np.uint8)), MEMBERS],
         None),  # with more episodes, which begin with the same ones
        ([START, FIRST, replace(EVALUATION, returns=np.array([1.0, 2.5])), MEMBERS],
         "evaluation of center 1, episode 1: return 2 and 2.5"),
        ([START, FIRST, replace(START, generation=1), MEMBERS],
         "generation 1: only {run} changes its settings here"),
    ],
)  # fmt: skip
def test_first_difference_is_named(records: list[Any], expected: str | None, tmp_path: Path):
    first, second = make(tmp_path / "first", *RECORDS), make(tmp_path / "second", *records)
    found = compare(first, second)
    assert (found.difference or "").startswith(expected.format(run=second) if expected else "")
    assert (found.difference is None) == (expected is None)
    assert found.generations == sum(isinstance(record, Generation) for record in records)


def test_a_key_that_an_older_version_lacks_has_its_default(tmp_path: Path):
    def with_offset(value: object) -> Start:
        task = {"env_id": "CartPole-v1", "episodes": 1, "reward_offset_per_step": value}
        return replace(START, settings=START.settings | {"task": task})

    first, second, other = (
        make(tmp_path / name, *RECORDS[1:1], start, *RECORDS[1:])
        for name, start in (("first", START), ("second", with_offset("auto")), ("other", with_offset(0)))
    )
    assert compare(first, second).difference is None
    assert compare(first, other).difference == "settings: task.reward_offset_per_step 'auto' and 0.0"


def test_command_says_equal_or_where_and_its_status_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one = make(tmp_path / "one", *RECORDS)
    other = make(tmp_path / "other", START, replace(FIRST, observations=7))
    assert cli.main(["diff", str(one), str(one)]) == 0
    assert cli.main(["diff", str(one), str(other)]) == 1
    assert cli.main(["diff", str(one), str(other), "--json"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "equal over 2 generations",
        "generation 0: observations 6 and 7",
        '{"generations": 1, "difference": "generation 0: observations 6 and 7"}',
    ]


def test_a_folder_without_a_journal_is_one_line(tmp_path: Path):
    with pytest.raises(RunDirectoryError, match="no journal at"):
        compare(make(tmp_path / "run", *RECORDS), tmp_path / "none")
