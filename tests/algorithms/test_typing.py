"""The settings of an algorithm are known to type checkers: ``make types`` runs mypy over this file, too.

An ignored error that mypy does not find is an error: so each comment here is a test.
"""

import numpy as np
import pytest

import pyes
from pyes.config import OptimizerConfig
from pyes.errors import ConfigError

THETA = np.zeros(3, np.float32)


def test_settings_have_names_and_types() -> None:
    pyes.OpenAIES(THETA, population_size=50, sigma=0.1, seed=1, optimizer=OptimizerConfig(name="sgd"))
    with pyes.NoiseTable(1_000, 0) as table:
        assert pyes.ARS(THETA, table, population_size=8, top=2, threads=2).config.top == 2
    with pytest.raises(ConfigError, match=r"did you mean 'algorithm\.population_size'"):
        pyes.OpenAIES(THETA, population_sise=50)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"algorithm\.top: got 'much', expected an integer"):
        pyes.ARS(THETA, top="much")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"unknown key 'algorithm\.optimizer'"):
        pyes.SNES(THETA, optimizer=OptimizerConfig())  # type: ignore[call-arg]
