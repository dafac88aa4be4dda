"""The members of one generation, as an algorithm asks for them to be evaluated."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Population:
    """Members on the noise table: member i is ``theta + scales[i] * slice(offsets[i])``.

    Attributes
    ----------
    generation : int             counted from 0
    offsets : int64 (n,)         start of each member's slice
    scales : float32 (n,)        sigma, with the sign of a mirrored member

    Mirrored members follow each other: 2k is ``theta + sigma * eps_k``, 2k + 1 is ``theta - sigma * eps_k``.
    """

    generation: int
    offsets: NDArray[np.int64]
    scales: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.offsets)
