"""weighted_moments and the steps of sigma: equal bits on core, reference, every level and any split; refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import as_float, each_dtype, each_impl, each_level, normals, sizes, table_of

from pyes import _core, reference
from pyes.numerics import noise


def moments(impl: Any, table: NDArray[Any], n: int, dim: int, seed: int = 0, **options: Any) -> Any:
    offsets = np.random.default_rng(seed).integers(0, len(table) - dim + 1, n)
    mean, spread = np.full(dim, np.nan, np.float32), np.full(dim, np.nan, np.float32)
    impl.weighted_moments(table, offsets, normals(n, seed), normals(n, seed + 1), mean, spread, **options)
    return mean, spread


@each_impl
@each_dtype
def test_weighted_moments_are_the_sums(impl: Any, dtype: Any) -> None:
    table, offsets, weights, others = table_of(dtype, 5000), np.arange(0, 4000, 37), normals(109), normals(109, 1)
    mean, spread = np.empty(1000, np.float32), np.empty(1000, np.float32)
    impl.weighted_moments(table, offsets, weights, others, mean, spread)
    slices = np.stack([as_float(table[k : k + 1000]) for k in offsets])
    np.testing.assert_allclose(mean, weights.astype(np.float64) @ slices, atol=2e-5)
    np.testing.assert_allclose(spread, others.astype(np.float64) @ (slices**2 - 1), atol=1e-4)


@each_dtype
@given(sizes, st.integers(0, 20), st.integers(0, 9), st.integers(0, 2**32 - 2))
def test_weighted_moments_core_equals_reference(dtype: Any, dim: int, n: int, spare: int, seed: int) -> None:
    table = table_of(dtype, dim + spare)
    for ours, twin in zip(moments(_core, table, n, dim, seed), moments(reference, table, n, dim, seed), strict=True):
        np.testing.assert_array_equal(ours, twin)


@each_level
@each_dtype
@pytest.mark.parametrize("dim", [1, 15, 4096, 10_001])
def test_weighted_moments_all_levels_give_equal_bits(level: str, dtype: Any, dim: int) -> None:
    table = table_of(dtype, dim + 100)
    np.testing.assert_array_equal(moments(_core, table, 29, dim, level=level), moments(reference, table, 29, dim))


@each_dtype
def test_mean_is_the_weighted_sum(dtype: Any) -> None:
    table, offsets, weights, mean = table_of(dtype, 6000), np.arange(30), normals(30), np.empty(5000, np.float32)
    _core.weighted_moments(table, offsets, weights, weights, mean, np.empty_like(mean))
    expected = np.empty_like(mean)
    _core.weighted_sum(table, offsets, weights, expected)
    np.testing.assert_array_equal(mean, expected)


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_weighted_moments_are_equal_for_any_number_of_threads(threads: int) -> None:
    dim, n = 150_001, 30
    with noise.NoiseTable(2 * dim, 0) as table:
        offsets, results = np.random.default_rng(0).integers(0, dim, n), []
        for each in (1, threads):
            mean, spread = np.empty(dim, np.float32), np.empty(dim, np.float32)
            noise.weighted_moments(table, offsets, normals(n), normals(n, 1), mean, spread, each)
            results.append((mean, spread))
    np.testing.assert_array_equal(*results)


def test_weighted_moments_refuse_slices_outside_the_table_and_shared_memory() -> None:
    table, offsets, weights, out = table_of(np.float32, 100), np.array([0, 91]), normals(2), np.empty(20, np.float32)
    with pytest.raises(ValueError, match=r"offsets\[1\]: got 91, expected 0 <= offset <= 90 \(table 100 - mean 10\)"):
        _core.weighted_moments(table, offsets, weights, weights, out[:10], out[10:])
    offsets = np.array([0, 1])
    with pytest.raises(ValueError, match="spread: got an array that overlaps mean"):
        _core.weighted_moments(table, offsets, weights, weights, out[:10], out[9:19])
    with pytest.raises(ValueError, match=r"spread: got length 9, expected 10 \(the length of mean\)"):
        _core.weighted_moments(table, offsets, weights, weights, out[:10], out[10:19])
    with pytest.raises(ValueError, match=r"spread_weights: got length 1, expected 2 \(the length of offsets\)"):
        _core.weighted_moments(table, offsets, weights, weights[:1], out[:10], out[10:])
    whole = normals(100)
    with pytest.raises(ValueError, match="mean: got an array that overlaps table"):
        _core.weighted_moments(whole, offsets, weights, weights, whole[:10], out[10:])


@each_impl
def test_deviation_step_is_bounded(impl: Any) -> None:
    deviation, gradient = np.full(5, 2, np.float32), np.array([-100, -1, 0, 1, 100], np.float32)
    impl.deviation_step(deviation, gradient, 0.1, 0.25)
    np.testing.assert_allclose(deviation, [1.5, 1.8, 2, 2.2, 2.5], rtol=1e-6)


@each_impl
def test_snes_step_is_that_of_the_paper(impl: Any) -> None:
    theta, deviation, gradient, second = normals(500), normals(500, 1) ** 2, normals(500, 2), normals(500, 3)
    moved = theta + 0.7 * deviation * gradient
    grown = deviation * np.exp(0.15 * second.astype(np.float64))
    impl.snes_step(theta, deviation, gradient, second, 0.7, 0.3)
    np.testing.assert_allclose(theta, moved, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(deviation, grown, rtol=5e-7)


def steps(impl: Any, dim: int, **options: Any) -> list[NDArray[np.float32]]:
    theta, deviation = normals(dim), normals(dim, 1) ** 2
    impl.deviation_step(deviation, normals(dim, 2), 0.1, 0.2, **options)
    impl.snes_step(theta, deviation, normals(dim, 3), normals(dim, 4), 0.9, 0.2, **options)
    return [theta, deviation]


@given(sizes)
def test_steps_core_equals_reference(dim: int) -> None:
    for ours, twin in zip(steps(_core, dim), steps(reference, dim), strict=True):
        np.testing.assert_array_equal(ours, twin)


@each_level
def test_steps_all_levels_give_equal_bits(level: str) -> None:
    np.testing.assert_array_equal(steps(_core, 10_001, level=level), steps(reference, 10_001))


def test_steps_refuse_impossible_arguments() -> None:
    theta, deviation, gradient = (np.zeros(3, np.float32) for _ in range(3))
    with pytest.raises(ValueError, match=r"max_change: got -1\.0, expected max_change >= 0"):
        _core.deviation_step(deviation, gradient, 0.1, -1.0)
    with pytest.raises(ValueError, match="deviation_gradient: got an array that overlaps gradient"):
        _core.snes_step(theta, deviation, gradient, gradient, 1.0, 0.1)
    with pytest.raises(ValueError, match=r"gradient: got length 2, expected 3 \(the length of deviation\)"):
        _core.deviation_step(deviation, gradient[:2], 0.1, 0.2)
