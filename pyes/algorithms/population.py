"""The members of one generation, as an algorithm asks for them to be evaluated.

Owns what a member is. All algorithms have this one form: those on the noise table name slices of it, the others give
their vectors whole, as bases that are not perturbed.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pyes import _core

Vector = NDArray[np.float32]


class Member(NamedTuple):
    """Parameters of one member: theta, or theta plus a multiple of a slice of the noise table. Arrays are not copied.

    Attributes
    ----------
    theta : float32 (dim,)
    table : (entries,) or None
        The noise; None: theta as it is.
    offset : int
        Start of the slice.
    scale : float
        Factor of the slice.
    deviation : float32 (dim,) or None
        Factor of each parameter of the slice.
    """

    theta: Vector
    table: NDArray[Any] | None = None
    offset: int = 0
    scale: float = 0.0
    deviation: Vector | None = None

    def write(self, out: Vector) -> Vector:
        """Write the parameters to ``out``, float32 (dim,), and return it."""
        if self.table is None:
            out[:] = self.theta
        else:
            _core.perturb(self.theta, self.table, self.offset, self.scale, out, deviation=self.deviation)
        return out


@dataclass(frozen=True)
class Population:
    """Members: number i is ``bases[rows[i]] + scales[i] * deviation * slice(offsets[i])``, slices of the noise table.

    Attributes
    ----------
    generation : int
        Counted from 0.
    bases : float32 (m, dim)
        What is perturbed: one center, some parents, or each member by itself.
    rows : int64 (n,)
        Base of each member.
    offsets : int64 (n,)
        Start of each member's slice.
    scales : float32 (n,)
        Sigma, with the sign of a mirrored member; 0 for a base as it is.
    deviation : float32 (dim,)
        Factor of each parameter of a slice; None stands for 1.

    Notes
    -----
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

    def member(self, index: int, table: NDArray[Any] | None) -> Member:
        """Return one member; ``table`` holds the noise, and may be None if no member is perturbed."""
        base, scale = self.bases[self.rows[index]], float(self.scales[index])
        if scale == 0.0:
            return Member(base)
        if table is None:
            raise ValueError(f"member {index} is perturbed, and there is no noise table; set on_table in its Config")
        return Member(base, table, int(self.offsets[index]), scale, self.deviation)

    def problem(self, dim: int, entries: int) -> str:
        """Return what is wrong with the arrays, for parameters and a noise table of these lengths; "" if nothing."""
        size = len(self.offsets)
        expected: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
            "bases": (np.float32, (len(self.bases), dim)),
            "rows": (np.int64, (size,)),
            "offsets": (np.int64, (size,)),
            "scales": (np.float32, (size,)),
        }
        if self.deviation is not None:
            expected["deviation"] = np.float32, (dim,)
        for name, (dtype, shape) in expected.items():
            array = np.asarray(getattr(self, name))
            if array.dtype != dtype or array.shape != shape:
                return f"{name} is {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}"
        if self.rows.min(initial=0) < 0 or self.rows.max(initial=0) >= len(self.bases):
            return f"rows are not all from 0 to {len(self.bases) - 1}"
        used = self.offsets[self.scales != 0]
        if used.min(initial=0) < 0 or used.max(initial=0) > max(0, entries - dim):
            return f"offsets are not all from 0 to {entries - dim}"
        return ""
