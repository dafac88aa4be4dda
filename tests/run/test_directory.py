import errno
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from heads import until

from pyes.config import from_mapping
from pyes.errors import RunDirectoryError
from pyes.run.directory import RunDirectory, new_directory, runs_below
from pyes.system import locks

STATE = {
    "algorithm": {"theta": np.arange(5, dtype=np.float32), "optimizer": {"m": np.ones(5, np.float32), "steps": 7}},
    "seconds": 1.25,
    "evaluation": None,
}


@pytest.fixture
def directory(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create(from_mapping({"seed": 3}))
    return directory


def _assert_state(state):
    np.testing.assert_array_equal(state["algorithm"]["theta"], STATE["algorithm"]["theta"])
    np.testing.assert_array_equal(state["algorithm"]["optimizer"]["m"], 1)
    assert state["algorithm"]["optimizer"]["steps"] == 7
    assert state["seconds"] == 1.25
    assert state["evaluation"] is None


def test_configuration_comes_back_as_it_was(directory):
    assert directory.read_config() == from_mapping({"seed": 3, "run_dir": directory.read_config().run_dir})


def test_snapshot_comes_back_as_it_was(directory):
    directory.save_snapshot(10, STATE)
    _assert_state(next(directory.whole_snapshots()))


def test_only_the_newest_snapshots_are_kept(directory):
    for generation in range(0, 100, 10):
        directory.save_snapshot(generation, {"generation": generation})
    assert len(list(directory.snapshots.iterdir())) == 3
    assert next(directory.whole_snapshots()) == {"generation": 90}


def test_snapshot_has_its_folder_made_again(directory):
    directory.snapshots.rmdir()
    directory.save_snapshot(10, STATE)
    _assert_state(next(directory.whole_snapshots()))


def test_snapshots_of_a_journal_that_was_there_before_make_room(directory):
    """A journal that was restored from a copy is shorter than they are."""
    for generation in (7, 8, 9, 4, 5):
        directory.save_snapshot(generation, {"generation": generation})
    assert [state["generation"] for state in directory.whole_snapshots()] == [5, 4]


def test_a_new_directory_is_no_other_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len({new_directory() for _ in range(5)}) == 5
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(time, "strftime", lambda _: "file/run")
    with pytest.raises(RunDirectoryError, match=r"run_dir: cannot make file/run \(Not a directory\); choose another"):
        new_directory()


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_the_snapshot_before_a_damaged_one_serves(directory, damage):
    directory.save_snapshot(10, STATE)
    directory.save_snapshot(20, STATE | {"seconds": 99.0})
    newest = sorted(directory.snapshots.iterdir())[-1]
    data = bytearray(newest.read_bytes())
    if damage == "flip":
        data[9] ^= 0xFF
    newest.write_bytes({"cut": data[: len(data) // 2], "flip": data, "empty": b""}[damage])
    _assert_state(next(directory.whole_snapshots()))


def test_any_flipped_byte_of_a_snapshot_is_found(directory):
    directory.save_snapshot(10, STATE)
    directory.save_snapshot(20, STATE | {"seconds": 99.0})
    newest = sorted(directory.snapshots.iterdir())[-1]
    data = newest.read_bytes()
    for place in range(0, len(data), 7):
        newest.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        assert len(list(directory.whole_snapshots())) == 1
    newest.write_bytes(data)
    assert len(list(directory.whole_snapshots())) == 2


def test_no_snapshot_is_none(directory):
    assert list(directory.whole_snapshots()) == []


def test_lock_names_its_holder_and_a_stale_one_is_no_hindrance(directory):
    directory.lock_file.write_text("99999@elsewhere\n")
    with directory.locked():
        assert directory.lock_file.read_text() == f"{os.getpid()}@{socket.gethostname()}\n"


def test_a_lock_is_handed_over_once_and_to_the_same_thread(directory):
    with directory.locked(hand_over=True):
        with ThreadPoolExecutor(1) as other:
            assert not other.submit(_can_be_locked, directory).result()
        assert _can_be_locked(directory)
        assert not _can_be_locked(directory)
    with directory.locked():
        assert not _can_be_locked(directory)
    assert _can_be_locked(directory)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_lock(directory):
    with directory.locked():
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
    try:
        until(lambda: _can_be_locked(directory), "the child's first instructions")
    finally:
        child.kill()
        child.join()
        child.close()


def _can_be_locked(directory):
    try:
        with directory.locked():
            return True
    except RunDirectoryError:
        return False


def test_a_file_system_without_locks_is_said(directory, monkeypatch):
    def refuse(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with pytest.raises(RunDirectoryError, match=r"lock cannot be locked \(No locks available\)"), directory.locked():
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit for files")
def test_a_lock_on_a_full_disk_is_held_and_given_back(tmp_path):
    code = """
import resource, signal, sys
from pathlib import Path
from pyes.system import locks
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
with locks.held(Path(sys.argv[1]), "a lock"):
    print("held")
print("given back")
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "lock"], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n") == ["held", "given back", ""], done.stderr


def test_a_directory_that_holds_a_run_is_not_overwritten(directory):
    directory.journal.write_bytes(b"x")
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        directory.create(from_mapping({}))


def test_a_place_that_cannot_be_written_is_one_line():
    with pytest.raises(RunDirectoryError, match=r"cannot write to .*choose another one"):
        RunDirectory("/proc/pyes-run").create(from_mapping({}))


def test_no_run_and_a_damaged_configuration_are_told_apart(directory, tmp_path):
    with pytest.raises(RunDirectoryError, match="holds no run"):
        RunDirectory(tmp_path).read_config()
    directory.config.write_text("{")
    with pytest.raises(RunDirectoryError, match="cannot be used"):
        directory.read_config()


def test_a_folder_of_runs_names_them_in_the_order_of_their_numbers(tmp_path):
    assert runs_below(tmp_path / "missing") == []
    for name in ("10", "9", "0", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal.bin").touch()
    (tmp_path / "1").mkdir()
    assert [run.name for run in runs_below(tmp_path)] == ["0", "2", "9", "10"]
    names = ", ".join(str(tmp_path / name) for name in "029")
    with pytest.raises(RunDirectoryError, match=re.escape(f"is a folder of runs; name one of them: {names}, ...")):
        RunDirectory(tmp_path).check_begun()
    with pytest.raises(RunDirectoryError, match=r"journal.bin is a file, expected a run directory: .*0$"):
        RunDirectory(tmp_path / "0" / "journal.bin").check_begun()


def test_a_failure_is_added_to_the_log_unless_another_process_writes_it(tmp_path):
    directory, other = RunDirectory(tmp_path), RunDirectory(tmp_path)
    directory.add_to_log("first\n")
    with directory.locked():
        other.add_to_log("refused\n")
    other.add_to_log("last\n")
    assert directory.log.read_text() == "first\nlast\n"
    RunDirectory(tmp_path / "missing").add_to_log("no directory, and no error\n")


@pytest.mark.parametrize("name", ["policy.safetensors", "best.json", "config.json"])
def test_a_folder_of_something_else_is_not_taken_for_a_run(tmp_path, name):
    (tmp_path / name).write_text('{"my": "settings"}')
    with pytest.raises(RunDirectoryError, match=rf"{name} (is not of a run, and )?would be replaced"):
        RunDirectory(tmp_path).create(from_mapping({"seed": 3}))
    assert (tmp_path / name).read_text() == '{"my": "settings"}'


def test_a_run_that_was_killed_as_it_began_is_begun_again(directory):
    directory.create(from_mapping({"seed": 4}))
    assert directory.read_config().seed == 4
