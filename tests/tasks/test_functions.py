import numpy as np
import pytest

from pyes.tasks import functions


@pytest.mark.parametrize(
    ("function", "top"),
    [(functions.sphere, 0), (functions.ellipsoid, 0), (functions.rosenbrock, 1), (functions.rastrigin, 0)],
)
def test_top_is_zero_and_elsewhere_it_is_lower(function, top):
    random = np.random.default_rng(0)
    for dim in (2, 5, 30):
        assert function(np.full(dim, top, np.float32)) == 0
        assert all(function((top + random.standard_normal(dim)).astype(np.float32)) < 0 for _ in range(20))


def test_known_values():
    theta = np.array([1.0, -2.0, 0.5], np.float32)
    assert functions.sphere(theta) == -5.25
    assert functions.rosenbrock(theta) == -(100 * 9 + 0 + 100 * 3.5**2 + 9)
    assert functions.rastrigin(theta) == pytest.approx(-(5.25 + 20))


def test_ellipsoid_is_a_rotation_of_one_along_the_axes():
    points = np.eye(6, dtype=np.float32)
    value = functions.ellipsoid
    matrix = np.array([[value(a) + value(b) - value(a + b) for b in points] for a in points]) / 2
    np.testing.assert_allclose(np.linalg.eigvalsh(matrix), np.geomspace(1, 100, 6), rtol=1e-5)
    assert (np.abs(matrix - np.diag(np.diag(matrix))) > 0.1).sum() > 20
