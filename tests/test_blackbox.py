import numpy as np
import pytest

import pyes
from pyes.errors import ConfigError, TaskError


def _paraboloid(theta):
    return -float(((theta - [0.5, 0.1, -0.3]) ** 2).sum())


SETTINGS = {"population_size": 50, "sigma": 0.1, "learning_rate": 0.05, "generations": 120}


def test_maximize_finds_the_top_of_a_paraboloid():
    found = pyes.maximize(_paraboloid, np.zeros(3), **SETTINGS)
    np.testing.assert_allclose(found.theta, [0.5, 0.1, -0.3], atol=0.02)
    assert found.value == _paraboloid(found.theta)
    assert found.history[-1] > found.history[0]


def test_maximize_survives_a_function_that_fails_now_and_then():
    def brittle(theta):
        if theta[0] > 0.52:
            raise ArithmeticError("too far")
        return _paraboloid(theta)

    found = pyes.maximize(brittle, np.zeros(3), **SETTINGS)
    np.testing.assert_allclose(found.theta[1:], [0.1, -0.3], atol=0.02)


def test_maximize_says_why_when_everything_fails():
    with pytest.raises(TaskError, match=r"failed for all 4 members: ZeroDivisionError"):
        pyes.maximize(lambda theta: 1 / 0, np.zeros(3), population_size=4)


def test_maximize_refuses_impossible_settings():
    with pytest.raises(ConfigError, match="population_size"):
        pyes.maximize(_paraboloid, np.zeros(3), population_size=3)
