"""benchmarks/peers*.py: what they make of rows and evaluations, and how pyes runs; the peers have their environment."""

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes.config import from_mapping

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def peers() -> Any:
    return importlib.import_module("peers_curves")


@pytest.fixture
def learning() -> Any:
    return importlib.import_module("peers_learning")


def curve(peers: Any, *means: float) -> list[Any]:
    """One evaluation every 30 seconds, after 1,000 timesteps each."""
    return [peers.Point(1000 * i, 30.0 * i, mean, 0.0) for i, mean in enumerate(means, start=1)]


def test_target_counts_from_the_first_evaluation_that_reaches_it(peers: Any) -> None:
    curves = [curve(peers, 1, 280, 100), curve(peers, 1, 2, 3, 300), curve(peers, 279.9)]
    found = peers.summary("pyes", curves, 280)
    assert found == ("pyes", 3, pytest.approx(1000 / 30), 2, 90, 3000, 280)
    assert "| pyes | 3 | 33 | 2/3 | 90 | 3,000 | 280.0 |" in peers.table([found], 280)


def test_target_that_no_seed_reaches_has_no_cost(peers: Any) -> None:
    found = peers.summary("pyes", [curve(peers, 1, 2)], 280)
    assert (found.reached, found.seconds, found.timesteps) == (0, math.inf, math.inf)
    assert "| 0/1 | - | - | 2.0 |" in peers.table([found], 280)


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        ({}, "loses to none"),
        ({"reached": 1, "seconds": 1.0}, "seconds to it (1 against 10, in 1/3 seeds)"),  # sooner, but less often
        ({"seconds": 9.0}, "seconds to it (9 against 10)"),
        ({"timesteps": 50}, "timesteps to it (50 against 100)"),
        ({"best": 301.0}, "best mean (301.0 against 300.0)"),
        ({"seeds": 2, "seconds": 99.0}, "seeds that reach it (2/2 against 2/3)"),  # more often, but later
    ],
)
def test_losses_are_said(peers: Any, peer: dict[str, Any], words: str) -> None:
    ours = peers.Summary("pyes", 3, 1000.0, 2, 10.0, 100, 300.0)
    assert words in peers.losses(ours, [ours._replace(title="PPO", **peer)])


def test_policies_are_evaluated_after_each_30_seconds_and_at_the_end(
    learning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "evaluated", lambda env_id, act: (0.0, 0.0))
    found = learning.Curve("any", limit=100.0, begun=0.0)
    for seconds, last in ((1, False), (29.9, False), (30, False), (59, False), (95, False), (99, False), (100, True)):
        found.offer(int(seconds), seconds, lambda: abs, last)
    assert [point.seconds for point in found.points] == [30, 95, 100]


def test_clock_stops_during_an_evaluation(learning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([40.0, 1040.0, 1050.0, 1060.0, 1100.0, 1200.0])  # at an update, then after its evaluation
    monkeypatch.setattr(learning.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(learning, "evaluated", lambda env_id, act: (0.0, 0.0))
    found = learning.Curve("any", limit=90.0, begun=0.0)
    found.updated(1, abs)
    found.updated(2, abs)
    with pytest.raises(learning.Over):
        found.updated(3, abs)
    assert [point.seconds for point in found.points] == [40, 90]


def test_trainings_of_other_lengths_do_not_mix(learning: Any, tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("task,method,seed,timesteps,seconds,mean,std\nhopper,ppo,100,1000,89.5,10,1\n")
    assert list(learning.learn(["hopper"], ["ppo"], 1, 1.5, tmp_path)) == []
    with pytest.raises(SystemExit, match="got a training of hopper of 90 seconds, expected at least 342"):
        list(learning.learn(["hopper"], ["ppo"], 1, None, tmp_path))


def test_every_task_has_settings_for_every_peer(peers: Any, learning: Any) -> None:
    assert learning.METHODS.keys() == peers.METHODS.keys()
    for task in peers.TASKS:
        for method in peers.METHODS.keys() - {"pyes"}:
            assert learning.published(method, task)


def test_targets_count_over_the_trainings_that_all_methods_have(peers: Any) -> None:
    reaches_half = curve(peers, -213, 40, 100)
    found = {
        "lunar_lander": {
            "pyes": {100: curve(peers, 280), 101: reaches_half},
            "ppo": {100: reaches_half, 102: curve(peers, 280)},
        },
        "hopper": {"pyes": {100: curve(peers, 3400)}},
    }
    assert peers.common(found) == [("lunar_lander", 100)]
    assert peers.reached(found, "pyes") == [30, 30, 30, 30]
    assert peers.reached(found, "ppo") == [60, math.inf, math.inf, math.inf]


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    records = importlib.import_module("peers_records")
    file, jobs = tmp_path / "speed.csv", [("hopper", "pyes"), ("hopper", "ars")]
    assert records.missing(file, jobs) == jobs
    records.append(file, ("case", "method", "seconds"), [("hopper", "ars", 1.5)])
    assert records.missing(file, jobs) == [("hopper", "pyes")]
    records.append(file, ("case", "method", "seconds"), [("hopper", "pyes", 2)])
    assert [row["seconds"] for row in records.read(file)] == ["1.5", "2"]
    assert records.missing(file, jobs) == []


@pytest.mark.slow
def test_every_training_of_pyes_has_settings_that_it_takes() -> None:
    runs, programs = importlib.import_module("peers_runs"), importlib.import_module("peers_programs")
    for name, case in programs.CASES.items():
        for method in ("pyes", "pyes_native") if case.native else ("pyes",):
            words = [*runs.overrides(method, name, 2, 5.0), "run_dir=any"]
            with initialize_config_module("pyes.conf", version_base="1.3"):
                values: Any = OmegaConf.to_container(compose("train", words), resolve=True)
            assert from_mapping(values).task.title == case.env_id


@pytest.mark.slow
def test_a_training_of_pyes_is_measured_from_outside() -> None:
    runs = importlib.import_module("peers_runs")
    peak = runs.Peak()
    for seconds in (0.3, 5.0):  # on a busy machine, the shorter time is over after one generation
        done = runs.run("pyes_native", "cart_pole", 1, seconds, peak.look)
        if done.seconds:
            break
    assert done.start > 0 < done.seconds
    assert done.timesteps >= done.episodes >= 200
    assert peak.processes >= 2
    assert peak.mebibytes > 10


def test_targets_are_counted_from_the_first_point_that_reaches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    blackbox = importlib.import_module("blackbox")
    values = iter([200.0, 100.0, 500.0, 1e-9, *[7.0] * 5000])
    monkeypatch.setattr(blackbox, "searches", lambda dim: {"any": lambda function, seed, budget: values})
    found = blackbox.reached("any", 5, "sphere", 0)
    assert found == [2, *[4] * 30]
    assert blackbox.shares([2, 501, 5000], 5) == [1 / 31, 3 / 31]


def test_a_folder_of_another_machine_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers, records = (importlib.import_module(name) for name in ("peers", "peers_records"))
    monkeypatch.setattr(records, "commit", lambda: "0000000")
    monkeypatch.setattr(sys, "argv", ["peers.py", "wire", "speed", "--folder", str(tmp_path)])
    measured: list[str] = []
    for part in peers.PARTS:
        monkeypatch.setitem(peers.PARTS, part, lambda options, part=part: measured.append(part))
    records.note(tmp_path, "speed", "make peers")
    peers.main()
    assert measured == ["wire", "speed"]
    monkeypatch.setattr(records, "processor", lambda: "another")
    with pytest.raises(SystemExit, match=r"speed was begun on a .*; give another folder"):
        peers.main()
    assert measured == ["wire", "speed"]
