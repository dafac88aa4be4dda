"""What a search for settings shows: tables, the comment of its recipe, its figure."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from pyes.reports import trials
from pyes.reports.trials import Found, Trial

DEFAULTS = Trial(0, {}, {900: -150.0})
BEST = Trial(2, {"policy": "linear", "algorithm.sigma": 0.0123456}, {100: -180.0, 300: -130.0, 900: -110.0})


def values(policy: str, sigma: float) -> dict[str, float | str]:
    return {"policy": policy, "algorithm.sigma": sigma}


@pytest.fixture
def found() -> Found:
    tried = [
        DEFAULTS,
        Trial(1, values("small", 0.5), {100: -190.0}),
        BEST,
        Trial(3, values("linear", 0.02), {100: -185.0, 300: -170.0}),
        Trial(4, values("small", 0.9), {100: -math.inf}),
        Trial(5, values("linear", 0.3), {100: -200.0}),
        Trial(6, values("small", 0.4), {100: -199.0}),
    ]
    confirmed = {0: [-150.0, -140.0, -160.0], 2: [-112.0, -110.0, -108.5]}
    return Found(tried, BEST, confirmed, {"algorithm.sigma": 0.75, "policy": 0.25}, 900, 2)


def test_tables_have_the_whole_runs_and_what_mattered(found: Found):
    assert trials.to_markdown(found).splitlines() == [
        "| trial | settings | mean of seeds 0 to 1 | confirmed: median (least to greatest) |",
        "| --- | --- | --- | --- |",
        "| 2 | policy=linear, sigma=0.0123 | -110.00 | -110.00 (-112.00 to -108.50) |",
        "| 0 | the defaults | -150.00 | -150.00 (-160.00 to -140.00) |",
        "",
        "| parameter | share | in the best 2 after 100 timesteps |",
        "| --- | --- | --- |",
        "| algorithm.sigma | 75% | 0.0162 (0.0123 to 0.02) |",
        "| policy | 25% | linear (2 of 2) |",
    ]


def test_comment_has_the_best_and_the_defaults(found: Found):
    assert trials.comment(found) == [
        "Found by pyes tune: 6 settings, 2 seeds each.",
        "Confirmed with 3 other seeds: median -110.00 (-112.00 to -108.50)",
        "The defaults with these seeds: median -150.00 (-160.00 to -140.00)",
    ]
    none_better = replace(found, best=DEFAULTS, confirmed={0: [-150.0, -math.inf]})
    assert trials.comment(none_better)[1:] == [
        "Confirmed with 2 other seeds: median failed (failed to -150.00)",
        "No setting was better than the defaults.",
    ]


def test_labels_are_cells_whatever_is_in_them(found: Found):
    found.trials[2] = replace(BEST, values=values("small|deep", 0.0123))
    assert r"| 2 | policy=small\|deep, sigma=0.0123 |" in trials.to_markdown(found)


@pytest.mark.slow
def test_figure_is_the_same_every_time(found: Found, tmp_path: Path):
    for name in ("one.png", "two.png"):
        trials.draw(found, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_figure_is_drawn_where_nothing_could_be_trained(tmp_path: Path):
    failed = [Trial(0, {}, {900: -math.inf}), Trial(1, values("small", 0.5), {100: -math.inf})]
    trials.draw(Found(failed, failed[0], {0: [-math.inf]}, {}, 900, 1), tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 1000


def test_a_best_trial_that_others_seeds_do_not_confirm_is_doubted(found: Found):
    assert trials.doubt(found) == ""
    worse = replace(found, confirmed={0: [-110.0, -109.0], 2: [-112.0, -110.0]})
    assert trials.doubt(worse) == (
        "with other seeds trial 2 was not better than the defaults (median -111.00, theirs -109.50): do not trust the "
        "recipe; search with more --seeds"
    )
    assert "| -111.00 (-112.00 to -110.00) |" in trials.to_markdown(worse)
