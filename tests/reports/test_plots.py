import html
import os
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from made_runs import make_run, write_metrics
from matplotlib.figure import Figure
from PIL import Image

from pyes.errors import ConfigError
from pyes.reports import figures, plots
from pyes.reports.groups import group
from pyes.reports.plots import plot
from pyes.reports.runs import read


def _svg_texts(file):
    """Return the words of a figure, which are text and no outlines."""
    return [html.unescape(text) for text in re.findall(r"<text [^>]*>([^<]+)</text>", file.read_text())]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_plot_writes_the_format_that_the_suffix_names(tmp_path, suffix):
    output = tmp_path / f"curve{suffix}"
    assert plot([make_run(tmp_path / "run")], output) == output
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    first = output.read_bytes()
    assert first.startswith(start)
    plot([tmp_path / "run"], output)
    assert output.read_bytes() == first
    assert sorted(os.listdir(tmp_path)) == [f"curve{suffix}", "run"]


def test_plot_has_ink_of_each_group(tmp_path):
    runs = [make_run(tmp_path / f"{i}", i, (i, i + 2, i + 4), algorithm={"sigma": 0.1 + (i > 1)}) for i in range(4)]
    pixels = np.asarray(Image.open(plot(runs, tmp_path / "curve.png")).convert("RGB")).reshape(-1, 3)
    for color in plots._COLORS[:2]:
        rgb = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
        assert (pixels == rgb).all(axis=1).sum() > 200


def test_plot_says_task_axes_and_what_differs(tmp_path):
    sigmas = (0.1, 0.3)
    for i in range(4):
        make_run(tmp_path / "multirun" / f"{i}", i // 2, timesteps=10**6, algorithm={"sigma": sigmas[i % 2]})
    texts = _svg_texts(plot([tmp_path / "multirun"], tmp_path / "curve.svg"))
    assert "LunarLanderContinuous-v3" in texts
    assert "timesteps (millions)" in texts
    assert "mean return of the population" in texts
    assert {"sigma 0.1", "sigma 0.3", "mean and range of 2 runs; thin: single runs"} <= set(texts)


def _make_three(folder):
    """Make a run of each of three sigmas, whose last returns are 30, 50 and 40."""
    for i, (sigma, last) in enumerate(((0.5, 30), (0.25, 50), (10.0, 40))):
        make_run(folder / f"{i}", returns=(10, 20, last), algorithm={"sigma": sigma})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "expected"),
    [("given", ["0.5", "0.25", "10"]), ("label", ["0.25", "0.5", "10"]), ("return", ["0.25", "10", "0.5"])],
)
def test_groups_have_the_order_asked_for_and_labels_of_ones_own_in_it(tmp_path, order, expected):
    _make_three(tmp_path)
    texts = _svg_texts(plot(tmp_path, tmp_path / "curve.svg", order=order))
    assert [text for text in texts if text.startswith("sigma")] == [f"sigma {sigma}" for sigma in expected]
    texts = _svg_texts(plot(tmp_path, tmp_path / "curve.svg", order=order, labels=["x", "a, b", "z"], title="Mine"))
    assert [text for text in texts if text in ("x", "a, b", "z")] == ["x", "a, b", "z"]
    assert "Mine" in texts
    assert "LunarLanderContinuous-v3" not in texts


def test_label_of_a_single_group_is_shown(tmp_path):
    assert "mine" in _svg_texts(plot(make_run(tmp_path / "run"), tmp_path / "curve.svg", labels=["mine"]))


@pytest.mark.slow
def test_size_is_that_in_inches_and_no_word_is_cut(tmp_path):
    _make_three(tmp_path)
    with Image.open(plot(tmp_path, tmp_path / "curve.png", width=3.4, height=2.6)) as image:
        assert image.size == (510, 390)
    texts = _svg_texts(plot(tmp_path, tmp_path / "curve.svg", width=3.4, height=2))
    assert {"mean return of the", "population"} <= set(texts)


def test_label_that_is_longer_than_the_figure_is_broken():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4, 1.6), layout="constrained")
    axes, text = figure.subplots(), "return of the center (evaluation mean)"
    axes.set_ylabel(text, fontsize=10)
    figures._fit_labels(figure)
    figure.draw_without_rendering()
    drawn = axes.yaxis.label.get_window_extent()
    assert drawn.y0 >= 0
    assert drawn.y1 <= figure.bbox.y1
    assert axes.get_ylabel().split() == text.split()


def test_axis_may_be_logarithmic(tmp_path):
    run = make_run(tmp_path / "run", returns=(2, 3000), timesteps=10**6)
    texts = _svg_texts(plot(run, tmp_path / "curve.svg", logy=True))
    assert [text for text in texts if text in ("10", "100", "500", "1,000", "1,500")] == ["10", "100", "1,000"]


def test_smoothed_point_is_the_mean_of_itself_and_of_those_before_it(tmp_path):
    make_run(tmp_path / "run", returns=(3, 6, 0, 9))
    assert _points(_drawn([tmp_path], smooth=3).lines[-1]) == [(1000, 3), (2000, 4.5), (3000, 3), (4000, 5)]
    assert [y for _, y in _points(_drawn([tmp_path], smooth=10**9).lines[-1])] == [3, 4.5, 3, 4.5]
    assert "each point: mean of the last 3" in _svg_texts(plot(tmp_path, tmp_path / "curve.svg", smooth=3))


def test_large_counts_have_separators(tmp_path):
    assert "100,000" in _svg_texts(plot([make_run(tmp_path / "run", timesteps=10**5)], tmp_path / "curve.svg"))


def _drawn(runs, x="timesteps", band="range", smooth=1):
    """Return the axes on which the one group of runs is drawn."""
    (together,) = group(read(runs))
    axes = Figure().add_subplot()
    plots._draw_group(axes, together, 0, plots._Style(x, band, smooth))
    return axes


def _points(line):
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))


def test_line_and_band_cover_where_all_runs_have_data(tmp_path):
    make_run(tmp_path / "0", 0, (10, 20, 30))
    make_run(tmp_path / "1", 1, (0, 0, 0, 0), timesteps=500)
    axes = _drawn([tmp_path])
    assert _points(axes.lines[-1]) == [(1000, 5), (1500, 7.5), (2000, 10)]
    corners = {(float(x), float(y)) for x, y in axes.collections[0].get_paths()[0].vertices}
    assert {(1000, 0), (1000, 10), (2000, 0), (2000, 20)} <= corners


def test_run_that_has_reached_its_target_keeps_its_last_return(tmp_path):
    make_run(tmp_path / "0", 0, (0, 0), evaluations=[(0, 10), (1, 40)], target_return=40)
    make_run(tmp_path / "1", 1, (0, 0, 0, 0), evaluations=[(0, 10), (1, 20), (2, 20), (3, 30)], target_return=40)
    assert _points(_drawn([tmp_path]).lines[-1]) == [(1000, 10), (2000, 30), (3000, 30), (4000, 35)]
    texts = _svg_texts(plot([tmp_path], tmp_path / "curve.svg"))
    assert "a run that has ended keeps its last return" in texts


@pytest.mark.parametrize(
    "budget",
    [{"generations": 2}, {"time_limit": 1.05}],
    ids=lambda each: min(each),
)
def test_run_that_has_used_up_its_budget_keeps_its_last_return(tmp_path, budget):
    """Short episodes, of a policy that fails early: without it the line would be of the other run alone."""
    make_run(tmp_path / "0", 0, (4, 8), timesteps=100, **budget)
    make_run(tmp_path / "1", 1, (10, 20), timesteps=10_000, **budget)
    assert _points(_drawn([tmp_path]).lines[-1]) == [(10_000, 9), (20_000, 14)]


def test_run_with_one_evaluation_is_a_dot_among_the_single_runs(tmp_path):
    for seed, evaluations in enumerate(([(1, 40)], [(0, 10), (3, 20)])):
        make_run(tmp_path / f"{seed}", seed, evaluations=evaluations, generations=4)
    assert [line.get_marker() for line in _drawn([tmp_path]).lines[:2]] == ["o", ""]


@pytest.mark.slow
def test_caption_claims_no_more_than_is_drawn(tmp_path):
    for seed, timesteps in enumerate((10, 1000)):
        make_run(tmp_path / "apart" / f"{seed}", seed, timesteps=timesteps)
    texts = _svg_texts(plot([tmp_path / "apart"], tmp_path / "curve.svg"))
    assert "runs that do not overlap are drawn one by one" in texts
    assert not any("2 runs" in text for text in texts)
    for seed in range(3):
        make_run(tmp_path / "three" / f"{seed}", seed)
    texts = _svg_texts(plot([tmp_path / "three"], tmp_path / "curve.svg", band="iqm"))
    assert "mean and 95 % bootstrap interval of 3 runs; thin: single runs" in texts  # of three, nothing is cut


@pytest.mark.slow
def test_fonts_of_a_pdf_are_truetype(tmp_path):
    pdf = plot([make_run(tmp_path / "run")], tmp_path / "curve.pdf").read_bytes()
    assert b"/TrueType" in pdf or b"/CIDFontType2" in pdf
    assert b"/Type3" not in pdf


@pytest.mark.slow
def test_band_iqm_leaves_out_the_extremes(tmp_path):
    for seed in range(5):
        make_run(tmp_path / f"{seed}", seed, (seed, 100 * seed**3))
    axes = _drawn([tmp_path], band="iqm")
    assert _points(axes.lines[-1]) == [(1000, 2), (2000, 1200)]
    first = plot([tmp_path], tmp_path / "curve.svg", band="iqm").read_bytes()
    assert "interquartile mean and 95 % bootstrap interval of 5 runs; thin: single runs" in _svg_texts(
        tmp_path / "curve.svg"
    )
    assert plot([tmp_path], tmp_path / "curve.svg", band="iqm").read_bytes() == first


def test_runs_that_never_overlap_are_drawn_by_themselves(tmp_path):
    for seed, timesteps in enumerate((10, 1000)):
        make_run(tmp_path / f"{seed}", seed, timesteps=timesteps)
    assert len(_drawn([tmp_path]).lines) == 2


def test_a_folder_whose_name_would_be_a_wrong_formula_can_be_drawn(tmp_path):
    write_metrics(tmp_path / r"x$\bad$y", [1, 2])
    assert plot([tmp_path / r"x$\bad$y"], tmp_path / "out.png").exists()


def test_long_labels_are_wrapped(tmp_path):
    for name in "ab":
        make_run(tmp_path / name, task={"name": "python", "factory": f"{'long_' * 25}:{name}"})
    texts = _svg_texts(plot([tmp_path], tmp_path / "curve.svg"))
    assert max(map(len, texts)) <= 90


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 2, 30])
def test_runs_of_one_generation_can_be_drawn(tmp_path, groups):
    runs = [make_run(tmp_path / f"{i}", returns=(5,), noise={"seed": i}) for i in range(groups)]
    for x in ("timesteps", "generation"):
        plot(runs, tmp_path / "curve.png", x)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"output": "curve.jpg"}, ".png, .svg, .pdf"),
        ({"x": "steps"}, "x: got 'steps', expected one of 'timesteps', 'seconds'"),
        ({"band": "std"}, "band: got 'std', expected one of 'range', 'iqm'"),
        ({"runs": []}, "no runs"),
        ({"output": "none/curve.png"}, "cannot write"),
        ({"order": "size"}, "order: got 'size', expected one of 'given', 'label', 'return'"),
        ({"width": 1}, "width in inches: got 1, expected a finite number >= 2 and <= 50"),
        ({"height": float("nan")}, "height in inches: got nan, expected a finite number"),
        ({"width": "7"}, "width in inches: got '7', expected a finite number"),
        ({"smooth": 2.5}, r"smooth: got 2\.5, expected an integer >= 1"),
        ({"height": 2, "title": "\n".join("abcdefghijk")}, "7.2 by 2 inches have no room for the axes"),
        ({"smooth": 0}, "smooth: got 0, expected an integer >= 1"),
        ({"logy": True, "runs": "below"}, "returns above 0 alone, these begin at -4; leave out logy"),
        ({"title": r"$\nothing$"}, "has a formula that is wrong: .*Unknown symbol"),
        ({"labels": ["a", "b"]}, "got 2 labels, expected 1, one for each group in order: OpenAI-ES$"),
    ],
)
def test_bad_arguments_are_one_line(tmp_path, monkeypatch, arguments, expected):
    make_run(tmp_path / "run")
    make_run(tmp_path / "below", returns=(3, -4))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=expected) as error:
        plot(**{"runs": "run", "output": "curve.png"} | arguments)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "curve.png").exists()


def test_plot_leaves_matplotlib_as_it_was(tmp_path):
    run = make_run(tmp_path / "run")
    before = dict(matplotlib.rcParams)
    plot([run], tmp_path / "curve.png")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.slow
def test_plot_needs_no_home_and_no_display(tmp_path):
    run = make_run(tmp_path / "run")
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLBACKEND")}
    environment |= {"HOME": "/nonexistent", "MPLCONFIGDIR": "/proc/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}
    code = (
        f"import sys; from pyes.reports.plots import plot; plot([{str(run)!r}], {str(tmp_path / 'curve.png')!r}); "
        + ("sys.exit('matplotlib.pyplot' in sys.modules)")
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=60).returncode == 0
