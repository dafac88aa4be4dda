import numpy as np

from pyes.numerics import streams


def test_offsets_lie_in_the_bound_and_spread_over_it():
    offsets = streams.offsets(3, 7, 20_000, 1000)
    assert offsets.min() >= 0
    assert offsets.max() < 1000
    counts = np.bincount(offsets, minlength=1000)
    # chi-squared with 999 degrees of freedom: mean 999, standard deviation 44.7; alpha 1e-4 on each side
    assert abs(((counts - 20) ** 2 / 20).sum() - 999) < 3.7 * 44.7


def test_a_prefix_does_not_depend_on_the_count():
    np.testing.assert_array_equal(streams.offsets(1, 2, 5, 99), streams.offsets(1, 2, 50, 99)[:5])
    np.testing.assert_array_equal(streams.evaluation_seeds(1, 5), streams.evaluation_seeds(1, 50)[:5])


def test_every_coordinate_changes_the_seeds():
    drawn = [
        tuple(seeds)
        for seeds in (
            streams.environment_seeds(0, 0, 0, 4),
            streams.environment_seeds(1, 0, 0, 4),
            streams.environment_seeds(0, 1, 0, 4),
            streams.environment_seeds(0, 0, 1, 4),
            streams.evaluation_seeds(0, 4),
        )
    ]
    assert len(set(drawn)) == len(drawn)
    assert len(set(sum(drawn, ()))) == 4 * len(drawn)


def test_seeds_fit_31_bits():
    seeds = streams.environment_seeds(2**64 - 1, 2**32 - 1, 2**24 - 1, 1000)
    assert seeds.min() >= 0
    assert seeds.max() < 2**31
