import numpy as np
import pytest
from scipy.stats import bootstrap, trim_mean

from pyes.reports.aggregates import align, interquartile_mean, summarise


def _curve(*points):
    x, y = np.array(points, np.float64).T
    return x, y


def test_align_covers_where_all_curves_have_data():
    grid, values = align([_curve((0, 0), (10, 10), (20, 20)), _curve((5, 1), (15, 1))], [False, False])
    np.testing.assert_array_equal(grid, [5, 10, 15])
    np.testing.assert_allclose(values, [[5, 10, 15], [1, 1, 1]])


def test_align_goes_on_where_only_curves_that_are_kept_have_ended():
    short, long = _curve((0, 0), (10, 5)), _curve((0, 1), (30, 1))
    grid, values = align([short, long], [True, False])
    np.testing.assert_array_equal(grid, [0, 10, 30])
    np.testing.assert_array_equal(values, [[0, 5, 5], [1, 1, 1]])
    np.testing.assert_array_equal(align([short, long], [False, True])[0], [0, 10])
    np.testing.assert_array_equal(align([short, long], [True, True])[0], [0, 10, 30])


def test_align_is_none_where_curves_never_overlap():
    assert align([_curve((0, 0), (1, 0)), _curve((1, 0), (2, 0))], [False, False]) is None


def test_align_long_curves_have_a_grid_of_the_width_of_a_figure():
    x = np.arange(5000.0)
    grid, values = align([(x, x), (x + 0.5, x)], [False, False])
    assert (len(grid), grid[0], grid[-1]) == (1000, 0.5, 4999)
    np.testing.assert_allclose(values[0] - values[1], 0.5)


@pytest.mark.parametrize("curves", [1, 2, 3, 4, 5, 8, 11])
def test_interquartile_mean_is_that_of_scipy(curves):
    values = np.random.default_rng(curves).normal(size=(curves, 7))
    np.testing.assert_allclose(interquartile_mean(values), trim_mean(values, 0.25, axis=0))


def test_summarise_range_is_mean_least_and_greatest():
    band = summarise(np.array([[1.0, 2.0], [3.0, 8.0]]), "range")
    np.testing.assert_array_equal([band.line, band.low, band.high], [[2, 5], [1, 2], [3, 8]])


def test_summarise_iqm_interval_is_that_of_scipy_and_the_same_every_time():
    values = np.random.default_rng(1).normal(size=(10, 4))
    band = summarise(values, "iqm")
    again = summarise(values, "iqm")
    np.testing.assert_array_equal([band.low, band.high], [again.low, again.high])
    theirs = bootstrap(
        (values,),
        lambda sample, axis: trim_mean(sample, 0.25, axis=axis),
        n_resamples=5000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    width = theirs.high - theirs.low
    np.testing.assert_allclose((band.low - theirs.low) / width, 0, atol=0.06)
    np.testing.assert_allclose((band.high - theirs.high) / width, 0, atol=0.06)


def test_summarise_iqm_of_one_curve_has_no_width():
    band = summarise(np.array([[1.0, 2.0]]), "iqm")
    np.testing.assert_array_equal([band.line, band.low, band.high], [[1, 2]] * 3)
