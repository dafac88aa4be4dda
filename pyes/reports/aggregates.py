"""Combines several runs: curves on a common grid, a central line and a band, an interval of a mean, and a paired test.

Owns the arithmetic of comparisons. Knows no files and no figures. Invariant: equal input gives equal numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]

BandKind = Literal["range", "iqm"]

_POINTS = 1000  # most points of a common grid: no figure has more pixels
_RESAMPLES = 2000
_CONFIDENCE = 0.95
_ALL_FLIPS = 16  # pairs up to which all changes of sign are tried
_BLOCKS, _FLIPS = 100, 1000  # of random changes of sign


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
    resampled = np.array([interquartile_mean(values[draw]) for draw in _draws(len(values))])  # all at once is too large
    return Band(interquartile_mean(values), *_interval(resampled))


def mean_interval(values: Float64Array) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean over the bootstrap resamples of `summarise`."""
    low, high = _interval(values[_draws(len(values))].mean(axis=1))
    return float(low), float(high)


def sign_flip_test(differences: Float64Array) -> float:
    """Return the two-sided p of a mean difference of zero, by the signs of paired differences.

    p is the share of all changes of sign, equally likely under the null hypothesis, whose mean is at least as far from
    zero. With more than `_ALL_FLIPS` pairs it is that of 100,000 random ones, with a fixed seed, and of the signs as
    they are (Phipson & Smyth 2010, "Permutation P-values Should Never Be Zero").
    """
    pairs, rng = len(differences), np.random.default_rng(0)
    if exact := pairs <= _ALL_FLIPS:
        blocks = [np.arange(2**pairs)[:, None] >> np.arange(pairs) & 1]
    else:
        blocks = [rng.integers(2, size=(_FLIPS, pairs)) for _ in range(_BLOCKS)]
    sums = np.abs(np.concatenate([(1 - 2 * block) @ differences for block in blocks]))
    rounding = 1e-12 * np.abs(differences).sum()  # sums that would be equal differ by less
    extreme = int(np.count_nonzero(sums >= abs(differences.sum()) - rounding))
    return extreme / len(sums) if exact else (extreme + 1) / (len(sums) + 1)


def _draws(count: int) -> NDArray[np.int64]:
    """Return the bootstrap resamples of ``count`` runs, the same every time: int64 (resamples, count)."""
    return np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))


def _interval(resampled: Float64Array) -> tuple[Float64Array, Float64Array]:
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=0)
    return low, high


def interquartile_mean(values: Float64Array) -> Float64Array:
    """Return the mean over the first axis without the lowest and the highest quarter, each rounded down.

    With three values or fewer this is the plain mean.
    """
    cut = len(values) // 4
    return np.asarray(np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0))
