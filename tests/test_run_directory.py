import numpy as np
import pytest

from pyes.config import TrainConfig
from pyes.errors import RunDirectoryError
from pyes.run_directory import RunDirectory

STATE = {
    "algorithm": {"theta": np.arange(5, dtype=np.float32), "optimizer": {"m": np.ones(5, np.float32), "steps": 7}},
    "seconds": 1.25,
    "evaluation": None,
}


@pytest.fixture
def directory(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create(TrainConfig(seed=3))
    return directory


def _assert_state(state):
    np.testing.assert_array_equal(state["algorithm"]["theta"], STATE["algorithm"]["theta"])
    np.testing.assert_array_equal(state["algorithm"]["optimizer"]["m"], 1)
    assert state["algorithm"]["optimizer"]["steps"] == 7
    assert state["seconds"] == 1.25
    assert state["evaluation"] is None


def test_configuration_comes_back_as_it_was(directory):
    assert directory.read_config() == TrainConfig(seed=3, run_dir=directory.read_config().run_dir)


def test_snapshot_comes_back_as_it_was(directory):
    directory.save_snapshot(10, STATE)
    _assert_state(directory.newest_snapshot())


def test_only_the_newest_snapshots_are_kept(directory):
    for generation in range(0, 100, 10):
        directory.save_snapshot(generation, {"generation": generation})
    assert len(list(directory.snapshots.iterdir())) == 3
    assert directory.newest_snapshot() == {"generation": 90}


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_the_snapshot_before_a_damaged_one_serves(directory, damage):
    directory.save_snapshot(10, STATE)
    directory.save_snapshot(20, STATE | {"seconds": 99.0})
    newest = sorted(directory.snapshots.iterdir())[-1]
    data = bytearray(newest.read_bytes())
    if damage == "flip":
        data[9] ^= 0xFF
    newest.write_bytes({"cut": data[: len(data) // 2], "flip": data, "empty": b""}[damage])
    _assert_state(directory.newest_snapshot())


def test_no_snapshot_is_one_line(directory):
    with pytest.raises(RunDirectoryError, match="no snapshot"):
        directory.newest_snapshot()


def test_a_directory_that_holds_a_run_is_not_overwritten(directory):
    directory.metrics.touch()
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        directory.create(TrainConfig())


def test_a_place_that_cannot_be_written_is_one_line():
    with pytest.raises(RunDirectoryError, match=r"cannot write to .*choose another one"):
        RunDirectory("/proc/pyes-run").create(TrainConfig())


def test_no_run_and_a_damaged_configuration_are_told_apart(directory, tmp_path):
    with pytest.raises(RunDirectoryError, match="holds no run"):
        RunDirectory(tmp_path).read_config()
    directory.config.write_text("{")
    with pytest.raises(RunDirectoryError, match="cannot be read"):
        directory.read_config()
