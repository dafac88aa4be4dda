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
    filled = _fill_failed(returns)
    deviations = filled - _sum(filled) / len(filled)
    std = np.sqrt(_sum(deviations * deviations) / len(filled))
    return (deviations / std if std > 0 else np.zeros_like(deviations)).astype(np.float32)


def none(returns: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the returns as they are: float32 (n,)."""
    return _fill_failed(returns).astype(np.float32)


def mean(returns: NDArray[np.float64]) -> float:
    """Mean return of the members that did not fail; -inf when all did."""
    known = returns[~np.isnan(returns)]
    return _sum(known) / len(known) if len(known) else -np.inf


SHAPINGS: dict[Name, Callable[[NDArray[np.float64]], NDArray[np.float32]]] = {
    "centered_ranks": centered_ranks,
    "z_score": z_score,
    "none": none,
}


def _fill_failed(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    finite = np.isfinite(returns)
    return np.where(finite, returns, returns[finite].min() if finite.any() else 0.0)


def _sum(values: NDArray[np.float64]) -> float:
    """Add in index order: NumPy's own sum takes an order that depends on the build."""
    return float(np.add.accumulate(values)[-1])
