"""The map of a run: its individuals projected to two dimensions, coloured by return, and the path of the center.

Owns the projection and the figure. Knows nothing of journals: `pyes.reports.replay` rebuilds individuals.
Invariant: only a few dozen numbers per parameter and per individual are in memory, less than the noise table and never
all individuals; equal runs give an equal picture.

The projection is principal component analysis by a block Krylov method (Musco & Musco 2015): each pass over the
individuals multiplies their covariance by a block of directions; the new directions in the product are the next block.
The components are the best ones in the span of all blocks.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError, RunDirectoryError, missing
from pyes.reports import figures, replay
from pyes.system.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pyes.reports.replay import Replay

Method = Literal["pca", "umap"]
Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]

#: Principal components that UMAP starts from, and additional directions in a block.
_COMPONENTS_FOR_UMAP, _OVERSAMPLING = 20, 6
#: Maximum number of passes over the individuals, and the error at which to stop earlier: the norm of
#: (covariance x component - variance x component) relative to the variance.
_WALKS, _TOLERANCE = 6, 1e-3
_NEGLIGIBLE = 1e-6  # relative size of rounding errors in float32
_BUFFER = 2**24  # bytes of individuals that are multiplied at once
_LARGEST_BUFFER = 1024  # individuals
#: UMAP's n_neighbors, min_dist and n_epochs. The clouds around successive centers are so close to each other that with
#: few neighbors or a small distance they would collapse into a thin line.
_NEIGHBORS, _ROOM, _STEPS = 30, 0.9, 200
_COLORED = (2, 98)  # percentiles of the returns between which colours differ


@dataclass(frozen=True)
class _Map:
    """Positions of a run's individuals and centers in the plane.

    individuals    float64 (n, 2), generation by generation
    path           float64 (generations + 1, 2): the centers
    returns        float64 (n,); NaN where a member failed
    axes           labels of the two axes
    metric         whether distances in the plane approximate distances between individuals
    """

    individuals: Float64Array
    path: Float64Array
    returns: Float64Array
    axes: tuple[str, str]
    metric: bool


@dataclass(frozen=True)
class _Components:
    """Principal components of the individuals, the greatest variance first.

    scores        float64 (n, k): the individuals minus their mean
    path          float64 (generations + 1, k): the centers minus the same mean
    shares        float64 (k,): share of the variance
    directions    float64 (dim, k)
    mean          float64 (k,): mean of the individuals minus the first center, along the directions
    """

    scores: Float64Array
    path: Float64Array
    shares: Float64Array
    directions: Float64Array
    mean: Float64Array


class Plane:
    """The plane in which the individuals of a run so far vary most: their first two principal components.

    Parameters
    ----------
    run : Replay
        At least one generation.

    Attributes
    ----------
    generations : int
        Generations from which it was found.
    shares : float64 (2,)
        Shares of the variance.
    """

    def __init__(self, run: "Replay") -> None:
        self.generations = run.generations
        found = _components(run, 2)
        self.shares = found.shares
        self._origin, self._directions, self._mean = run.theta(0), found.directions, found.mean

    def place(self, run: "Replay", first: int = 0) -> tuple[Float64Array, Float64Array]:
        """Return the positions of a run's individuals, float64 (n, 2), and centers, from generation ``first`` on.

        Raises
        ------
        ConfigError
            The run has another number of parameters than the one of the plane.
        """
        if len(run.theta(0)) != len(self._origin):
            raise ConfigError(
                f"got a run of {len(run.theta(0))} parameters, expected {len(self._origin)} as in the map"
            )
        path, individuals = [], [np.empty((0, 2))]
        for generation in range(first, run.generations):
            path.append(self._position(run.theta(generation)))
            members = range(run.population_size(generation))
            individuals.append(np.array([self._position(run.member(generation, index)) for index in members]))
        path.append(self._position(run.theta(run.generations)))
        return np.concatenate(individuals), np.array(path)

    def _position(self, theta: Float32Array) -> Float64Array:
        return np.asarray((theta - self._origin) @ self._directions - self._mean)


def draw(run: str | Path, output: str | Path, method: Method = "pca") -> Path:
    """Draw the map of a run, and return the path of the figure.

    Parameters
    ----------
    run : str or Path
        Run directory.
    output : str or Path
        .png, .svg or .pdf file to write.
    method : Method
        ``pca``: the two principal components of the individuals; ``umap``: keeps neighborhoods, not distances.

    Raises
    ------
    ConfigError
        ``method`` or the suffix is unknown, umap-learn is missing, or the figure cannot be written.
    RunDirectoryError
        The run is missing or damaged, or has no generations yet.
    """
    output = figures.check_output(output)
    if method not in get_args(Method):
        raise ConfigError(f"method is {method!r}, expected one of {', '.join(get_args(Method))}")
    project = _project if method == "pca" else _umap()
    with replay.open(run) as opened:
        if not opened.generations:
            raise RunDirectoryError(f"{run} has no generations yet; wait for the first one, or train again")
        drawn = project(opened)
        title = opened.config.task.title
    figures.write(output, lambda figure: _draw(figure, drawn, title))
    return output


# Projection


def _project(run: "Replay") -> _Map:
    found = _components(run, 2)
    first, second = (f"{_percent(share)} of the variance" for share in found.shares)
    axes = (f"first component ({first})", f"second component ({second})")
    return _Map(found.scores, found.path, _returns(run), axes, metric=True)


def _umap() -> "Callable[[Replay], _Map]":
    """Return the projection by UMAP; fails at once if umap-learn is not installed."""
    try:
        umap = importlib.import_module("umap")
    except ImportError as error:
        raise missing("method umap", "umap-learn", "umap", error, ", or take method pca") from error

    def project(run: "Replay") -> _Map:
        found = _components(run, _COMPONENTS_FOR_UMAP)
        every = np.vstack([found.scores, found.path])
        # One thread and a fixed seed: the same picture every time. Initial positions set the orientation.
        mapper = umap.UMAP(
            min(_NEIGHBORS, len(every) - 1),
            min_dist=_ROOM,
            n_epochs=_STEPS,
            init=every[:, :2],
            random_state=0,
            n_jobs=1,
        )
        placed = np.asarray(mapper.fit_transform(every), np.float64)
        axes = ("UMAP, first dimension", "UMAP, second dimension")
        individuals, path = placed[: len(found.scores)], placed[len(found.scores) :]
        return _Map(individuals, path, _returns(run), axes, metric=False)

    return project


def _returns(run: "Replay") -> Float64Array:
    return np.concatenate([run.returns(generation) for generation in range(run.generations)])


def _components(run: "Replay", count: int) -> _Components:
    """Find the components with the greatest variance, ``count`` of them, or as many as theta has parameters."""
    dim = len(run.theta(0))
    start = np.random.Generator(np.random.Philox(0)).standard_normal((dim, min(dim, count + _OVERSAMPLING)))
    basis = np.empty((dim, 0), np.float32)
    block = _new_directions(start, basis)
    walks: list[_Walk] = []
    for _ in range(_WALKS):
        walks.append(_walk(run, block))
        basis = np.hstack([basis, block])
        image = np.hstack([walk.image for walk in walks])
        values, vectors = np.linalg.eigh(basis.T @ image)
        values, vectors = values[: -count - 1 : -1], vectors[:, : -count - 1 : -1]
        # Only the first two are drawn, or initialise UMAP.
        errors = np.linalg.norm(image @ vectors[:, :2] - basis @ (vectors[:, :2] * values[:2]), axis=0)
        if np.all(errors <= _TOLERANCE * values[:2]):
            break
        block = _new_directions(walks[-1].image, basis)
        if not block.size:
            break
    scores = np.hstack([walk.scores for walk in walks]) @ vectors
    path = np.hstack([walk.path for walk in walks]) @ vectors
    return _oriented(scores, path, np.maximum(values, 0) / walks[0].variance, basis @ vectors)


def _new_directions(image: Float64Array, basis: Float32Array) -> Float32Array:
    """Return orthonormal columns that extend a basis to span an image; none if it already does."""
    size = np.linalg.norm(image)
    for _ in range(2):  # the second time removes what rounding to float32 left
        image = image - basis @ (basis.T @ image)
    directions, sizes, _ = np.linalg.svd(image, full_matrices=False)
    return directions[:, sizes > _NEGLIGIBLE * size].astype(np.float32)


def _oriented(scores: Float64Array, path: Float64Array, shares: Float64Array, directions: Float64Array) -> _Components:
    """Choose the arbitrary signs of the components so that the run ends to the upper right of the mean."""
    mean = scores.mean(axis=0)
    signs = np.where(path[-1] < mean, -1.0, 1.0)
    missing = max(0, 2 - len(shares))  # theta has a single parameter
    wide = ((0, 0), (0, missing))
    return _Components(
        np.pad((scores - mean) * signs, wide),
        np.pad((path - mean) * signs, wide),
        np.pad(shares, (0, missing)),
        np.pad(directions * signs, wide),
        np.pad(mean * signs, (0, missing)),
    )


@dataclass(frozen=True)
class _Walk:
    """Result of one pass over the individuals with a block of directions.

    image       float64 (dim, k): n times the covariance, times the block
    scores      float32 (n, k): individuals, relative to the first center, along the directions
    path        float32 (generations + 1, k): centers, likewise
    variance    n times the variance, summed over all parameters
    """

    image: Float64Array
    scores: Float32Array
    path: Float32Array
    variance: float


def _walk(run: "Replay", block: Float32Array) -> _Walk:
    """Multiply all individuals by a block, in order."""
    # The first center is close enough to the mean for the differences to be accurate.
    origin = run.theta(0)
    products = _Products(block)
    path = []
    for generation in range(run.generations):
        path.append((run.theta(generation) - origin) @ block)
        for index in range(run.population_size(generation)):
            np.subtract(run.member(generation, index), origin, out=products.next_row())
    path.append((run.theta(run.generations) - origin) @ block)
    image, scores, variance = products.result()
    return _Walk(image, scores, np.array(path, np.float32), variance)


class _Products:
    """Accumulates products of parameter vectors with a block of directions, several rows at a time."""

    def __init__(self, block: Float32Array) -> None:
        dim = len(block)
        self._block = block
        self._buffer = np.empty((max(1, min(_BUFFER // (4 * dim), _LARGEST_BUFFER)), dim), np.float32)
        self._filled = 0
        self._image, self._sum, self._squares = np.zeros(block.shape), np.zeros(dim), 0.0
        self._scores: list[Float32Array] = []

    def next_row(self) -> Float32Array:
        """Return a row to fill before the next call."""
        if self._filled == len(self._buffer):
            self._multiply()
        row: Float32Array = self._buffer[self._filled]
        self._filled += 1
        return row

    def _multiply(self) -> None:
        rows = self._buffer[: self._filled]
        self._filled = 0
        scores = rows @ self._block
        self._scores.append(scores)
        self._image += rows.T @ scores
        self._sum += rows.sum(axis=0)
        self._squares += float(np.vdot(rows, rows))

    def result(self) -> tuple[Float64Array, Float32Array, float]:
        """Return image, scores and variance of all rows, as in `_Walk`."""
        self._multiply()
        scores = np.concatenate(self._scores)
        # Subtracting the mean's part at the end is exact and saves the pass that would compute the mean.
        image = self._image - np.outer(self._sum, scores.mean(axis=0, dtype=np.float64))
        return image, scores, self._squares - float(self._sum @ self._sum) / len(scores)


# Drawing


def _draw(figure: "Figure", drawn: _Map, title: str) -> None:
    axes = figure.add_subplot()
    axes.set_title(title, loc="left")
    generations = len(drawn.path) - 1
    individuals = f"{len(drawn.returns):,} individuals of {counted(generations, 'generation')}"
    figures.set_caption(axes, individuals)
    axes.set_xlabel(drawn.axes[0])
    axes.set_ylabel(drawn.axes[1])
    axes.tick_params(length=3)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(figures.format_number)
    _draw_individuals(figure, axes, drawn)
    _draw_path(axes, drawn.path)
    if drawn.metric:
        axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.04)
    figure.legend(loc="outside lower center", ncols=3)


def _draw_individuals(figure: "Figure", axes: "Axes", drawn: _Map) -> None:
    """Draw one dot per individual, the last generations on top, failed members in grey."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import FuncFormatter

    finite = drawn.returns[np.isfinite(drawn.returns)]
    # Percentiles, so that a few outliers do not use up the colour scale.
    lowest, highest = np.percentile(finite, _COLORED) if len(finite) else (0.0, 1.0)
    colors = ScalarMappable(Normalize(lowest, highest), matplotlib.colormaps["viridis"].with_extremes(bad="#bbbbbb"))
    axes.scatter(
        drawn.individuals[:, 0],
        drawn.individuals[:, 1],
        s=float(np.clip(30_000 / len(drawn.returns), 3, 24)),
        c=colors.to_rgba(np.ma.masked_invalid(drawn.returns)),
        linewidths=0,
        alpha=0.8,
        rasterized=True,  # thousands of dots as outlines would make an SVG or PDF large
    )
    beyond = (bool(np.any(finite < lowest)), bool(np.any(finite > highest)))
    extend = {(True, True): "both", (True, False): "min", (False, True): "max", (False, False): "neither"}[beyond]
    labels = FuncFormatter(figures.format_number)
    bar = figure.colorbar(colors, ax=axes, label="return", extend=extend, aspect=30, pad=0.02, format=labels)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=3)


def _draw_path(axes: "Axes", path: Float64Array) -> None:
    from matplotlib import patheffects

    halo: list[Any] = [patheffects.withStroke(linewidth=2.6, foreground="white")]
    axes.plot(*path.T, color="#222222", linewidth=1.2, path_effects=halo, label="center")
    for point, marker, size, name in ((path[0], "o", 8, "beginning"), (path[-1], "*", 15, "end")):
        axes.plot(
            *point, marker, color="#d55e00", markersize=size, markeredgecolor="white", label=name, linestyle="none"
        )


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %"
