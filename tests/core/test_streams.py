"""Philox streams: known answers, the counter's layout, uniformity, refused arguments."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import each_impl, seeds, sizes, words

from pyes import _core, reference

GOLDEN = Path(__file__).parents[1] / "golden" / "philox.csv"


def philox_vectors() -> tuple[Any, Any, Any]:
    with GOLDEN.open() as file:
        rows = np.array([[int(cell, 16) for cell in row] for row in list(csv.reader(file))[1:]], dtype=np.uint64)
    return rows[:, :4].astype(np.uint32), rows[:, 4] | rows[:, 5] << np.uint64(32), rows[:, 6:].astype(np.uint32)


def test_philox_known_answers() -> None:
    counters, keys, answers = philox_vectors()
    for counter, key, answer in zip(counters, keys.tolist(), answers, strict=True):
        np.testing.assert_array_equal(reference.philox(counter[None], key)[0], answer)


def test_stream_bits_equals_the_twin_at_golden_counters() -> None:
    """The twin has the golden answers (above); a stream reaches only the first blocks of their counters."""
    counters, keys, _ = philox_vectors()
    for (_, c1, c2, c3), key in zip(counters[:50].tolist(), keys[:50].tolist(), strict=True):
        out = np.empty(40, np.uint32)
        _core.stream_bits(key, c3 >> 24, c1, c2, c3 & 0xFFFFFF, out)
        block = np.array([[k, c1, c2, c3] for k in range(10)], np.uint32)
        np.testing.assert_array_equal(out, reference.philox(block, key).reshape(-1))


@given(seeds, st.integers(0, 255), words, words, st.integers(0, 2**24 - 1), sizes)
def test_stream_bits_core_equals_reference(
    seed: int, purpose: int, generation: int, member: int, episode: int, n: int
) -> None:
    ours, twin = np.empty(n, np.uint32), np.empty(n, np.uint32)
    _core.stream_bits(seed, purpose, generation, member, episode, ours)
    reference.stream_bits(seed, purpose, generation, member, episode, twin)
    np.testing.assert_array_equal(ours, twin)


@given(seeds, words, st.integers(1, 2**53), st.integers(0, 100))
def test_draw_offsets_core_equals_reference_and_stays_in_bounds(seed: int, generation: int, bound: int, n: int) -> None:
    ours, twin = np.empty(n, np.int64), np.empty(n, np.int64)
    _core.draw_offsets(seed, 1, generation, bound, ours)
    reference.draw_offsets(seed, 1, generation, bound, twin)
    np.testing.assert_array_equal(ours, twin)
    assert ((ours >= 0) & (ours < bound)).all()


@given(seeds, words, st.integers(0, 2**24 - 1), st.integers(0, 100))
def test_draw_seeds_core_equals_reference_and_has_31_bits(seed: int, generation: int, episode: int, n: int) -> None:
    ours, twin = np.empty(n, np.int64), np.empty(n, np.int64)
    _core.draw_seeds(seed, 2, generation, episode, ours)
    reference.draw_seeds(seed, 2, generation, episode, twin)
    np.testing.assert_array_equal(ours, twin)
    assert ((ours >= 0) & (ours < 2**31)).all()


@each_impl
def test_draw_offsets_reaches_both_ends(impl: Any) -> None:
    out = np.empty(1000, np.int64)
    impl.draw_offsets(7, 1, 0, 5, out)
    assert set(out.tolist()) == {0, 1, 2, 3, 4}


@each_impl
def test_draw_offsets_depends_on_the_member_not_on_how_many_are_drawn(impl: Any) -> None:
    many, few = np.empty(100, np.int64), np.empty(10, np.int64)
    impl.draw_offsets(7, 1, 3, 10**6, many)
    impl.draw_offsets(7, 1, 3, 10**6, few)
    np.testing.assert_array_equal(many[:10], few)


@pytest.mark.statistical
def test_draw_offsets_are_uniform() -> None:
    """Chi-squared over 64 cells, fixed seed, alpha 1e-3."""
    out = np.empty(200_000, np.int64)
    _core.draw_offsets(11, 1, 5, 64, out)
    assert stats.chisquare(np.bincount(out, minlength=64)).pvalue > 1e-3


@pytest.mark.statistical
def test_streams_of_neighbours_do_not_correlate() -> None:
    """Members, generations, episodes and purposes side by side: |r| below 5 / sqrt(n)."""
    n = 20_000
    neighbours = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    rows = np.empty((len(neighbours), n), np.uint32)
    for row, (purpose, generation, member, episode) in zip(rows, neighbours, strict=True):
        _core.stream_bits(3, purpose, generation, member, episode, row)
    correlation = np.corrcoef(rows.astype(np.float64)) - np.eye(len(neighbours))
    assert np.abs(correlation).max() < 5 / np.sqrt(n)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_outside_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed: got {seed}, expected 0 <= seed < {2**64}"):
        _core.stream_bits(seed, 0, 0, 0, 0, np.empty(4, np.uint32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 256, 0, 0, 0), "purpose: got 256"),
        ((0, 0, 2**32, 0, 0), "generation: got"),
        ((0, 0, 0, -1, 0), "member: got -1"),
        ((0, 0, 0, 0, 2**24), "episode: got"),
    ],
)
def test_counter_words_out_of_range_are_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.stream_bits(*arguments, np.empty(4, np.uint32))  # type: ignore[misc]


@pytest.mark.parametrize("bound", [0, -1, 2**53 + 1])
def test_draw_offsets_bound_out_of_range_is_refused(bound: int) -> None:
    with pytest.raises(ValueError, match="bound: got"):
        _core.draw_offsets(0, 1, 0, bound, np.empty(4, np.int64))


def test_wrong_dtype_says_got_and_expected() -> None:
    with pytest.raises(TypeError, match="out: got dtype int64, expected uint32"):
        _core.stream_bits(0, 0, 0, 0, 0, np.empty(4, np.int64))  # type: ignore[arg-type]


def test_numpy_integers_are_accepted_and_floats_are_not() -> None:
    out = np.empty(4, np.uint32)
    _core.stream_bits(np.uint64(2**64 - 1), np.int64(1), np.int32(2), np.int8(3), 0, out)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="seed: got float, expected an integer"):
        _core.stream_bits(1.0, 0, 0, 0, 0, out)  # type: ignore[arg-type]
