"""Shaping: from the returns of a generation to the weights of its members.

A member that failed has the return NaN and counts as the worst under every shaping.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyes import _core

Name = Literal["centered_ranks", "z_score", "none"]


def centered_ranks(returns: NDArray[np.float64]) -> NDArray[np.float32]:
    """Ranks scaled to [-0.5, 0.5]: float32 (n,); ties share their mean rank (Salimans et al. 2017, section 2.1)."""
    out = np.empty(len(returns), np.float32)
    _core.centered_ranks(returns, out)
    return out


def z_score(returns: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the returns less their mean, over their standard deviation: float32 (n,); zeros when all are equal."""
    filled = fill_failed(returns)
    deviations = filled - ordered_sum(filled) / len(filled)
    spread = standard_deviation(filled)
    return (deviations / spread if spread > 0 else np.zeros_like(deviations)).astype(np.float32)


def none(returns: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the returns as they are: float32 (n,)."""
    return fill_failed(returns).astype(np.float32)


def mean(returns: NDArray[np.float64]) -> float:
    """Mean return of the members that did not fail; -inf when all did."""
    known = returns[~np.isnan(returns)]
    return ordered_sum(known) / len(known) if len(known) else -np.inf


SHAPINGS: dict[Name, Callable[[NDArray[np.float64]], NDArray[np.float32]]] = {
    "centered_ranks": centered_ranks,
    "z_score": z_score,
    "none": none,
}


def by_rank(returns: NDArray[np.float64], utilities: NDArray[np.float64]) -> NDArray[np.float32]:
    """Give every member the utility of its rank: float32 (n,).

    Parameters
    ----------
    returns : (n,)      NaN ranks lowest; equal ones share the mean of their utilities
    utilities : (n,)    of the best, the second best, ...
    """
    order = np.lexsort((-returns, np.isnan(returns)))  # NaN last
    ordered = returns[order]
    starts = np.concatenate([[True], (ordered[1:] != ordered[:-1]) & ~np.isnan(ordered[1:])])
    starts[np.flatnonzero(np.isnan(ordered))[:1]] = True
    first = np.flatnonzero(starts)
    last = np.concatenate([first[1:], [len(ordered)]])
    sums = np.concatenate([[0.0], np.add.accumulate(utilities)])
    shared = np.where(last - first == 1, utilities[first], (sums[last] - sums[first]) / (last - first))
    out = np.empty(len(returns), np.float32)
    out[order] = shared[np.cumsum(starts) - 1]
    return out


def fill_failed(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give members that failed the worst return of the others: float64 (n,)."""
    finite = np.isfinite(returns)
    return np.where(finite, returns, returns[finite].min() if finite.any() else 0.0)


def standard_deviation(values: NDArray[np.float64]) -> float:
    """Return the root of the mean square deviation from the mean, with sums in index order."""
    deviations = values - ordered_sum(values) / len(values)
    return float(np.sqrt(ordered_sum(deviations * deviations) / len(values)))


def ordered_sum(values: NDArray[np.float64]) -> float:
    """Add in index order: NumPy's own sum takes an order that depends on the build."""
    return float(np.add.accumulate(values)[-1])
