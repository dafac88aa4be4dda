"""When the center is evaluated: decided by the settings and the journal, within a share of the timesteps."""

import numpy as np
import pytest

import pyes
from pyes.config import EvaluationConfig
from pyes.run import journal
from pyes.run.evaluations import EvaluationCosts, ends_before_one, is_due
from pyes.run.journal import Evaluation, Generation
from pyes.run.metrics import read_rows

CONFIG = {
    "task": {"env_id": "CartPole-v1", "max_timesteps": 40},
    "algorithm": {"population_size": 6},
    "evaluation": {"every": 2, "episodes": 4, "share": 0.2},
    "snapshot": {"every": 3},
    "noise": {"entries": 10_000},
    "cluster": {"name": "inline"},
    "generations": 16,
}


def _evaluation(timesteps: int | None, episodes: int = 5) -> Evaluation:
    return Evaluation(0, "hash", np.zeros(episodes), np.zeros(episodes, np.uint8), timesteps)


def _costs(*timesteps: int) -> EvaluationCosts:
    costs = EvaluationCosts()
    for each in timesteps:
        costs.add(_evaluation(each))
    return costs


@pytest.mark.parametrize(
    ("settings", "generation", "timesteps", "costs", "expected"),
    [
        ({}, 10, 1000, _costs(50), True),  # 50 before, 50 now
        ({}, 10, 999, _costs(50), False),
        ({}, 11, 10**9, _costs(50), False),
        ({}, 5, 0, _costs(), True),  # the first one, whatever it takes
        ({"share": None}, 10, 0, _costs(50, 50), True),
        ({"every": 0}, 10, 10**9, _costs(), False),
        ({"episodes": 10}, 10, 1499, _costs(50), False),  # twice the episodes: 50 before, 100 now
        ({"episodes": 10}, 10, 1500, _costs(50), True),
        ({}, 10, 1400, _costs(100, 20), True),
    ],
)
def test_evaluation_is_due_while_its_share_of_the_timesteps_lasts(settings, generation, timesteps, costs, expected):
    config = EvaluationConfig(**{"every": 5, "episodes": 5, "share": 0.1} | settings)
    assert is_due(config, generation, timesteps, costs) is expected


def test_evaluation_recorded_without_a_share_costs_nothing():
    costs = _costs(50)
    costs.add(_evaluation(None))
    assert (costs.total, costs.expected(5)) == (50, 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("evaluations") / "run"
    pyes.train(CONFIG | {"run_dir": str(path)}, display=False)
    return path


def test_evaluations_of_a_run_take_their_share_and_the_last_generation_is_evaluated(run):
    trained = spent = evaluations = 0
    for record in journal.read(run / "journal.bin"):
        if isinstance(record, Generation):
            trained += int(record.lengths.sum())
        elif isinstance(record, Evaluation) and not record.generation:
            assert record.timesteps is None  # that of the initial center is free
        elif isinstance(record, Evaluation):
            assert record.timesteps is not None
            before, spent, evaluations = spent, spent + record.timesteps, evaluations + 1
            assert before == 0 or before <= 0.2 * trained
    assert 2 <= evaluations < 8
    assert spent <= 0.3 * trained  # the first one, and one that was longer than expected
    rows = read_rows(run / "metrics.csv")
    assert rows[1]["eval_return_mean"]
    assert rows[-1]["eval_return_mean"]


@pytest.mark.slow
def test_run_stopped_after_any_generation_evaluates_where_the_whole_run_does(run, tmp_path):
    whole = (run / "journal.bin").read_bytes()
    path = tmp_path / "parts"
    pyes.train(CONFIG | {"run_dir": str(path), "generations": 1}, display=False)
    for generations in range(2, CONFIG["generations"] + 1):
        pyes.train({"resume": str(path), "generations": generations}, display=False)
    assert (path / "journal.bin").read_bytes() == whole


def test_recording_that_ends_before_an_evaluation_is_told_from_others(run):
    recording, config = journal.read(run / "journal.bin"), EvaluationConfig(**CONFIG["evaluation"])
    due = 1  # that of the initial center, which needs no generation
    for count, entry in enumerate(recording.entries[2:], start=3):
        cut = journal.Recording(recording.path, recording.entries[:count])
        followed = count < len(recording) and recording.entries[count].kind == journal.Kind.EVALUATION
        assert ends_before_one(cut, config) is followed, entry
        due += followed
    assert due == sum(entry.kind == journal.Kind.EVALUATION for entry in recording.entries)
