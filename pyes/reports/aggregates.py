"""Combines several curves: interpolation onto a common grid, a central line and a band.

Owns the arithmetic of comparisons. Knows no files and no figures. Invariant: equal curves give equal numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]

BandKind = Literal["range", "iqm"]
BANDS: tuple[BandKind, ...] = get_args(BandKind)

_POINTS = 1000  # most points of a common grid: no figure has more pixels
_RESAMPLES = 2000
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Band:
    """A line and the lower and upper edge of its band: each float64 (points,)."""

    line: Float64Array
    low: Float64Array
    high: Float64Array


def align(
    curves: Sequence[tuple[Float64Array, Float64Array]], kept: Sequence[bool]
) -> tuple[Float64Array, Float64Array] | None:
    """Interpolate curves linearly onto a common grid.

    Parameters
    ----------
    curves : Sequence[tuple[Float64Array, Float64Array]]
        Ascending x and y of each curve.
    kept : Sequence[bool]
        Whether a curve that ends early keeps its last value.

    Returns
    -------
    tuple or None
        Grid, float64 (points,), and values, float64 (curves, points). The grid begins where the last curve begins. It
        ends where the first curve ends that does not keep its last value, or with the longest curve if all keep
        theirs. None where the curves do not overlap.
    """
    start = max(x[0] for x, _ in curves)
    ends = [x[-1] for (x, _), keep in zip(curves, kept, strict=True) if not keep]
    stop = min(ends) if ends else max(x[-1] for x, _ in curves)
    if start >= stop:
        return None
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    grid = grid[(grid >= start) & (grid <= stop)]
    if len(grid) > _POINTS:
        grid = np.linspace(start, stop, _POINTS)
    return grid, np.array([np.interp(grid, x, y) for x, y in curves])


def summarise(values: Float64Array, kind: BandKind) -> Band:
    """Return the line and the band of values, float64 (curves, points).

    ``range``: mean, minimum and maximum. ``iqm``: interquartile mean and the 95 % percentile interval over
    `_RESAMPLES` bootstrap resamples of whole curves, with a fixed seed (Agarwal et al. 2021, "Deep Reinforcement
    Learning at the Edge of the Statistical Precipice").
    """
    if kind == "range":
        return Band(values.mean(axis=0), values.min(axis=0), values.max(axis=0))
    draws = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    resampled = np.array([interquartile_mean(values[draw]) for draw in draws])
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=0)
    return Band(interquartile_mean(values), low, high)


def interquartile_mean(values: Float64Array) -> Float64Array:
    """Return the mean over the first axis without the lowest and the highest quarter, each rounded down.

    With three values or fewer this is the plain mean.
    """
    cut = len(values) // 4
    return np.asarray(np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0))
