import html
import re
import shutil
import sys
import tracemalloc

import numpy as np
import pytest
from matplotlib.figure import Figure

import pyes
from pyes.errors import ConfigError, RunDirectoryError
from pyes.reports import maps, replay
from pyes.run import journal

GENERATIONS, SIZE = 6, 20


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = {
        "seed": 3,
        "generations": GENERATIONS,
        "run_dir": str(tmp_path_factory.mktemp("map") / "run"),
        "algorithm": {"population_size": SIZE, "sigma": 0.1, "learning_rate": 0.1},
        "task": {"env_id": "CartPole-v1"},
        "network": {"name": "mlp", "hidden": [8]},
        "noise": {"entries": 100_000},
        "cluster": {"name": "inline"},
        "evaluation": {"every": 0},
    }
    return pyes.train(config, display=False).run_dir


class _Individuals:
    """Individuals of any geometry, asked for like those of a run; the centers are their generations' means."""

    def __init__(self, thetas, generations=1):
        self._thetas = np.array_split(np.asarray(thetas, np.float32), generations)
        self.generations = generations
        self.walks = 0

    def population_size(self, generation):
        return len(self._thetas[generation])

    def members(self, generation, indices):
        return self._thetas[generation][indices.start : indices.stop].copy()

    def theta(self, generation):
        self.walks += generation == self.generations  # the last that a walk asks for
        return self._thetas[min(generation, self.generations - 1)].mean(axis=0)


def _individuals(opened):
    return np.array(
        [opened.member(g, i) for g in range(opened.generations) for i in range(opened.population_size(g))], np.float64
    )


def _placed(run, count=2):
    """Return the components of a run, and where its individuals and centers lie."""
    found = maps.Components(run, count)
    return found, *found.place(run)


def _with_spectrum(sizes, n, dim, shift):
    """Return n individuals whose principal axes have the given sizes, far from the origin, and those axes."""
    random = np.random.default_rng(1)
    left = random.standard_normal((n, len(sizes)))
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    axes = np.linalg.qr(random.standard_normal((dim, len(sizes))))[0]
    return left * sizes @ axes.T + shift * random.standard_normal(dim), axes


def _svg_texts(file):
    return [html.unescape(text) for text in re.findall(r"<text [^>]*>([^<]+)</text>", file.read_text())]


# Projection


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 10])
@pytest.mark.parametrize("few", [0, 512])  # by walks with a block, and by the covariance
def test_components_of_a_run_are_those_of_the_whole_matrix(monkeypatch, run, count, few):
    monkeypatch.setattr(maps, "_FEW", few)
    with replay.open(run) as opened:
        found, scores, path = _placed(opened, count)
        thetas = _individuals(opened)
        centers = np.array([opened.theta(g) for g in range(GENERATIONS + 1)], np.float64)
    mean = thetas.mean(axis=0)
    _, sizes, axes = np.linalg.svd(thetas - mean, full_matrices=False)
    np.testing.assert_allclose(found.shares[:2], (sizes**2 / np.sum(sizes**2))[:2], rtol=1e-4)
    for i in range(2):
        expected = (thetas - mean) @ axes[i]
        sign = np.sign(expected @ scores[:, i])
        np.testing.assert_allclose(scores[:, i], sign * expected, atol=5e-3 * sizes[0] / np.sqrt(len(thetas)))
        expected = (centers - mean) @ axes[i]
        np.testing.assert_allclose(path[:, i], sign * expected, atol=5e-3 * sizes[0] / np.sqrt(len(thetas)))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 7, 1024])
@pytest.mark.parametrize("dim", [500, 600])  # by the covariance, and by walks with a block
def test_components_are_exact_to_rounding_where_few_directions_matter(monkeypatch, rows, dim):
    # The last blocks are smaller, and the individuals lie far from the origin.
    monkeypatch.setattr(maps, "_MOST_ROWS", rows)
    sizes = np.array([10.0, 9.0, 3.0, *np.geomspace(1, 0.01, 40)])
    thetas, axes = _with_spectrum(sizes, 300, dim, shift=5.0)
    found, scores, _ = _placed(_Individuals(thetas, generations=3))
    np.testing.assert_allclose(found.shares, sizes[:2] ** 2 / np.sum(sizes**2), rtol=1e-5)
    expected = (thetas - thetas.mean(axis=0)) @ axes[:, :2]
    cosines = np.sum(expected * scores, axis=0) / np.linalg.norm(expected, axis=0) ** 2
    np.testing.assert_allclose(np.abs(cosines), 1, atol=1e-5)
    np.testing.assert_allclose(scores.T @ scores, np.diag(sizes[:2] ** 2), atol=0.01)


@pytest.mark.slow
def test_components_of_a_flat_spectrum_miss_little_of_the_variance():
    # One generation in many dimensions: no direction stands out, and the walks end at their limit.
    thetas = np.random.default_rng(2).standard_normal((300, 600))
    found = maps.Components(_Individuals(thetas))
    sizes = np.linalg.svd(thetas - thetas.mean(axis=0), compute_uv=False)
    best = sizes[:2] ** 2 / np.sum(sizes**2)
    assert np.all(found.shares <= best * 1.0001)
    assert np.all(found.shares >= best * 0.95)


@pytest.mark.slow
def test_few_walks_do_where_two_directions_stand_out():
    sizes = np.array([100.0, 30.0, *np.ones(100)])
    individuals = _Individuals(_with_spectrum(sizes, 400, 600, 0.0)[0])
    maps.Components(individuals)
    assert individuals.walks <= 3


@pytest.mark.slow
def test_individuals_are_never_all_in_memory(monkeypatch):
    monkeypatch.setattr(maps, "_BUFFER", 2**20)
    thetas = _with_spectrum(np.array([10.0, 5.0, *np.ones(30)]), 3000, 2000, 0.0)[0].astype(np.float32)
    individuals = _Individuals(thetas, generations=10)
    tracemalloc.start()
    try:
        maps.Components(individuals)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < thetas.nbytes / 4


def test_components_of_less_than_a_plane_are_padded():
    line, scores, _ = _placed(_Individuals(np.arange(6.0)[:, None], generations=2))
    np.testing.assert_allclose(scores, np.c_[np.arange(6) - 2.5, np.zeros(6)], atol=1e-6)
    np.testing.assert_allclose(line.shares, [1, 0])
    pair, scores, _ = _placed(_Individuals([[1, 2, 3, 4], [3, 2, 1, 0]]))
    np.testing.assert_allclose(np.abs(scores), [[np.sqrt(6), 0]] * 2, atol=1e-5)
    np.testing.assert_allclose(pair.shares, [1, 0], atol=1e-6)


def test_run_ends_to_the_upper_right_of_the_mean(run):
    with replay.open(run) as opened:
        _, scores, path = _placed(opened)
    assert np.all(path[-1] >= 0)
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-6)
    assert path[-1, 0] > path[0, 0]


# Figure


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_equal_runs_give_equal_files(run, tmp_path, suffix):
    first, second = (maps.draw(run, tmp_path / f"{name}{suffix}") for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


@pytest.mark.slow
def test_map_says_task_share_of_variance_and_what_is_drawn(run, tmp_path):
    texts = _svg_texts(maps.draw(run, tmp_path / "map.svg"))
    assert {"CartPole-v1", "return", "center", "beginning", "end", "120 individuals of 6 generations"} <= set(texts)
    with replay.open(run) as opened:
        thetas = _individuals(opened)
    sizes = np.linalg.svd(thetas - thetas.mean(axis=0), compute_uv=False)
    for name, share in zip(("first", "second"), sizes**2 / np.sum(sizes**2), strict=False):
        (text,) = [text for text in texts if text.startswith(f"{name} component")]
        assert float(re.search(r"\((.*) % of the variance\)", text)[1]) == pytest.approx(100 * share, abs=0.51)


def _figure(returns):
    n = len(returns)
    places = np.random.default_rng(0).standard_normal((n, 2))
    figure = Figure()
    maps._draw(figure, maps._Map(places, places[:3], np.asarray(returns, float), ("x", "y"), metric=True), "task")
    axes, bar = figure.axes
    (dots,) = axes.collections
    return dots.get_facecolors(), bar.get_ylim()


def test_colors_follow_returns_and_outliers_do_not_take_them():
    returns = np.linspace(0, 100, 1001)
    colors, limits = _figure(returns)
    # Viridis: from violet, which has less green than blue, to yellow, which has more.
    assert np.all(np.diff(colors[:, 1]) >= 0)
    assert colors[0, 2] > colors[0, 1]
    assert colors[-1, 2] < colors[-1, 1]
    returns[0], returns[-1] = -1e9, 1e9
    assert _figure(returns)[1] == pytest.approx(limits)


def test_members_that_failed_are_grey():
    returns = np.arange(50.0)
    returns[[3, 7, 9]] = np.nan, np.inf, -np.inf
    colors, _ = _figure(returns)
    grey = np.ptp(colors[:, :3], axis=1) == 0
    np.testing.assert_array_equal(np.flatnonzero(grey), [3, 7, 9])
    assert np.ptp(_figure([np.nan, np.nan, np.nan])[0][:, :3]) == 0


def test_equal_returns_can_be_drawn():
    colors, _ = _figure(np.full(9, 500.0))
    assert len(np.unique(colors, axis=0)) == 1


@pytest.mark.parametrize(("share", "text"), [(1.0, "100 %"), (0.7249, "72 %"), (0.0634, "6.3 %"), (0.0, "0.0 %")])
def test_shares_are_short(share, text):
    assert maps._percent(share) == text


def _cut(run, directory, generations):
    """Copy a run's journal up to some generations."""
    directory.mkdir()
    recording = journal.read(run / "journal.bin")
    entries = [entry for entry in recording.entries if entry.kind == journal.Kind.GENERATION]
    data = (run / "journal.bin").read_bytes()
    (directory / "journal.bin").write_bytes(data[: entries[generations].place])
    return directory


@pytest.mark.slow
def test_journal_alone_is_enough_and_so_is_one_generation(run, tmp_path):
    texts = _svg_texts(maps.draw(_cut(run, tmp_path / "cut", 1), tmp_path / "map.svg"))
    assert "20 individuals of 1 generation" in texts


# Errors


def _error(*arguments, kind=ConfigError):
    with pytest.raises(kind) as error:
        maps.draw(*arguments)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_missing_and_empty_runs_are_one_line(run, tmp_path):
    output = tmp_path / "map.png"
    assert str(tmp_path / "none") in _error(tmp_path / "none", output, kind=RunDirectoryError)
    empty = _cut(run, tmp_path / "empty", 0)
    assert "no generations yet" in _error(empty, output, kind=RunDirectoryError)
    shutil.rmtree(empty)
    assert not list(tmp_path.iterdir())


def test_bad_arguments_are_one_line(run, tmp_path):
    assert ".png, .svg, .pdf" in _error(run, tmp_path / "map.gif")
    assert "'pca', 'umap'" in _error(run, tmp_path / "map.png", "tsne")
    assert "no directory" in _error(run, tmp_path / "none" / "map.png")


def test_umap_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    assert 'pip install "pyes-rl[umap]"' in _error(run, tmp_path / "map.png", "umap")


@pytest.mark.slow
def test_umap_is_the_same_every_time(run, tmp_path, monkeypatch):
    monkeypatch.setattr(pytest.importorskip("numba").config, "DISABLE_JIT", True)  # compiling umap takes a minute
    pytest.importorskip("umap", reason="umap-learn is an extra")
    short = _cut(run, tmp_path / "short", 2)
    first, second = (maps.draw(short, tmp_path / f"{name}.svg", "umap") for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert "UMAP, first dimension" in _svg_texts(first)


@pytest.mark.slow
def test_a_population_that_grows_is_on_the_map_whole(tmp_path):
    config = {
        "generations": 4, "run_dir": str(tmp_path / "run"), "task": {"env_id": "CartPole-v1"},
        "algorithm": {"population_size": 4}, "growth": {"timesteps": 300, "population_max": 20},
        "noise": {"entries": 100_000}, "cluster": {"name": "inline"}, "evaluation": {"every": 0},
    }  # fmt: skip
    pyes.train(config, display=False)
    with replay.open(tmp_path / "run") as opened:
        sizes = [opened.population_size(generation) for generation in range(4)]
        assert len(set(sizes)) > 1
        drawn = maps._project(opened)
        individuals = _individuals(opened)
    assert len(drawn.individuals) == len(drawn.returns) == len(individuals) == sum(sizes)
    assert maps.draw(tmp_path / "run", tmp_path / "map.png").stat().st_size > 0
