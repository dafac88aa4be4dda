"""What PGPE and SNES share: a sigma for every parameter, and attempts that are given up."""

import numpy as np
import pytest

import pyes


@pytest.mark.parametrize("algorithm", [pyes.PGPE, pyes.SNES])
def test_an_attempt_that_has_come_to_nothing_begins_again_with_its_first_sigma_and_other_noise(table, algorithm):
    settings = {"population_size": 8, "sigma": 0.5, "restart": {"after": 3, "below": -1.0}}
    es, resumed = (algorithm(np.full(6, start), table, **settings) for start in (1.0, 0.0))
    begun, first = es.state_dict(), es.ask().offsets
    for generation in range(4):
        if generation == 2:
            resumed.load_state_dict(es.state_dict())
            es = resumed
        assert (es.theta != 1).any() == (es.deviation != 0.5).any() == (generation > 0)
        es.tell(np.arange(8.0) ** 2 - 100)
    for key in {"theta", "sigma", "optimizer"} & set(begun):
        np.testing.assert_equal(es.state_dict()[key], begun[key])
    assert (es.generation, es.progress, es.gradient_norm) == (4, (0, 0), 0.0)
    assert not np.isin(es.ask().offsets, first).any()
    for _ in range(5):  # the second attempt is good enough at its third generation, and goes on
        es.tell(np.arange(8.0))
    assert es.progress == (5, 5 * 8)
