"""The map of a run: its individuals projected to two dimensions, coloured by return, and the path of the center.

Owns the projection and the figure. Knows nothing of journals: `pyes.reports.replay` rebuilds individuals.
Invariant: beside two numbers per individual (twenty for UMAP), only a few dozen per parameter are in memory, or the
covariance of few parameters, and never all individuals; equal runs give an equal picture.

The projection is principal component analysis. The covariance of few parameters is computed in one pass over the
individuals. That of many is never there: by a block Krylov method (Musco & Musco 2015), each pass multiplies it by a
block of directions, and the new directions in the product are the next block; the components are the best ones in the
span of all blocks.
"""

import importlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.config.section import parse
from pyes.errors import ConfigError, RunDirectoryError, missing
from pyes.reports import figures, replay
from pyes.reports.replay import Replay
from pyes.system.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Method = Literal["pca", "umap"]
Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]

#: Principal components that UMAP starts from, and additional directions in a block.
_COMPONENTS_FOR_UMAP, _OVERSAMPLING = 20, 6
#: Parameters up to which the covariance is computed.
_FEW = 512
#: Maximum number of passes over the individuals, and the error at which to stop earlier: the norm of
#: (covariance x component - variance x component) relative to the variance.
_WALKS, _TOLERANCE = 6, 1e-3
_NEGLIGIBLE = 1e-6  # relative size of rounding errors in float32
_MOST_ROWS, _BUFFER = 1024, 2**24  # individuals that are multiplied at once, at most, and their bytes
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


class Components:
    """The principal components of the individuals of a run so far, the greatest variance first.

    Parameters
    ----------
    run : Replay
        At least one generation.
    count : int
        How many; the default is a plane. Those beyond the number of parameters are 0.

    Attributes
    ----------
    generations : int
        Generations from which they were found.
    shares : float64 (count,)
        Shares of the variance.
    number : int
        Below 10^9; differs from that of other components.
    """

    def __init__(self, run: Replay, count: int = 2) -> None:
        self.generations = run.generations
        values, directions, walk = _principal(run, count)
        mean = walk.mean @ directions
        # Signs are arbitrary: the run ends to the upper right of the mean.
        signs = np.where(walk.end @ directions < mean, -1.0, 1.0)
        missing = max(0, count - len(values))
        self.shares = np.pad(np.maximum(values, 0) / walk.variance, (0, missing))
        self._origin = walk.origin
        self._directions = np.pad(directions * signs, ((0, 0), (0, missing)))
        self._mean = np.pad(mean * signs, (0, missing))
        self.number = zlib.crc32(self._directions.tobytes(), zlib.crc32(self._origin.tobytes())) % 10**9

    def place(self, run: Replay, first: int = 0) -> tuple[Float64Array, Float64Array]:
        """Return the places of a run's individuals, float64 (n, count), and centers, from generation ``first`` on.

        Raises
        ------
        ConfigError
            The run has another number of parameters than the one of the components.
        """
        if len(run.theta(0)) != len(self._origin):
            raise ConfigError(
                f"got a run of {len(run.theta(0))} parameters, expected {len(self._origin)} as in the map"
            )
        path, individuals = [], [np.empty((0, len(self._mean)))]
        for generation in range(first, run.generations):
            path.append(self._place(run.theta(generation)))
            individuals.extend(self._place(rows) for rows in _rows(run, generation, len(self._origin)))
        path.append(self._place(run.theta(run.generations)))
        return np.concatenate(individuals), np.array(path)

    def _place(self, thetas: Float32Array) -> Float64Array:
        return np.asarray((thetas - self._origin) @ self._directions - self._mean)


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
    project = _project if parse(Method, method, "method") == "pca" else _umap()
    with replay.open(run) as opened:
        if not opened.generations:
            raise RunDirectoryError(f"{run} has no generations yet; wait for the first one, or train again")
        drawn = project(opened)
        title = opened.config.task.title
    figures.write(output, lambda figure: _draw(figure, drawn, title))
    return output


# Projection


def _project(run: Replay) -> _Map:
    found = Components(run)
    first, second = (f"{_percent(share)} of the variance" for share in found.shares)
    axes = (f"first component ({first})", f"second component ({second})")
    return _Map(*found.place(run), _returns(run), axes, metric=True)


def _umap() -> "Callable[[Replay], _Map]":
    """Return the projection by UMAP; fails at once if umap-learn is not installed."""
    try:
        umap = importlib.import_module("umap")
    except ImportError as error:
        raise missing("method umap", "umap-learn", "umap", error, ", or take method pca") from error

    def project(run: Replay) -> _Map:
        individuals, path = Components(run, _COMPONENTS_FOR_UMAP).place(run)
        every = np.vstack([individuals, path])
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
        return _Map(placed[: -len(path)], placed[-len(path) :], _returns(run), axes, metric=False)

    return project


def _returns(run: Replay) -> Float64Array:
    return np.concatenate([run.returns(generation) for generation in range(run.generations)])


def _principal(run: Replay, count: int) -> tuple[Float64Array, Float64Array, "_Walk"]:
    """Find the components with the greatest variance, ``count`` of them, or as many as theta has parameters.

    Returns
    -------
    tuple
        n times the variance along each, float64 (k,); their directions, float64 (dim, k); and the last walk.
    """
    dim = len(run.theta(0))
    if dim <= _FEW:
        walk = _walk(run, None)
        values, vectors = np.linalg.eigh(walk.image)
        return values[: -count - 1 : -1], vectors[:, : -count - 1 : -1], walk
    start = np.random.Generator(np.random.Philox(0)).standard_normal((dim, count + _OVERSAMPLING))
    basis, image = np.empty((dim, 0), np.float32), np.empty((dim, 0))
    block = _new_directions(start, basis)
    for _ in range(_WALKS):
        walk = _walk(run, block)
        basis, image = np.hstack([basis, block]), np.hstack([image, walk.image])
        values, vectors = np.linalg.eigh(basis.T @ image)
        values, vectors = values[: -count - 1 : -1], vectors[:, : -count - 1 : -1]
        # Only the first two are drawn, or initialise UMAP.
        errors = np.linalg.norm(image @ vectors[:, :2] - basis @ (vectors[:, :2] * values[:2]), axis=0)
        if np.all(errors <= _TOLERANCE * values[:2]):
            break
        block = _new_directions(walk.image, basis)
        if not block.size:
            break
    return values, basis @ vectors, walk


def _new_directions(image: Float64Array, basis: Float32Array) -> Float32Array:
    """Return orthonormal columns that extend a basis to span an image; none if it already does."""
    size = np.linalg.norm(image)
    for _ in range(2):  # the second time removes what rounding to float32 left
        image = image - basis @ (basis.T @ image)
    directions, sizes, _ = np.linalg.svd(image, full_matrices=False)
    return directions[:, sizes > _NEGLIGIBLE * size].astype(np.float32)


@dataclass(frozen=True)
class _Walk:
    """Result of one pass over the individuals with a block of directions.

    origin      float32 (dim,): the first center, which all others here are relative to
    end         float32 (dim,): the last center
    mean        float64 (dim,): of the individuals
    image       float64 (dim, k): n times the covariance, times the block
    variance    n times the variance, summed over all parameters
    """

    origin: Float32Array
    end: Float32Array
    mean: Float64Array
    image: Float64Array
    variance: float


def _walk(run: Replay, block: Float32Array | None) -> _Walk:
    """Multiply the covariance of all individuals by a block; None stands for the identity."""
    # The first center is close enough to the mean for the differences to be accurate.
    origin = run.theta(0)
    image = np.zeros((len(origin), len(origin) if block is None else block.shape[1]))
    total, squares, count = np.zeros(len(origin)), 0.0, 0
    for generation in range(run.generations):
        for rows in _rows(run, generation, len(origin)):
            rows -= origin
            image += rows.T @ (rows if block is None else rows @ block)
            total += rows.sum(axis=0)
            squares += float(np.vdot(rows, rows))
            count += len(rows)
    mean = total / count
    # Subtracting the mean's part at the end is exact and saves the pass that would compute the mean.
    image -= np.outer(total, mean if block is None else mean @ block)
    return _Walk(origin, run.theta(run.generations) - origin, mean, image, squares - float(total @ mean))


def _rows(run: Replay, generation: int, dim: int) -> Iterator[Float32Array]:
    """Yield the individuals of a generation, float32 (n, dim), no more at once than are multiplied at once."""
    size = run.population_size(generation)
    most = max(1, min(_BUFFER // (4 * dim), _MOST_ROWS))
    for first in range(0, size, most):
        yield run.members(generation, range(first, min(first + most, size)))


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
