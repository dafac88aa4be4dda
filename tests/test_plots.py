import csv
import json
import os
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image

from pyes import plots
from pyes.config import from_mapping, to_mapping
from pyes.errors import ConfigError, RunDirectoryError
from pyes.metrics import COLUMNS
from pyes.plots import plot


def _write_metrics(directory, returns, evaluations=(), timesteps=1000):
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval=0, lineterminator="\n")
        writer.writeheader()
        for generation, value in enumerate(returns):
            evaluation = dict(evaluations).get(generation, "")
            writer.writerow(
                {
                    "generation": generation,
                    "timesteps": timesteps * (generation + 1),
                    "episodes": 64 * (generation + 1),
                    "seconds": 0.5 * (generation + 1),
                    "return_mean": value,
                    "eval_return_mean": evaluation,
                    "theta_hash": "00ff00ff00ff00ff",
                }
            )


def _run(directory, seed=0, returns=(1, 2, 3, 4), evaluations=(), timesteps=1000, **sections):
    _write_metrics(directory, returns, evaluations, timesteps)
    config = to_mapping(from_mapping({"seed": seed, "run_dir": str(directory), **sections}))
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def _read(runs, x="timesteps"):
    return plots._group(plots._read_all(runs, x))


def _svg_texts(file):
    """Return the words of a figure; matplotlib writes each as a comment beside its outlines."""
    return [text.strip() for text in re.findall(r"<!--(.*?)-->", file.read_text())]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_plot_writes_the_format_that_the_suffix_names(tmp_path, suffix):
    output = tmp_path / f"curve{suffix}"
    assert plot([_run(tmp_path / "run")], output) == output
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    first = output.read_bytes()
    assert first.startswith(start)
    plot([tmp_path / "run"], output)
    assert output.read_bytes() == first
    assert sorted(os.listdir(tmp_path)) == [f"curve{suffix}", "run"]


def test_plot_has_ink_of_each_group(tmp_path):
    runs = [_run(tmp_path / f"{i}", i, (i, i + 2, i + 4), algorithm={"sigma": 0.1 + (i > 1)}) for i in range(4)]
    pixels = np.asarray(Image.open(plot(runs, tmp_path / "curve.png")).convert("RGB")).reshape(-1, 3)
    for color in plots._COLORS[:2]:
        rgb = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
        assert (pixels == rgb).all(axis=1).sum() > 200


def test_plot_says_task_axes_and_what_differs(tmp_path):
    sigmas = (0.1, 0.3)
    for i in range(4):
        _run(tmp_path / "multirun" / f"{i}", i // 2, timesteps=10**6, algorithm={"sigma": sigmas[i % 2]})
    texts = _svg_texts(plot([tmp_path / "multirun"], tmp_path / "curve.svg"))
    assert "LunarLanderContinuous-v3" in texts
    assert "timesteps (millions)" in texts
    assert "mean return of the population" in texts
    assert {"sigma=0.1", "sigma=0.3", "mean and range of 2 runs"} <= set(texts)


def test_large_counts_have_separators(tmp_path):
    assert "100,000" in _svg_texts(plot([_run(tmp_path / "run", timesteps=10**5)], tmp_path / "curve.svg"))


@pytest.mark.parametrize("x", ["timesteps", "seconds", "generation", "episodes"])
def test_x_reads_its_column(tmp_path, x):
    ((run,),) = _read([_run(tmp_path / "run")], x)
    first = {"timesteps": 1000, "seconds": 0.5, "generation": 0, "episodes": 64}[x]
    assert run.x[0] == first
    plot([tmp_path / "run"], tmp_path / "curve.png", x)


def test_evaluations_are_drawn_where_there_are_any(tmp_path):
    ((run,),) = _read([_run(tmp_path / "run", evaluations=[(1, 20), (3, 40)])])
    np.testing.assert_array_equal(run.y, [20, 40])
    np.testing.assert_array_equal(run.x, [2000, 4000])
    ((run,),) = _read([_run(tmp_path / "other")])
    np.testing.assert_array_equal(run.y, [1, 2, 3, 4])


def test_runs_that_differ_in_seed_alone_are_one_group(tmp_path):
    runs = [_run(tmp_path / f"{i}", seed=i) for i in range(3)]
    runs.append(_run(tmp_path / "other", seed=0, algorithm={"sigma": 0.7}))
    assert [len(group) for group in _read(runs)] == [3, 1]


def test_a_run_that_is_named_twice_counts_once(tmp_path):
    _run(tmp_path / "all" / "0")
    assert [len(group) for group in _read([tmp_path / "all", tmp_path / "all" / "0"])] == [1]


def test_mean_and_band_cover_where_all_runs_have_data(tmp_path):
    from matplotlib.figure import Figure

    group = [
        plots._Run(tmp_path, {}, 0, np.array([0.0, 10.0, 20.0]), np.array([0.0, 10.0, 20.0]), True),
        plots._Run(tmp_path, {}, 1, np.array([5.0, 15.0]), np.array([1.0, 1.0]), True),
    ]
    axes = Figure().add_subplot()
    line = plots._draw_group(axes, group, 0)
    np.testing.assert_array_equal(line.get_xdata(), [5, 10, 15])
    np.testing.assert_allclose(line.get_ydata(), [3, 5.5, 8])
    corners = np.asarray(axes.collections[0].get_paths()[0].vertices)
    assert {(5.0, 1.0), (5.0, 5.0), (15.0, 1.0), (15.0, 15.0)} <= {(float(x), float(y)) for x, y in corners}


def test_runs_that_never_overlap_are_drawn_by_themselves(tmp_path):
    from matplotlib.figure import Figure

    group = [plots._Run(tmp_path, {}, i, np.array([i, i + 0.5]), np.zeros(2), True) for i in range(2)]
    axes = Figure().add_subplot()
    plots._draw_group(axes, group, 0)
    assert len(axes.lines) == 2


def test_labels_show_only_what_differs(tmp_path):
    runs = [
        _run(tmp_path / f"{sigma}-{rate}", algorithm={"sigma": sigma, "learning_rate": rate})
        for sigma in (0.1, 0.3)
        for rate in (0.01, 0.1)
    ]
    assert plots._labels(_read(runs)) == [
        f"sigma={sigma}, learning_rate={rate}" for sigma in (0.1, 0.3) for rate in (0.01, 0.1)
    ]


def test_labels_name_tasks_without_their_other_settings(tmp_path):
    tasks = {"CartPole-v1": 500, "Pendulum-v1": 200}
    runs = [_run(tmp_path / name, task={"env_id": name, "max_timesteps": most}) for name, most in tasks.items()]
    assert plots._labels(_read(runs)) == list(tasks)


def test_labels_keep_the_section_where_two_keys_share_a_name(tmp_path):
    runs = [
        _run(tmp_path / f"{i}", noise={"seed": i}, evaluation={"every": i + 1}, snapshot={"every": i}) for i in (0, 1)
    ]
    assert plots._labels(_read(runs))[1] == "seed=1, every=2"


def test_runs_without_a_configuration_go_by_their_names(tmp_path):
    for name in ("a", "b"):
        _write_metrics(tmp_path / name, [1, 2])
    assert plots._labels(_read([tmp_path / "a", tmp_path / "b"])) == ["a", "b"]
    plot([tmp_path / "a", tmp_path / "b"], tmp_path / "curve.png")


def test_configuration_is_read_from_hydra_where_nothing_better_is(tmp_path):
    for seed in (0, 1):
        _write_metrics(tmp_path / f"{seed}" / "run", [1, 2])
        (tmp_path / f"{seed}" / "run" / ".hydra").mkdir()
        text = f"seed: {seed}\nalgorithm:\n  sigma: 0.1\ntask:\n  env_id: CartPole-v1\n"
        (tmp_path / f"{seed}" / "run" / ".hydra" / "config.yaml").write_text(text)
    (group,) = _read([tmp_path])
    assert [run.seed for run in group] == [0, 1]
    assert plots._title(group) == "CartPole-v1"


def test_folder_of_runs_is_searched_in_natural_order(tmp_path):
    for i in (10, 9, 1):
        _run(tmp_path / "multirun" / "day" / f"{i}", noise={"seed": i})
    (tmp_path / "multirun" / "day" / "11").mkdir()
    (tmp_path / "multirun" / "day" / "11" / "metrics.csv").write_text(",".join(COLUMNS) + "\n")
    groups = _read([tmp_path / "multirun"])
    assert [group[0].path.name for group in groups] == ["1", "9", "10"]


def test_last_row_cut_short_is_left_out(tmp_path):
    run = _run(tmp_path / "run")
    file = run / "metrics.csv"
    file.write_text(file.read_text()[:-20])
    ((read,),) = _read([run])
    assert len(read.x) == 3


def test_returns_that_are_not_finite_are_left_out(tmp_path):
    ((run,),) = _read([_run(tmp_path / "run", returns=("nan", 2, "inf", 4))])
    np.testing.assert_array_equal(run.y, [2, 4])


@pytest.mark.parametrize("groups", [1, 2, 30])
def test_runs_of_one_generation_can_be_drawn(tmp_path, groups):
    runs = [_run(tmp_path / f"{i}", returns=(5,), noise={"seed": i}) for i in range(groups)]
    for x in ("timesteps", "generation"):
        plot(runs, tmp_path / "curve.png", x)


def _error(*arguments, kind=RunDirectoryError):
    with pytest.raises(kind) as error:
        plot(*arguments)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_missing_and_empty_runs_are_one_line(tmp_path):
    output = tmp_path / "curve.png"
    assert "no run directory at" in _error([tmp_path / "none"], output)
    (tmp_path / "empty").mkdir()
    assert "no metrics.csv" in _error([tmp_path / "empty"], output)
    (tmp_path / "empty" / "metrics.csv").write_text("")
    assert "no generations yet" in _error([tmp_path / "empty"], output)
    (tmp_path / "empty" / "metrics.csv").write_text(",".join(COLUMNS) + "\n")
    assert "no generations yet" in _error([tmp_path / "empty"], output)
    assert "1 runs below" in _error([tmp_path], output)
    (tmp_path / "empty" / "metrics.csv").write_text("a,b\n1,2\n")
    assert "no column" in _error([tmp_path / "empty"], output)
    (tmp_path / "empty" / "metrics.csv").write_bytes(b"\xff\xfe\n" * 9)
    assert "cannot read" in _error([tmp_path / "empty"], output)
    assert not output.exists()


def test_damaged_configuration_is_one_line(tmp_path):
    run = _run(tmp_path / "run")
    (run / "config.json").write_text('{"seed": ')
    assert "configuration" in _error([run], tmp_path / "curve.png")


def test_bad_arguments_are_one_line(tmp_path):
    run = _run(tmp_path / "run")
    assert ".png, .svg, .pdf" in _error([run], tmp_path / "curve.jpg", kind=ConfigError)
    assert "timesteps, seconds" in _error([run], tmp_path / "curve.png", "steps", kind=ConfigError)
    assert "no runs" in _error([], tmp_path / "curve.png", kind=ConfigError)
    assert "cannot write" in _error([run], tmp_path / "none" / "curve.png", kind=ConfigError)


def test_plot_leaves_matplotlib_as_it_was(tmp_path):
    run = _run(tmp_path / "run")
    before = dict(matplotlib.rcParams)
    plot([run], tmp_path / "curve.png")
    assert dict(matplotlib.rcParams) == before


def test_plot_needs_no_home_and_no_display(tmp_path):
    run = _run(tmp_path / "run")
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLBACKEND")}
    environment |= {"HOME": "/nonexistent", "MPLCONFIGDIR": "/proc/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}
    code = f"import sys; from pyes.plots import plot; plot([{str(run)!r}], {str(tmp_path / 'curve.png')!r}); " + (
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=60).returncode == 0
