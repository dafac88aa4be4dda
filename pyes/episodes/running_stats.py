"""Observation statistics of a run: merged in member order once per generation, constant in between."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_RESOLUTION = 2.0**-24  # least distance of neighbours in float32, relative
_LEAST_STD = 1e-2  # limits the normalised value of an observation that was constant so far


class RunningStats:
    """Count, sums and sums of squares of all observations so far, in float64.

    Parameters
    ----------
    size : int
        Numbers in an observation.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self._sums = np.zeros((2, size))

    def merged(self, sums: NDArray[np.float64], lengths: NDArray[np.int64]) -> tuple[int, NDArray[np.float64]]:
        """Return count and sums with the observations of some members added, without changing the state.

        Parameters
        ----------
        sums : float64 (rows, 2, size)
            Sums of observations and of their squares, in member order.
        lengths : int64 (rows,)
            Observations in each row.

        Returns
        -------
        int, float64 (2, size)
            Without rows that are not finite, as from an observation of NaN.
        """
        count, total = self.count, self._sums.copy()
        # Row by row, so that additions are in member order.
        for row, length in zip(sums, lengths.tolist(), strict=True):
            if np.isfinite(row).all():
                total += row
                count += length
        return count, total

    def normalizer(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Return (mean, 1 / standard deviation), float32 (size,) each; None before the first observation."""
        if self.count == 0:
            return None
        mean = self._sums[0] / self.count
        variance = self._sums[1] / self.count - mean * mean
        # Observations are float32: what varies by less than their last bits is constant, whatever the difference says.
        least = np.maximum(_LEAST_STD, np.abs(mean) * _RESOLUTION)
        inverse_std = 1.0 / np.sqrt(np.maximum(variance, least * least))
        return mean.astype(np.float32), inverse_std.astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Return count and sums."""
        return {"count": self.count, "sums": self._sums.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.count = int(state["count"])
        self._sums[:] = state["sums"]
