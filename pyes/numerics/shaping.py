"""Shaping: turns the returns of a generation into weights of its members.

A member failed if its return is not finite (NaN or an infinity); every shaping counts it as the worst.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyes import _core

#: By which the differential return may outgrow its part in the return. Its spread over the members is a quarter of the
#: return's in Hopper and a half in Walker2d, where it matters, and a thirtieth in InvertedDoublePendulum.
_MOST = 20.0
#: Spread of equal numbers, relative to them, that comes from the rounding of their mean.
_ROUNDING = 1e-12
Name = Literal["centered_ranks", "z_score", "none"]


def failed_as_nan(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace the returns of failed members by NaN: float64 (n,)."""
    return np.where(np.isfinite(returns), returns, np.nan)


def fill_failed(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace the returns of failed members by the worst return: float64 (n,); zeros if all failed."""
    finite = np.isfinite(returns)
    return np.where(finite, returns, returns[finite].min() if finite.any() else 0.0)


def centered_ranks(returns: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return ranks scaled to [-0.5, 0.5]: float32 (n,); ties share their mean rank (Salimans et al. 2017, section 2.1).

    Failed members share the lowest ranks.
    """
    out = np.empty(len(returns), np.float32)
    _core.centered_ranks(failed_as_nan(returns), out)
    return out


def z_score(returns: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return (returns - mean) / standard deviation: float32 (n,); zeros if all are equal."""
    filled = of_unit_scale(fill_failed(returns))
    if filled.min() == filled.max():  # the rounded mean may differ from them
        return np.zeros(len(filled), np.float32)
    deviations = filled - ordered_sum(filled) / len(filled)
    spread = standard_deviation(filled)
    return (deviations / spread if spread > 0 else np.zeros_like(deviations)).astype(np.float32)


#: Of each name: float32 or float64 (n,). "none" keeps float64, in which differences of large returns are not lost.
SHAPINGS: dict[Name, Callable[[NDArray[np.float64]], NDArray[np.float32] | NDArray[np.float64]]] = {
    "centered_ranks": centered_ranks,
    "z_score": z_score,
    "none": fill_failed,
}


def with_differential(returns: NDArray[np.float64], lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return returns in which a bonus for being alive has half of the weight: float64 (n,), in no unit.

    They are the sum of two values in standard deviations: the return, and the differential return, which is the return
    less the mean reward of a timestep for each timestep (Sutton and Barto 2018, section 10.3). By the second, standing
    still for a bonus is no better than the mean, and moving is better, even if a fall follows.

    The second counts at most 20 times as much as it does within the return, so that where staying alive is all but the
    whole task, small costs do not outweigh it.

    Parameters
    ----------
    returns : float64 (n,)
        Not finite where a member failed. They stay as they are if they or the lengths are all equal, if rewards are not
        positive in the mean, or if returns are in exact proportion to lengths: then there is no bonus, or nothing else.
    lengths : float64 (n,)
        Timesteps of each member, mean over its episodes.
    """
    known = np.isfinite(returns)
    if not known.any() or (lengths[known] == lengths[known][0]).all():
        return returns
    with np.errstate(over="ignore", invalid="ignore"):  # of returns near the largest float64
        reward = ordered_sum(returns[known]) / ordered_sum(lengths[known])
        differential = returns - reward * lengths
        spread, other = standard_deviation(returns[known]), standard_deviation(differential[known])
    rounding = _ROUNDING * float(np.abs(returns[known]).max())
    if not (reward > 0 and other > 0 and rounding < spread < np.inf and other < np.inf):
        return returns
    return returns / spread + differential / max(other, spread / _MOST)


def mean(returns: NDArray[np.float64]) -> float:
    """Return the mean of the members that did not fail; -inf if all did."""
    known = returns[np.isfinite(returns)]
    return ordered_sum(known) / len(known) if len(known) else -np.inf


def by_rank(returns: NDArray[np.float64], utilities: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the utility of each member's rank: float32 (n,).

    Parameters
    ----------
    returns : float64 (n,)
        Equal ones share the mean of their utilities; those of failed members are the lowest.
    utilities : float64 (n,)
        Utility of the best, the second best, ...
    """
    returns = failed_as_nan(returns)
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


def of_unit_scale(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values divided by the power of two that is next to the largest, so that no square of them is too large.

    Ratios of what is computed from them keep their bits.
    """
    _, exponent = np.frexp(np.abs(values).max())
    scaled: NDArray[np.float64] = np.ldexp(values, -exponent)
    return scaled


def standard_deviation(values: NDArray[np.float64]) -> float:
    """Return the population standard deviation, with sums in index order."""
    deviations = values - ordered_sum(values) / len(values)
    return float(np.sqrt(ordered_sum(deviations * deviations) / len(values)))


def ordered_sum(values: NDArray[np.float64]) -> float:
    """Return the sum in index order (the order of ``np.sum`` depends on NumPy's build)."""
    return float(np.add.accumulate(values)[-1])


def norm(vector: NDArray[np.float32]) -> float:
    """Return the Euclidean norm, with equal bits on every machine (`numpy.linalg.norm` sums as the processor likes)."""
    return float(np.sqrt(ordered_sum(vector.astype(np.float64) ** 2)))
