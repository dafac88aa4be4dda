"""benchmarks/peers.py: what it makes of evaluations; the trainings themselves run when its environment is made."""

import math
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import peers

    return peers


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
        ({"reached": 1, "seconds": 1.0, "timesteps": 1}, "loses to none"),  # sooner, but less often
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
    peers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "evaluated", lambda env_id, act: (0.0, 0.0))
    found = peers.Curve("any", limit=100.0, begun=0.0)
    for seconds, last in ((1, False), (29.9, False), (30, False), (59, False), (95, False), (99, False), (100, True)):
        found.offer(int(seconds), seconds, lambda: abs, last)
    assert [point.seconds for point in found.points] == [30, 95, 100]


def test_clock_stops_during_an_evaluation(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([40.0, 1040.0, 1050.0, 1060.0, 1100.0, 1200.0])  # at an update, then after its evaluation
    monkeypatch.setattr(peers.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(peers, "evaluated", lambda env_id, act: (0.0, 0.0))
    found = peers.Curve("any", limit=90.0, begun=0.0)
    found.updated(1, abs)
    found.updated(2, abs)
    with pytest.raises(peers.Over):
        found.updated(3, abs)
    assert [point.seconds for point in found.points] == [40, 90]


def test_every_task_has_settings_for_every_peer(peers: Any) -> None:
    for task in peers.TASKS:
        for method in peers.METHODS.keys() - {"pyes"}:
            assert peers.published(method, task)
