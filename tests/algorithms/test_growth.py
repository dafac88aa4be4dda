import numpy as np
import pytest
from optima import check_goes_on_exactly

import pyes
import pyes.reports.replay
from pyes.algorithms import next_population_size
from pyes.config import algorithm_config, from_mapping
from pyes.errors import ConfigError
from pyes.numerics.noise import NoiseTable
from pyes.run.metrics import read_rows


@pytest.mark.parametrize(
    ("settings", "lengths", "expected"),
    [
        ({}, [10, 10], 8),
        ({"growth": {"timesteps": 1000, "population_max": 100}}, [50, 70], 18),  # 16.7, then whole pairs
        ({"growth": {"timesteps": 1000, "population_max": 100}, "mirrored": False}, [50, 70], 17),
        ({"growth": {"timesteps": 1000, "population_max": 100}}, [500, 700], 8),
        ({"growth": {"timesteps": 1000, "population_max": 100}}, [1, 1, 1], 100),
        ({"growth": {"timesteps": 1000, "population_max": 100}}, [0, 0], 100),
        ({"name": "ars", "growth": {"timesteps": 1000, "population_max": 100}}, [50, 70], 18),
        ({"name": "snes"}, [10, 10], 8),
    ],
)
def test_size_follows_the_lengths(settings, lengths, expected):
    config = algorithm_config({"population_size": 8, **settings})
    assert next_population_size(config, np.array(lengths)) == expected


@pytest.mark.parametrize(
    ("growth", "message"),
    [
        ({"timesteps": 10}, "population_max: got null, expected at least algorithm.population_size, which is 8"),
        ({"timesteps": 10, "population_max": 6}, "population_max: got 6, expected at least algorithm.population_size"),
        ({"timesteps": 10, "population_max": 9}, "population_max: got 9, expected an even number with algorithm.mirr"),
        ({"population_max": 10}, "population_max: got 10, expected null without algorithm.growth.timesteps"),
    ],
)
def test_growth_without_an_end_is_refused(growth, message):
    with pytest.raises(ConfigError, match=message):
        from_mapping({"algorithm": {"population_size": 8, "growth": growth}})


def test_state_keeps_the_size():
    def make():
        es = pyes.PGPE(np.zeros(4), table, population_size=4)
        es.population_size = 6
        return es

    with NoiseTable(10_000, 0) as table:
        check_goes_on_exactly(make)
        assert len(make().ask()) == 6


def _train(path, **changes):
    config = {
        "task": {"env_id": "CartPole-v1", "normalize_observations": True},
        "algorithm": {"name": "ars", "population_size": 4, "growth": {"timesteps": 400, "population_max": 20}},
        "evaluation": {"every": 0}, "snapshot": {"every": 1}, "noise": {"entries": 10_000}, "run_dir": str(path),
    }  # fmt: skip
    pyes.train(config | changes, display=False)


def test_runs_with_growth_agree(tmp_path):
    _train(tmp_path / "two", cluster={"workers": 2}, generations=4)
    _train(tmp_path / "parts", cluster={"name": "inline"}, generations=2)
    pyes.train({"resume": str(tmp_path / "parts"), "generations": 4}, display=False)
    rows = [read_rows(tmp_path / name / "metrics.csv") for name in ("two", "parts")]
    assert [row["theta_hash"] for row in rows[0]] == [row["theta_hash"] for row in rows[1]]
    with pyes.reports.replay.open(tmp_path / "parts") as replay:
        sizes = [replay.population_size(generation) for generation in range(4)]
        assert sizes[0] == 4
        assert max(sizes) > 4
        for before, size in enumerate(sizes[1:]):
            assert size == next_population_size(replay.config.algorithm, replay.lengths(before))
        assert replay.play(3, sizes[3] - 1).exact
