"""The gradient that members around a center give: a weighted sum of their perturbations.

Must not know where the weights come from, nor what is done with the gradient.
"""

import numpy as np
from numpy.typing import NDArray

from pyes.numerics import noise
from pyes.numerics.noise import NoiseTable


def estimate_gradient(
    table: NoiseTable,
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32] | NDArray[np.float64],
    out: NDArray[np.float32],
    threads: int,
    mirrored: bool,
) -> None:
    """Write ``sum_i weights[i] * eps_i / n`` to ``out`` (Salimans et al. 2017, algorithm 2; not divided by sigma).

    Parameters
    ----------
    table : NoiseTable
        Source of the perturbations eps.
    offsets, weights : (n,)
        Of the members.
    out : float32 (dim,)
        The gradient.
    threads : int
        The result does not depend on it.
    mirrored : bool
        Members 2k and 2k + 1 are theta + sigma * eps and theta - sigma * eps; their slice is read once.
    """
    size = weights.dtype.type(len(weights))
    if mirrored:
        weights, offsets = weights[::2] - weights[1::2], np.ascontiguousarray(offsets[::2])
    noise.weighted_sum(table, offsets, (weights / size).astype(np.float32, copy=False), out, threads)
