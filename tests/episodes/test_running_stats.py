import numpy as np

from pyes.episodes.running_stats import RunningStats


def _sums(observations):
    return np.stack([observations.sum(0), (observations**2).sum(0)])


def _merge(stats, sums, lengths):
    count, total = stats.merged(sums, lengths)
    stats.load_state_dict({"count": count, "sums": total})


def test_normalizer_matches_numpy_over_all_observations():
    rng = np.random.default_rng(0)
    parts = [rng.normal(5.0, 2.0, (n, 3)) for n in (10, 200, 31)]
    stats = RunningStats(3)
    _merge(stats, np.stack([_sums(part) for part in parts]), np.array([10, 200, 31]))
    mean, inverse_std = stats.normalizer()
    everything = np.concatenate(parts)
    np.testing.assert_allclose(mean, everything.mean(0), rtol=1e-6)
    np.testing.assert_allclose(inverse_std, 1 / everything.std(0), rtol=1e-6)


def test_no_normalizer_before_the_first_observation():
    assert RunningStats(3).normalizer() is None


def test_an_observation_that_never_moved_is_not_blown_up():
    stats = RunningStats(1)
    _merge(stats, np.array([[[50.0], [250.0]]]), np.array([10]))
    assert stats.normalizer()[1] == 100.0


def test_rows_that_are_not_finite_are_left_out():
    stats = RunningStats(1)
    _merge(stats, np.array([[[np.nan], [np.nan]], [[4.0], [10.0]]]), np.array([5, 2]))
    assert stats.count == 2
    assert stats.normalizer()[0] == 2.0


def test_state_survives_a_save_and_a_load():
    stats, other = RunningStats(2), RunningStats(2)
    _merge(stats, np.array([[[1.0, 2.0], [3.0, 4.0]]]), np.array([1]))
    other.load_state_dict(stats.state_dict())
    np.testing.assert_array_equal(other.normalizer(), stats.normalizer())


def test_merged_leaves_what_is_held_as_it_is():
    stats = RunningStats(1)
    assert stats.merged(np.array([[[4.0], [10.0]]]), np.array([2]))[0] == 2
    assert stats.normalizer() is None


def test_numbers_far_from_zero_are_not_blown_up_by_the_rounding_of_their_squares():
    """The variance is a difference of two numbers near 1e18, which lacks its last digits."""
    observations = np.random.default_rng(0).normal(1e9, 10, (1000, 1)).astype(np.float32)
    stats = RunningStats(1)
    stats.load_state_dict({"count": 1000, "sums": _sums(observations.astype(float))})
    mean, inverse_std = stats.normalizer()
    assert np.abs((observations - mean) * inverse_std).max() < 5
