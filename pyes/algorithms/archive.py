"""The archive of novelty search: the behaviours so far, and how far from them another one is.

Owns distances between behaviours. Must not know what behaved.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Archive:
    """Behaviours of equal size, in the order in which they were added.

    Parameters
    ----------
    neighbours : int
        How many of the nearest behaviours the novelty is measured by.
    """

    def __init__(self, neighbours: int) -> None:
        self._neighbours = neighbours
        self.behaviours: NDArray[np.float32] = np.empty((0, 0), np.float32)

    def add(self, behaviours: NDArray[np.float32]) -> None:
        """Add float32 (n, size); those that are not finite (the member failed) are left out."""
        known = behaviours[np.isfinite(behaviours).all(axis=1)]
        self.behaviours = np.concatenate([self.behaviours, known]) if len(self.behaviours) else known.copy()

    def novelty(self, behaviours: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the mean Euclidean distance of each of (n, size) to its nearest neighbours here, or to all if fewer.

        Returns
        -------
        float64 (n,)
            NaN where a behaviour is not finite; 0 while the archive is empty.

        Notes
        -----
        Conti et al. 2018, section 3.1; Lehman & Stanley 2011, equation 1. Sums run in a fixed order: by component, then
        from the nearest neighbour to the farthest. O(n m size) for an archive of m; a tree would pay only beyond tens
        of thousands of them, and an episode costs more than that.
        """
        novelties = np.full(len(behaviours), np.nan)
        for index in np.flatnonzero(np.isfinite(behaviours).all(axis=1)):
            novelties[index] = self._distance(behaviours[index]) if len(self.behaviours) else 0.0
        return novelties

    def _distance(self, behaviour: NDArray[np.float32]) -> float:
        difference = self.behaviours - behaviour.astype(np.float64)
        squares = np.add.accumulate(difference * difference, axis=1)[:, -1]
        count = min(self._neighbours, len(squares))
        nearest = np.sqrt(np.sort(np.partition(squares, count - 1)[:count]))
        return float(np.add.accumulate(nearest)[-1] / count)

    def state_dict(self) -> dict[str, Any]:
        """Return the behaviours; a copy."""
        return {"behaviours": self.behaviours.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.behaviours = state["behaviours"].copy()
