"""Rebuilding a run from its journal gives the states that the live run had; resuming and branching rest on it."""

import json

import numpy as np
import pytest
from heads import hashes_of

import pyes
from pyes.errors import ConfigError, JournalError
from pyes.run import journal
from pyes.run.directory import RunDirectory
from pyes.run.history import History, setup_of
from pyes.run.journal import Evaluation, Generation, Journal, Start
from pyes.system.packing import theta_hash

TINY = {
    "task": {"env_id": "CartPole-v1", "max_timesteps": 30, "normalize_observations": True},
    "algorithm": {"name": "openai_es", "population_size": 6, "sigma": "exponential 0.3 to 0.1 in 10 generations"},
    "episode_limit": {"initial": 5},
    "network": {"name": "mlp", "hidden": [4]},
    "generations": 6,
    "evaluation": {"every": 2, "episodes": 3, "share": None},
    "snapshot": {"every": 2},
    "noise": {"entries": 10_000},
    "cluster": {"name": "inline"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run of six generations, and two more after a change of sigma and of the optimiser."""
    path = tmp_path_factory.mktemp("history") / "run"
    pyes.train({**TINY, "run_dir": str(path)}, display=False)
    pyes.train(
        {
            "resume": str(path),
            "generations": 8,
            "force": True,
            "algorithm": {"sigma": 0.05},
            "optimizer": {"name": "sgd"},
        },
        display=False,
    )
    return path


@pytest.fixture
def history(run):
    recording = journal.read(run / "journal.bin")
    setup = setup_of(recording)
    with setup.make_table() as table:
        yield History(recording, setup, table)


def test_a_journal_has_a_record_of_everything(run):
    recording = journal.read(run / "journal.bin")
    kinds = [type(recording[i]) for i in range(len(recording))]
    two = [Generation, Generation, Evaluation]
    assert kinds == [Start, Evaluation, *two, *two, *two, Start, *two]


def test_advance_leads_through_the_thetas_of_the_run(run, history):
    hashes = []
    while not history.ended:
        if isinstance(history.advance(), Generation):
            hashes.append(theta_hash(history.state.algorithm.theta))
    assert hashes == hashes_of(run)


def test_seek_finds_every_generation_in_any_order(run, history):
    hashes = hashes_of(run)
    for generation in [8, 3, 5, 0, 6, 7, 1]:
        state = history.seek(generation)
        assert state.generation == generation
        if generation:
            assert state.theta_hash == hashes[generation - 1]


def test_seek_stands_behind_a_change_of_settings(history):
    assert history.seek(5).setup.config.algorithm.sigma == "exponential 0.3 to 0.1 in 10 generations"
    state = history.seek(6)
    assert (state.setup.config.algorithm.sigma, state.algorithm.sigma) == (0.05, 0.05)
    assert state.setup.config.optimizer.name == "sgd"


@pytest.mark.slow
@pytest.mark.parametrize("generation", [-1, 9])
def test_seek_refuses_what_was_not_recorded(history, generation):
    with pytest.raises(ConfigError, match=f"generation: got {generation}, expected 0 to 8"):
        history.seek(generation)


def test_a_snapshot_is_a_short_cut_to_the_same_state(run, history):
    recording, setup = history._recording, history._setup
    for snapshot in RunDirectory(run).whole_snapshots():
        short = History(recording, setup, history._table, [snapshot])
        assert short.state.generation == snapshot["algorithm"]["generation"] > 0
        while not short.ended:
            short.advance()
        assert short.state.theta_hash == hashes_of(run)[-1]


def test_a_snapshot_of_another_journal_is_passed_over(run, history):
    (newest, *_) = RunDirectory(run).whole_snapshots()
    foreign = History(history._recording, history._setup, history._table, [newest | {"journal": "00" * 16}])
    assert foreign.state.generation == 0


@pytest.mark.parametrize("change", [{"failed": None}, {"algorithm": {"generation": 6}}])
def test_a_snapshot_of_another_version_is_passed_over(run, history, caplog, change):
    (newest, *_) = RunDirectory(run).whole_snapshots()
    other = {key: value for key, value in (newest | change).items() if value is not None}
    rebuilt = History(history._recording, history._setup, history._table, [other, newest])
    assert rebuilt.state.generation == newest["algorithm"]["generation"]
    assert "a snapshot cannot be used (" in caplog.text
    while not rebuilt.ended:
        rebuilt.advance()
    assert rebuilt.state.theta_hash == hashes_of(run)[-1]


def test_a_changed_return_is_found_by_the_next_record(run, history, tmp_path):
    """A journal with valid digests, but with other numbers than those of the run."""
    with Journal(journal.read(tmp_path / "journal.bin")) as writer:
        for index in range(len(history._recording)):
            record = history._recording[index]
            if isinstance(record, Generation) and record.generation == 3:
                record.returns[:] = record.returns[::-1].copy()
            writer.append(record)
    changed = History(journal.read(tmp_path / "journal.bin"), history._setup, history._table)
    with pytest.raises(JournalError, match="generation 4: theta is"):
        changed.seek(8)


def test_another_noise_table_is_refused(history):
    with (
        pyes.NoiseTable(10_000, seed=1) as other,
        pytest.raises(JournalError, match=r"its settings make the noise table .*, it was written with "),
    ):
        History(history._recording, history._setup, other)


def test_settings_of_the_journal_are_plain_values_without_budgets(history):
    start = history._recording[0]
    assert json.loads(json.dumps(start.settings)) == start.settings
    assert not {"generations", "run_dir", "cluster", "evaluation", "snapshot", "resume"} & start.settings.keys()
    assert start.theta_hash == history.seek(0).theta_hash


def test_state_survives_a_save_and_a_load(history):
    state = history.seek(5)
    other = history.seek(0)
    assert other is not state
    other.load_state_dict(state.state_dict())
    np.testing.assert_equal(other.state_dict(), state.state_dict())
    assert other.theta_hash == state.theta_hash
    np.testing.assert_array_equal(other.batch().mean, state.batch().mean)
    np.testing.assert_array_equal(other.batch().seeds, state.batch().seeds)
