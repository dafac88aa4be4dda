import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap, permutation_test, trim_mean

from pyes.reports.aggregates import align, interquartile_mean, mean_interval, sign_flip_test, summarise


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


@pytest.mark.parametrize(("runs", "share"), [(5, 0.85), (20, 0.92)])
def test_interval_of_a_mean_holds_the_true_one_as_often_as_the_page_says(runs, share):
    """Significance level 0.001: by how many of 400 samples of a normal distribution hold its mean."""
    samples = np.random.default_rng(runs).normal(3, 2, size=(400, runs))
    held = sum(low <= 3 <= high for low, high in map(mean_interval, samples))
    assert binomtest(held, 400, share).pvalue > 0.001


@pytest.mark.parametrize("pairs", [1, 2, 5, 9])
def test_sign_flip_test_tries_all_changes_of_sign_as_that_of_scipy(pairs):
    differences = np.random.default_rng(pairs).normal(0.5, size=pairs)
    if pairs > 1:
        theirs = permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
        assert sign_flip_test(differences) == pytest.approx(theirs.pvalue)
    assert sign_flip_test(np.arange(1.0, pairs + 1)) == 2.0 ** (1 - pairs)  # the least that there is


def test_sign_flip_test_of_many_pairs_takes_random_changes_of_sign():
    """Significance level 0.001: the 100,000 random ones against all 131,072 of 17 pairs."""
    differences = np.random.default_rng(4).normal(0.4, size=17)
    every = np.abs((1 - 2 * (np.arange(2**17)[:, None] >> np.arange(17) & 1)) @ differences)
    share = float((every >= abs(differences.sum()) - 1e-9).mean())
    found = sign_flip_test(differences)
    assert 0.01 < share < 0.9
    assert binomtest(round(found * 100_001) - 1, 100_000, share).pvalue > 0.001
    assert sign_flip_test(differences) == found
    assert sign_flip_test(np.ones(60)) == 1 / 100_001  # and never zero


def test_sign_flip_test_finds_no_difference_where_there_is_none():
    """Significance level 0.001: of 2,000 samples without a difference, 6 in 128 have a p of at most 0.05."""
    samples = np.random.default_rng(6).standard_t(3, size=(2000, 8))
    found = sum(sign_flip_test(sample) <= 0.05 for sample in samples)
    assert binomtest(found, 2000, 6 / 128).pvalue > 0.001


@pytest.mark.parametrize("differences", [[0.0, 0.0, 0.0], [0.1, 0.2, -0.3]])
def test_sign_flip_test_of_a_mean_of_zero_is_one(differences):
    assert sign_flip_test(np.array(differences)) == 1
