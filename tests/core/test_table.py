"""perturb and weighted_sum: equal bits on core, reference, every level and any split; bounds and aliasing."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import as_float, each_dtype, each_impl, each_level, normals, sizes, table_of

from pyes import _core, reference


@each_dtype
@given(sizes, st.integers(0, 9), st.floats(-2, 2, width=32))
def test_perturb_core_equals_reference(dtype: Any, dim: int, spare: int, scale: float) -> None:
    theta, table = normals(dim), table_of(dtype, dim + spare)
    for offset in {0, spare // 2, spare}:
        ours, twin = np.empty_like(theta), np.empty_like(theta)
        _core.perturb(theta, table, offset, scale, ours)
        reference.perturb(theta, table, offset, scale, twin)
        np.testing.assert_array_equal(ours, twin)
        _core.perturb(theta, table, offset, scale, ours, deviation=normals(dim, 1))
        reference.perturb(theta, table, offset, scale, twin, deviation=normals(dim, 1))
        np.testing.assert_array_equal(ours, twin)


@each_impl
@each_dtype
def test_perturb_adds_the_slice(impl: Any, dtype: Any) -> None:
    theta, table, out = normals(1000), table_of(dtype, 5000), np.empty(1000, np.float32)
    impl.perturb(theta, table, 4000, 0.25, out)
    np.testing.assert_allclose(out, theta + 0.25 * as_float(table[4000:]), atol=1e-6)
    deviation = normals(1000, 1)
    impl.perturb(theta, table, 4000, 0.25, out, deviation=deviation)
    np.testing.assert_allclose(out, theta + 0.25 * deviation * as_float(table[4000:]), atol=1e-6)


@each_dtype
@given(sizes, st.integers(0, 20), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_weighted_sum_core_equals_reference(dtype: Any, dim: int, n: int, spare: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    table, weights = table_of(dtype, dim + spare), normals(n, seed)
    offsets = random.integers(0, spare + 1, n)
    offsets[: min(n, 2)] = (0, spare)[: min(n, 2)]  # both ends
    ours, twin = np.full(dim, np.nan, np.float32), np.empty(dim, np.float32)
    _core.weighted_sum(table, offsets, weights, ours)
    reference.weighted_sum(table, offsets, weights, twin)
    np.testing.assert_array_equal(ours, twin)


@pytest.mark.slow
@each_dtype
@given(sizes, st.integers(0, 20), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_add_slices_is_one_perturbation_after_the_other(dtype: Any, dim: int, n: int, spare: int, seed: int) -> None:
    table, weights = table_of(dtype, dim + spare), normals(n, seed)
    offsets = np.random.default_rng(seed).integers(0, spare + 1, n)
    ours, twin, steps = normals(dim), normals(dim), normals(dim)
    _core.add_slices(table, offsets, weights, ours)
    reference.add_slices(table, offsets, weights, twin)
    for offset, weight in zip(offsets.tolist(), weights.tolist(), strict=True):
        _core.perturb(steps, table, offset, weight, steps)
    np.testing.assert_array_equal(ours, twin)
    np.testing.assert_array_equal(ours, steps)


@each_impl
@each_dtype
def test_weighted_sum_is_the_sum(impl: Any, dtype: Any) -> None:
    table, offsets, weights = table_of(dtype, 5000), np.arange(0, 4000, 37), normals(109)
    out = np.empty(1000, np.float32)
    impl.weighted_sum(table, offsets, weights, out)
    exact = weights.astype(np.float64) @ np.stack([as_float(table[k : k + 1000]) for k in offsets])
    np.testing.assert_allclose(out, exact, atol=2e-5)


@each_level
@each_dtype
@pytest.mark.parametrize("dim", [1, 15, 4096, 10_001])
def test_table_kernels_all_levels_give_equal_bits(level: str, dtype: Any, dim: int) -> None:
    table, weights = table_of(dtype, dim + 100), normals(29)
    offsets = np.random.default_rng(0).integers(0, 101, 29)
    ours, twin = np.empty(dim, np.float32), np.empty(dim, np.float32)
    _core.weighted_sum(table, offsets, weights, ours, level=level)
    reference.weighted_sum(table, offsets, weights, twin)
    np.testing.assert_array_equal(ours, twin)
    _core.add_slices(table, offsets, weights, ours, level=level)
    reference.add_slices(table, offsets, weights, twin)
    np.testing.assert_array_equal(ours, twin)
    _core.perturb(twin, table, 100, 0.1, ours, level=level)
    expected = np.empty_like(twin)
    reference.perturb(twin, table, 100, 0.1, expected)
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.slow
@each_dtype
@given(st.integers(1, 9000), st.lists(st.integers(0, 9000), max_size=4))
def test_weighted_sum_any_split_by_parameters_gives_equal_bits(dtype: Any, dim: int, cuts: list[int]) -> None:
    """What threads rely on: a sub-range of out with shifted offsets."""
    table, weights = table_of(dtype, dim + 50), normals(11)
    offsets = np.random.default_rng(dim).integers(0, 51, 11)
    whole, split = np.empty(dim, np.float32), np.empty(dim, np.float32)
    _core.weighted_sum(table, offsets, weights, whole)
    bounds = [0, *sorted(min(cut, dim) for cut in cuts), dim]
    for start, stop in itertools.pairwise(bounds):
        _core.weighted_sum(table, offsets + start, weights, split[start:stop])
    np.testing.assert_array_equal(whole, split)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_weighted_sum_passes_nan_and_inf_on(special: float) -> None:
    weights = np.array([1, special, 1], np.float32)
    out = np.empty(100, np.float32)
    _core.weighted_sum(table_of(np.float32, 200), np.array([0, 50, 100]), weights, out)
    assert not np.isfinite(out).any()


def test_weighted_sum_of_nothing_is_zero() -> None:
    out = np.full(10, np.nan, np.float32)
    _core.weighted_sum(table_of(np.float32, 10), np.empty(0, np.int64), np.empty(0, np.float32), out)
    np.testing.assert_array_equal(out, 0)


@pytest.mark.parametrize("offset", [-1, 91])
def test_offset_outside_the_table_is_refused(offset: int) -> None:
    table, out = table_of(np.float32, 100), np.empty(10, np.float32)
    with pytest.raises(ValueError, match=f"offset: got {offset}, expected 0 <= offset <= 90"):
        _core.perturb(normals(10), table, offset, 1.0, out)
    with pytest.raises(ValueError, match=rf"offsets\[1\]: got {offset}, expected 0 <= offset <= 90"):
        _core.weighted_sum(table, np.array([0, offset]), normals(2), out)


def test_table_smaller_than_theta_is_refused() -> None:
    table, out = table_of(np.float32, 9), np.empty(10, np.float32)
    with pytest.raises(ValueError, match="table: got 9 entries, expected at least the 10 of theta"):
        _core.perturb(normals(10), table, 0, 1.0, out)
    with pytest.raises(ValueError, match="table: got 9 entries, expected at least the 10 of out"):
        _core.weighted_sum(table, np.zeros(1, np.int64), np.ones(1, np.float32), out)


def test_perturb_in_place_is_allowed_and_partial_overlap_is_not() -> None:
    table = table_of(np.float32, 100)
    block = normals(20)
    expected = np.empty(10, np.float32)
    _core.perturb(block[:10], table, 3, 0.5, expected)
    with pytest.raises(ValueError, match="out: got an array that overlaps theta"):
        _core.perturb(block[:10], table, 3, 0.5, block[1:11])
    _core.perturb(block[:10], table, 3, 0.5, block[:10])
    np.testing.assert_array_equal(block[:10], expected)


def test_out_inside_the_table_is_refused() -> None:
    table = normals(100)
    with pytest.raises(ValueError, match="out: got an array that overlaps table"):
        _core.perturb(normals(10), table, 0, 1.0, table[50:60])
    with pytest.raises(ValueError, match="out: got an array that overlaps table"):
        _core.weighted_sum(table, np.array([0]), normals(1), table[50:60])


def test_lengths_that_differ_say_got_and_expected() -> None:
    table = table_of(np.float32, 100)
    with pytest.raises(ValueError, match=r"out: got length 9, expected 10 \(the length of theta\)"):
        _core.perturb(normals(10), table, 0, 1.0, np.empty(9, np.float32))
    with pytest.raises(ValueError, match=r"weights: got length 3, expected 2 \(the length of offsets\)"):
        _core.weighted_sum(table, np.array([0, 1]), normals(3), np.empty(9, np.float32))


def test_read_only_out_is_refused_and_read_only_input_is_not() -> None:
    theta, out = normals(10), np.empty(10, np.float32)
    theta.flags.writeable = False
    _core.perturb(theta, table_of(np.float32, 10), 0, 1.0, out)
    with pytest.raises(ValueError, match="out: got a read-only array"):
        _core.perturb(out, table_of(np.float32, 10), 0, 1.0, theta)


def test_float64_theta_and_int32_offsets_are_refused() -> None:
    table, out = table_of(np.float32, 100), np.empty(10, np.float32)
    with pytest.raises(TypeError, match="theta: got dtype float64, expected float32"):
        _core.perturb(np.zeros(10), table, 0, 1.0, out)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="offsets: got dtype int32, expected int64"):
        _core.weighted_sum(table, np.zeros(2, np.int32), normals(2), out)  # type: ignore[arg-type]
