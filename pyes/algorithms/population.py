"""The members of one generation, as an algorithm asks for them to be evaluated.

Owns what a member is. Every algorithm speaks this one language: those on the noise table name slices of it, the others
bring their vectors whole, as bases that are not perturbed.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pyes import _core

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Population:
    """Members: number i is ``bases[rows[i]] + scales[i] * slice(offsets[i])``, slices being of the noise table.

    Attributes
    ----------
    generation : int               counted from 0
    bases : float32 (m, dim)       what is perturbed: one center, some parents, or each member by itself
    rows : int64 (n,)              base of each member
    offsets : int64 (n,)           start of each member's slice
    scales : float32 (n,)          sigma, with the sign of a mirrored member; 0 for a base as it is
    deviation : float32 (dim,)     multiplies each slice, parameter by parameter; None: 1

    Mirrored members follow each other: 2k is ``theta + sigma * eps_k``, 2k + 1 is ``theta - sigma * eps_k``.
    """

    generation: int
    bases: NDArray[np.float32]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    scales: NDArray[np.float32]
    deviation: Vector | None = None

    @classmethod
    def around(
        cls,
        generation: int,
        theta: Vector,
        offsets: NDArray[np.int64],
        scales: NDArray[np.float32],
        deviation: Vector | None = None,
    ) -> Self:
        """Return perturbations of one center; theta is not copied."""
        return cls(generation, theta[None], np.zeros(len(offsets), np.int64), offsets, scales, deviation)

    @classmethod
    def of(cls, generation: int, vectors: NDArray[np.float32]) -> Self:
        """Return members that are given whole: float32 (n, dim); they are not copied."""
        size = len(vectors)
        return cls(generation, vectors, np.arange(size), np.zeros(size, np.int64), np.zeros(size, np.float32))

    @classmethod
    def center(cls, generation: int, theta: Vector, size: int) -> Self:
        """Return the center itself, ``size`` times."""
        return cls.around(generation, theta, np.zeros(size, np.int64), np.zeros(size, np.float32))

    def __len__(self) -> int:
        return len(self.offsets)

    def member(self, index: int, table: NDArray[Any], out: Vector) -> None:
        """Write one member's parameters to ``out``, float32 (dim,); ``table`` holds the noise."""
        base, scale = self.bases[self.rows[index]], float(self.scales[index])
        if scale == 0.0:
            out[:] = base
            return
        _core.perturb(base, table, int(self.offsets[index]), scale, out, deviation=self.deviation)
