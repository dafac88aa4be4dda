"""Hypothesis strategies and parametrisations that the tests of the kernels share."""

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyes import _core, reference

#: Run a test on the compiled kernels and on their NumPy twins.
each_impl = pytest.mark.parametrize("impl", [_core, reference], ids=["core", "reference"])
#: Run a test on every instruction set of this machine.
each_level = pytest.mark.parametrize("level", _core.levels())
#: Run a test on every type of noise table.
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.int8], ids=["float32", "bfloat16", "int8"])

seeds = st.one_of(st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**64 - 1]), st.integers(0, 2**64 - 1))
words = st.one_of(st.sampled_from([0, 1, 2**32 - 1]), st.integers(0, 2**32 - 1))
#: Lengths on both sides of the vectors, groups, tiles and batches of the kernels.
sizes = st.one_of(st.integers(0, 70), st.sampled_from([127, 128, 511, 512, 513, 1023, 4095, 4096, 4097, 5000]))
#: Table positions where something could break: batch edges, the 32-bit block counter, the far end.
starts = st.one_of(
    st.integers(0, 2000),
    st.sampled_from([2**34 - 600, 2**34 - 1, 2**34, 2**34 + 3, 2**40 + 511]),
    st.integers(0, 2**45),
)
#: Returns as environments give them, broken ones included; a small range makes ties.
returns = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.sampled_from([np.nan, np.inf, -np.inf, -0.0]), st.floats(width=32)),
    min_size=0,
    max_size=60,
)


def table_of(dtype: Any, length: int, seed: int = 0) -> NDArray[Any]:
    """Return a read-only noise table, as workers map it."""
    table = np.empty(length, dtype)
    _core.fill_noise(table, seed)
    table.flags.writeable = False
    return table


def normals(shape: int | tuple[int, ...], seed: int = 0) -> NDArray[np.float32]:
    """Return NumPy's normals: independent of the kernels under test."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def as_float(table: NDArray[Any]) -> NDArray[np.float64]:
    """Return the values that a table's entries stand for."""
    if table.dtype == np.uint16:
        return (table.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return table.astype(np.float64) / (32 if table.dtype == np.int8 else 1)
