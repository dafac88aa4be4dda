"""Centered ranks: known answers, ties, NaN, and their invariants."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray
from scipy.stats import rankdata
from strategies import each_impl, returns

from pyes import _core, reference

GOLDEN = Path(__file__).parents[1] / "golden" / "ranks.csv"


def ranked(impl: Any, values: Any) -> NDArray[np.float32]:
    out = np.full(len(values), np.nan, np.float32)
    impl.centered_ranks(np.array(values, np.float64), out)
    return out


@each_impl
def test_centered_ranks_known_answers(impl: Any) -> None:
    with GOLDEN.open() as file:
        rows = np.array([[float(cell) for cell in row] for row in list(csv.reader(file))[1:]])
    np.testing.assert_allclose(ranked(impl, rows[:, 0]), rows[:, 1], atol=1e-7)


@each_impl
@pytest.mark.parametrize(
    ("values", "ranks"),
    [
        ([], []),
        ([7], [0]),
        ([np.nan], [0]),
        ([2, 1], [0.5, -0.5]),
        ([1, 1, 1], [0, 0, 0]),
        ([3, 1, 3, 2], [1 / 3, -0.5, 1 / 3, -1 / 6]),
        ([np.nan, -np.inf, np.inf], [-0.5, 0, 0.5]),
        ([np.nan, 1, np.nan], [-0.25, 0.5, -0.25]),
        ([0.0, -0.0, 1], [-0.25, -0.25, 0.5]),
    ],
)
def test_centered_ranks_worked_values(impl: Any, values: list[float], ranks: list[float]) -> None:
    np.testing.assert_allclose(ranked(impl, values), ranks, atol=1e-7)


@given(returns)
def test_centered_ranks_core_equals_reference(values: list[float]) -> None:
    np.testing.assert_array_equal(ranked(_core, values), ranked(reference, values))


@given(returns)
def test_centered_ranks_sum_to_zero_and_keep_order(values: list[float]) -> None:
    ranks, array = ranked(_core, values), np.array(values)
    assert abs(float(ranks.sum(dtype=np.float64))) < 1e-5
    assert ((ranks >= -0.5) & (ranks <= 0.5)).all()
    for value, rank in zip(array, ranks, strict=True):
        assert (ranks[array < value] < rank).all()
        assert (ranks[array == value] == rank).all()


@pytest.mark.parametrize("n", [2, 3, 1000, 4097])
def test_centered_ranks_against_scipy(n: int) -> None:
    values = np.random.default_rng(n).integers(0, n // 2 + 1, n).astype(np.float64)
    expected = (rankdata(values) - 1) / (n - 1) - 0.5
    np.testing.assert_allclose(ranked(_core, values), expected, atol=1e-7)


def test_centered_ranks_refuses_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="returns: got dtype int64, expected float64"):
        _core.centered_ranks(np.arange(3), np.empty(3, np.float32))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"out: got length 2, expected 3 \(the length of returns\)"):
        _core.centered_ranks(np.zeros(3), np.empty(2, np.float32))


def test_centered_ranks_reads_read_only_returns() -> None:
    values = np.array([2.0, 1.0])
    values.flags.writeable = False
    np.testing.assert_array_equal(ranked(_core, values), [0.5, -0.5])
