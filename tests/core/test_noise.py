"""Noise entries: known quantiles, any split of the range, all levels equal, and the statistics of a normal sample."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats
from strategies import as_float, each_dtype, each_impl, each_level, seeds, sizes, starts

from pyes import _core, reference

GOLDEN = Path(__file__).parents[1] / "golden" / "normals.csv"
ALPHA = 1e-4  # of every statistical test here; the seeds are fixed


def filled(dtype: Any, n: int, seed: int = 0, start: int = 0, level: str | None = None) -> NDArray[Any]:
    out = np.empty(n, dtype)
    _core.fill_noise(out, seed, start, level=level)
    return out


def test_normal_known_answers() -> None:
    with GOLDEN.open() as file:
        rows = list(csv.reader(file))[1:]
    words = np.array([int(word) for word, _ in rows], np.uint32)
    answers = np.array([float(normal) for _, normal in rows])
    assert np.abs(reference.normal_of_bits(words) - answers).max() < 2e-6


def test_normal_against_ndtri_over_words_of_the_stream() -> None:
    """Entry k is the quantile of word k: the words come from the independently tested stream."""
    words = np.empty(100_000, np.uint32)
    _core.stream_bits(5, 0, 0, 0, 0, words)
    probability = (2.0 * (2**31 - 1 - (words ^ (0 - (words >> 31))).astype(np.float64)) + 1) * 2.0**-33
    answers = np.where(words >> 31 == 1, 1, -1) * special.ndtri(probability)
    assert np.abs(filled(np.float32, 100_000, seed=5) - answers).max() < 2e-6


@pytest.mark.parametrize("function", [reference.normal_of_bits, reference.steps_of_bits])
def test_normal_is_odd_and_monotone(function: Any) -> None:
    words = np.sort(np.random.default_rng(0).integers(0, 2**31, 100_000, np.uint32))
    upper = function(words).astype(np.float64)
    np.testing.assert_array_equal(function(~words), -upper)
    # Neighbouring words may disagree by the rounding of float32, not more.
    assert np.diff(upper).min() > -2e-6


def test_int8_is_rounded_float32_but_for_few_neighbours() -> None:
    exact = np.clip(np.rint(filled(np.float32, 1_000_000) * np.float32(32)), -127, 127)
    step = np.abs(filled(np.int8, 1_000_000) - exact)
    assert step.max() <= 1
    assert step.mean() < 0.003


def test_int8_ends_at_127() -> None:
    words = np.array([0x7FFFFFFF, 0x80000000, 0x7FFF0000, 0x8000FFFF], np.uint32)
    np.testing.assert_array_equal(reference.steps_of_bits(words), [127, -127, 127, -127])


def test_bfloat16_is_float32_rounded_to_nearest() -> None:
    exact, rounded = filled(np.float32, 100_000).astype(np.float64), as_float(filled(np.uint16, 100_000))
    assert np.abs(rounded / exact - 1).max() <= 2.0**-8


@each_dtype
@given(seeds, starts, sizes)
def test_fill_noise_core_equals_reference(dtype: Any, seed: int, start: int, n: int) -> None:
    twin = np.empty(n, dtype)
    reference.fill_noise(twin, seed, start)
    np.testing.assert_array_equal(filled(dtype, n, seed, start), twin)


@each_level
@each_dtype
@pytest.mark.parametrize("start", [0, 1, 511, 2**34 - 1000])
def test_fill_noise_all_levels_give_equal_bits(level: str, dtype: Any, start: int) -> None:
    twin = np.empty(10_007, dtype)
    reference.fill_noise(twin, 9, start)
    np.testing.assert_array_equal(filled(dtype, 10_007, 9, start, level), twin)


@each_dtype
@given(seeds, starts, st.lists(st.integers(0, 1500), min_size=1, max_size=6))
def test_fill_noise_any_split_gives_equal_bytes(dtype: Any, seed: int, start: int, parts: list[int]) -> None:
    whole = filled(dtype, sum(parts), seed, start)
    split = np.empty_like(whole)
    first = 0
    for part in parts:
        _core.fill_noise(split[first : first + part], seed, start + first)
        first += part
    np.testing.assert_array_equal(whole, split)


@each_impl
def test_fill_noise_seeds_differ(impl: Any) -> None:
    first, second = np.empty(100, np.float32), np.empty(100, np.float32)
    impl.fill_noise(first, 1)
    impl.fill_noise(second, 2**32 + 1)
    assert (first != second).all()


@pytest.mark.statistical
@each_dtype
def test_noise_moments(dtype: Any) -> None:
    """Mean, variance, skewness and kurtosis of 4 M entries within their sampling error at ALPHA."""
    x = as_float(filled(dtype, 2**22, seed=1))
    n, z = len(x), stats.norm.isf(ALPHA / 2)
    variance = 1.0 + (1 / 32**2 / 12 if dtype == np.int8 else 0)  # of rounding to a step; clipping takes less than 1e-4
    assert abs(x.mean()) < z / np.sqrt(n)
    assert abs(x.var() - variance) < z * np.sqrt(2 / n) + (2e-4 if dtype == np.int8 else 1e-5)
    assert abs(stats.skew(x)) < z * np.sqrt(6 / n)
    assert abs(stats.kurtosis(x)) < z * np.sqrt(24 / n) + (3e-3 if dtype == np.int8 else 0)


@pytest.mark.statistical
def test_noise_kolmogorov_smirnov() -> None:
    assert stats.kstest(filled(np.float32, 1_000_000, seed=2), "norm").pvalue > ALPHA


@pytest.mark.statistical
def test_noise_chi_squared_of_int8() -> None:
    """Every step from -127 to 127 has its share, the ends their tails."""
    x = filled(np.int8, 2**22, seed=3)
    edges = special.ndtr((np.arange(-127, 127) + 0.5) / 32)
    expected = np.diff(np.concatenate([[0], edges, [1]])) * len(x)
    observed = np.bincount(x.astype(np.int64) + 127, minlength=255)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > ALPHA


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("bound", [3.0, 4.0, 5.0])
def test_noise_tails(bound: float) -> None:
    """Entries beyond the bound among 2**25: a Poisson count, both tails."""
    x = filled(np.float32, 2**25, seed=4)
    expected = len(x) * special.ndtr(-bound)
    for count in (int((x > bound).sum()), int((x < -bound).sum())):
        low, high = stats.poisson.interval(1 - ALPHA, expected)
        assert low <= count <= high


@pytest.mark.statistical
def test_noise_slices_do_not_correlate() -> None:
    """64 slices of 20,000 entries, some only a few entries apart: |r| below its maximum at ALPHA over all pairs."""
    dim = 20_000
    table = filled(np.float32, 2**20, seed=5)
    offsets = [*range(0, 16), *range(16, 528, 32), *np.random.default_rng(0).integers(0, len(table) - dim, 32)]
    slices = np.stack([table[offset : offset + dim] for offset in offsets])
    correlation = np.corrcoef(slices) - np.eye(len(offsets))
    pairs = len(offsets) * (len(offsets) - 1) / 2
    assert np.abs(correlation).max() < stats.norm.isf(ALPHA / pairs / 2) / np.sqrt(dim)


@pytest.mark.slow
@pytest.mark.statistical
def test_noise_table_does_not_repeat() -> None:
    """No aligned run of four entries comes twice in 2**22, nor across the 32-bit edge of the block counter."""
    table = np.concatenate([filled(np.float32, 2**22, seed=6), filled(np.float32, 2**12, seed=6, start=2**34 - 2**11)])
    runs = np.ascontiguousarray(table).view(np.uint32).reshape(-1, 4)
    assert len(np.unique(runs, axis=0)) == len(runs)


@pytest.mark.parametrize("out", [np.empty(4), np.empty(4, np.int16)])
def test_fill_noise_wrong_dtype_lists_the_right_ones(out: Any) -> None:
    with pytest.raises(TypeError, match=r"out: got dtype .*, expected float32, uint16 \(bfloat16\) or int8"):
        _core.fill_noise(out, 0)


def test_fill_noise_refuses_what_it_cannot_fill() -> None:
    frozen = np.empty(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out: got a read-only array"):
        _core.fill_noise(frozen, 0)
    with pytest.raises(ValueError, match="out: got strides"):
        _core.fill_noise(np.empty(8, np.float32)[::2], 0)
    with pytest.raises(ValueError, match="out: got 2 dimensions"):
        _core.fill_noise(np.empty((2, 2), np.float32), 0)
    with pytest.raises(TypeError, match="out: got list, expected a NumPy array"):
        _core.fill_noise([0.0], 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start: got -1"):
        _core.fill_noise(np.empty(4, np.float32), 0, -1)


def test_level_unknown_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="level: got 'sse9', expected one of baseline"):
        _core.fill_noise(np.empty(4, np.float32), 0, level="sse9")


def test_levels_begin_with_the_baseline() -> None:
    assert _core.levels()[0] == "baseline"
