"""What a run says of its own trouble."""

import math

import numpy as np
import pytest
from samples import row

import pyes
from pyes.training.advice import Advice, verdict


def _said(stds, failed=(), first=0):
    advice = Advice()
    said = []
    for generation, std in enumerate(stds, start=first):
        values = row(generation, return_std=std, failed_members=int(generation in failed) * 4)
        said += advice.of(values, members=20, workers=2)
    return said


def test_a_run_whose_returns_never_differ_is_told_so_once():
    (text,) = _said([0.0] * 30)
    assert text.startswith("in each of 10 generations all members had the same return")


def test_returns_that_have_differed_or_are_those_of_a_resumed_run_may_be_equal():
    assert _said([1.0] + [0.0] * 30) == []
    assert _said([0.0] * 30, first=20) == []


def test_a_run_in_which_many_members_fail_is_told_so_once():
    (text,) = _said([1.0] * 9, failed=(3, 5))
    assert text.startswith("4 of 20 members failed in generation 3:")


def test_a_run_whose_observations_are_infinite_is_told_so_once(tmp_path, capsys):
    config = {
        "task": {"factory": "user_tasks:Infinite", "normalize_observations": True},
        "algorithm": {"population_size": 4},
        "generations": 3,
        "evaluation": {"every": 0},
        "cluster": {"name": "inline"},
        "run_dir": str(tmp_path / "run"),
    }
    pyes.train({**config, "task": {"name": "python", **config["task"]}}, display=False)
    assert (tmp_path / "run" / "train.log").read_text().count("in which some number is infinite") == 1


def test_a_run_with_more_workers_than_members_is_told_so_once():
    advice = Advice()
    said = [text for workers in (16, 20, 24, 24) for text in advice.of(row(0), members=20, workers=workers)]
    assert said == [
        "a generation has 20 members, so 4 of 24 workers have nothing to do; try algorithm.population_size=48"
    ]


@pytest.mark.parametrize(
    ("means", "std", "told"),
    [
        ([900, 1041, 1042, 1043, 1042, 1043], 2, True),  # Hopper with its default settings
        ([1041, 1042, 1043, 1042, 1043], 200, False),
        ([600, 700, 800, 900, 1043], 2, False),
        ([1000] * 9, 0, False),  # CartPole's kind, which has learned all
        ([9359] * 9, 1, False),
        ([-150] * 9, 1, False),
        ([float("nan")] * 9, float("nan"), False),
    ],
)
def test_a_center_that_stands_still_is_told_so_once(means, std, told):
    advice = _of_a_robot(-1000.0, lengths=[30, 1000])
    said = [text for mean in means for text in advice.of_evaluation(mean, std, 1000)]
    assert [text.startswith("the center's return stays near 1 a timestep") for text in said] == [True] * told


@pytest.mark.parametrize(("offset", "advised"), [(-0.5, "reward_offset_per_step=-1"), (-1.0, "larger algorithm.sigma")])
def test_what_is_advised_is_not_set_already(offset, advised):
    advice = _of_a_robot(-1000.0, lengths=[30, 1000], offset=offset)
    (text,) = (text for mean in [1042] * 9 for text in advice.of_evaluation(mean, 2, 1000))
    assert advised in text
    advice = Advice(-0.1, chance=False)
    assert not any("episodes" in text for mean in [-0.3] * 30 for text in advice.of_evaluation(mean, 0.1, 999))
    advice = Advice(-0.1, episodes=16)
    assert any("task.episodes=32" in text for mean in [-0.3] * 30 for text in advice.of_evaluation(mean, 0.1, 999))


@pytest.mark.parametrize(
    ("initial", "lengths", "return_mean", "told"),
    [
        (-1000.0, [30, 1000], 990.0, True),  # it fell, and stands
        (980.0, [1000, 1000], 990.0, True),  # it has stood from the start
        (190.0, [1000, 1000], 990.0, False),  # a pole that swung up: its episodes never end early
        (9.0, [9, 990], 990.0, False),  # CartPole's kind: the bonus is the whole reward
        (None, [1000, 1000], 990.0, False),  # it goes on, and had become better
    ],
)
def test_a_center_that_has_learned_to_stay_is_not_taken_for_one_that_stands_still(initial, lengths, return_mean, told):
    advice = _of_a_robot(initial, lengths, return_mean)
    assert bool([text for mean in [991.0] * 9 for text in advice.of_evaluation(mean, 2, 1000)]) is told


def _of_a_robot(initial, lengths, return_mean=990.0, offset=0.0):
    """Return the advice after generations with episodes of these mean lengths, of at most 1,000."""
    advice = Advice(initial, offset=offset)
    for generation, length in enumerate(lengths):
        values = row(generation, return_mean=return_mean, length_mean=length, episode_limit=1000, failed_members=0)
        assert not list(advice.of(values, members=20, workers=2))
    return advice


def test_a_function_has_no_bonus():
    advice = Advice(0.1, chance=False)
    assert not [text for mean in [0.97] * 9 for text in advice.of_evaluation(mean, 0.0, 1)]


def test_a_run_without_gain_is_told_so_once():
    advice = Advice(-0.1)
    (text,) = (text for mean in [-0.3] * 30 for text in advice.of_evaluation(mean, 0.1, 999))
    assert text.startswith("none of 10 evaluations was better than -0.1")
    assert not list(Advice(-0.1).of_evaluation(0.0, 0.1, 999))


@pytest.mark.parametrize("failed", [0, 5])
def test_an_evaluation_that_failed_is_no_gain(failed):
    advice = Advice(-0.1)
    means = [-0.3] * 10
    means[failed] = math.nan
    assert len([text for mean in means for text in advice.of_evaluation(mean, 0.1, 999)]) == 1


@pytest.mark.parametrize(
    ("initial", "best", "wrong"),
    [
        ((10.0, 1.0), (5, 9.0), True),
        ((10.0, 1.0), (5, 11.0), False),
        ((np.nan, np.nan), (5, 11.0), False),
        (None, (5, 11.0), False),
        ((10.0, 1.0), None, False),
    ],
)
def test_verdict_compares_with_the_untrained_center(initial, best, wrong):
    assert bool(verdict(initial, best)) is wrong


def test_a_run_says_that_it_begins_again(tmp_path, capsys):
    config = {
        "task": {"name": "function", "factory": "user_functions:sphere", "dim": 5}, "noise": {"entries": 1000},
        "algorithm": {"name": "openai_es", "population_size": 4, "restart": {"after": 2, "below": 1e9}},
        "cluster": {"name": "inline"}, "generations": 7, "run_dir": str(tmp_path / "run"),
    }  # fmt: skip
    pyes.train(config)
    shown, log = capsys.readouterr().err, (tmp_path / "run" / "train.log").read_text()
    for generation in (2, 5):
        text = f"generation {generation}: the attempt is given up, and another one begins"
        assert text in shown
        assert text in log
    assert log.count("given up") == 2


def test_a_run_says_what_it_sees(tmp_path, capsys):
    config = {
        "task": {"name": "function", "factory": "user_functions:constant", "dim": 5}, "noise": {"entries": 1000},
        "algorithm": {"population_size": 4}, "cluster": {"name": "inline"}, "generations": 12,
        "run_dir": str(tmp_path / "run"),
    }  # fmt: skip
    pyes.train(config)
    shown = capsys.readouterr().err
    log = (tmp_path / "run" / "train.log").read_text()
    assert "before training: evaluation 3.000 ± 0.000" in shown
    said = "in each of 10 generations all members had the same return, 3.000 in the last: "
    assert said in shown
    assert said in log
    assert "no evaluation was better than 3.000, that of the untrained center" in shown
