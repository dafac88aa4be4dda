"""Lineages: an individual as the mutations that lead to it from the first one.

Owns the compact form of Such et al. (2017, section 3.1): the offset and the scale of every mutation. Must not know how
parents are chosen. Invariant: a lineage is rebuilt to the vector that its mutations made one by one, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.population import Vector
from pyes.numerics import noise
from pyes.numerics.noise import NoiseTable


@dataclass(frozen=True)
class Lineage:
    """The mutations of one individual, the first one first.

    Attributes
    ----------
    offsets : int64 (n,)
        Start of each mutation's slice of the noise table.
    scales : float32 (n,)
        Its sigma.
    """

    offsets: NDArray[np.int64]
    scales: NDArray[np.float32]

    @classmethod
    def none(cls) -> Self:
        """Return the lineage of the first individual."""
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))

    def mutated(self, offset: int, scale: float) -> "Lineage":
        """Return the lineage of an offspring; without a mutation (scale 0) it is this one."""
        if scale == 0:
            return self
        return Lineage(np.append(self.offsets, np.int64(offset)), np.append(self.scales, np.float32(scale)))

    def rebuild(self, origin: Vector, table: NoiseTable, out: Vector, threads: int) -> None:
        """Write the individual to ``out``, float32 (dim,), starting from ``origin``."""
        out[:] = origin
        noise.add_slices(table, self.offsets, self.scales, out, threads)


def pack(lineages: Sequence[Lineage]) -> dict[str, Any]:
    """Return lineages as flat arrays: lineage i is the entries from starts[i] up to starts[i + 1]."""
    return {
        "offsets": np.concatenate([each.offsets for each in lineages]),
        "scales": np.concatenate([each.scales for each in lineages]),
        "starts": np.cumsum([0, *(len(each.offsets) for each in lineages)], dtype=np.int64),
    }


def unpack(packed: dict[str, Any]) -> list[Lineage]:
    """Return the lineages that `pack` made flat."""
    inner = packed["starts"][1:-1]
    parts = zip(np.split(packed["offsets"], inner), np.split(packed["scales"], inner), strict=True)
    return [Lineage(offsets.copy(), scales.copy()) for offsets, scales in parts]
