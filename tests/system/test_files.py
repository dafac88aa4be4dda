import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from pyes.errors import ConfigError
from pyes.system import files
from pyes.system.files import AppendFile, write_file


def test_write_file_replaces_whole(tmp_path):
    write_file(tmp_path / "a.bin", b"first")
    write_file(tmp_path / "a.bin", b"second")
    assert (tmp_path / "a.bin").read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_replacing_leaves_the_old_file_when_the_work_fails(tmp_path):
    write_file(tmp_path / "a.bin", b"old")

    def work():
        with files.replacing(tmp_path / "a.bin") as beside:
            beside.write_bytes(b"half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert (tmp_path / "a.bin").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_an_error_at_any_step_of_replacing_leaves_the_old_file(call, tmp_path, monkeypatch):
    write_file(tmp_path / "a.bin", b"old")

    def fail(*arguments, **options):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        if call in ("open", "write"):
            patch.setattr(files.Path, "write_bytes", fail)
        else:
            patch.setattr(os, call, fail)
        with pytest.raises(ConfigError, match=r"cannot write .*a\.bin: Input/output error"):
            write_file(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_file_system_that_cannot_sync_folders_takes_files(tmp_path, monkeypatch):
    sync = os.fsync

    def files_only(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    write_file(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"new"


def test_a_name_is_forced_to_disk_after_what_it_names(tmp_path, monkeypatch):
    """A power cut leaves the old file or the whole new one, and a new journal is found again."""
    steps = []
    sync, replace = os.fsync, os.replace

    def fsync(descriptor):
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "bytes")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda *names: (steps.append("name"), replace(*names)))
    write_file(tmp_path / "a.bin", b"new")
    assert steps == ["bytes", "name", "folder"]
    steps.clear()
    for expected in (["folder"], []):
        with AppendFile(tmp_path / "b.bin", 0):
            assert steps == expected
        steps.clear()


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere" / "b.bin", tmp_path / "a.bin")
    for data in (b"first", b"second"):  # it led to nothing at first
        write_file(tmp_path / "a.bin", data)
        assert (tmp_path / "a.bin").is_symlink()
        assert (tmp_path / "elsewhere" / "b.bin").read_bytes() == data
    assert os.listdir(tmp_path / "elsewhere") == ["b.bin"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes in its file system")
def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="got a device, a pipe or a socket, expected a file"):
        write_file(tmp_path / "pipe", b"data")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("place", ["folder", "/proc/film.mp4"])
def test_a_place_that_cannot_be_written_is_found_before_the_work(tmp_path, place):
    (tmp_path / "folder").mkdir()
    work = []
    with pytest.raises(ConfigError, match="cannot write") as error, files.replacing(tmp_path / place):
        work.append("minutes")
    assert "\n" not in str(error.value)
    assert not work
    assert os.listdir(tmp_path) == ["folder"]


def test_append_file_grows_and_cuts_what_is_not_to_be_kept(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"kept and cut")
    with AppendFile(path, 4) as file:
        file.append(b"!")
        assert file.size == 5
        file.sync()
    assert path.read_bytes() == b"kept!"


class Disk:
    """A disk that has room for so many bytes, under os.write and os.ftruncate.

    Parameters
    ----------
    room : int
    cuts : bool
        Whether files can be cut while it is full: not where a cut needs room, as on copy-on-write file systems.
    """

    def __init__(self, room, monkeypatch, cuts=True):
        self.room, self._cuts = room, cuts
        self._write, self._truncate = os.write, os.ftruncate
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "ftruncate", self.truncate)

    def write(self, descriptor, data):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self._write(descriptor, bytes(data[: self.room]))
        self.room -= count
        return count

    def truncate(self, descriptor, size):
        if not (self._cuts or self.room):
            raise OSError(errno.ENOSPC, "No space left on device")
        self._truncate(descriptor, size)


def test_append_waits_on_a_full_disk_and_loses_nothing(tmp_path, monkeypatch, caplog):
    path, delays = tmp_path / "a.bin", []
    with AppendFile(path, 0) as file:
        file.append(b"before ")
        disk = Disk(3, monkeypatch)

        def sleep(seconds):
            assert path.read_bytes() == b"before "  # no half of a piece
            delays.append(seconds)
            disk.room = 100 if len(delays) == 3 else 2

        monkeypatch.setattr(files, "pause", sleep)
        file.append(b"after")
    assert path.read_bytes() == b"before after"
    assert delays == sorted(delays)
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 3


def test_append_cuts_the_half_of_a_piece_once_the_full_disk_lets_it(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    with AppendFile(path, 0) as file:
        file.append(b"before ")
        disk = Disk(3, monkeypatch, cuts=False)

        def sleep(seconds):
            assert path.read_bytes() == b"before aft"
            disk.room = 100

        monkeypatch.setattr(files, "pause", sleep)
        file.append(b"after")
        assert path.read_bytes() == b"before after"
        disk.room = 3
        monkeypatch.setattr(files, "pause", lambda seconds: None)
        with pytest.raises(ConfigError, match="No space left on device"):
            file.append(b" given up")
        disk.room = 100
        file.append(b" all")
    assert path.read_bytes() == b"before after all"


def test_a_full_disk_has_about_four_minutes():
    assert 200 < sum(files._DELAYS) < 300


def test_append_gives_up_on_a_disk_that_stays_full(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    with AppendFile(path, 0) as file:
        file.append(b"before ")
        Disk(3, monkeypatch)
        monkeypatch.setattr(files, "pause", lambda seconds: None)
        with pytest.raises(ConfigError, match=r"cannot write .*No space left on device"):
            file.append(b"after")
        assert path.read_bytes() == b"before "
        monkeypatch.undo()
        file.append(b"all")
    assert path.read_bytes() == b"before all"


def test_an_interrupt_in_the_middle_of_an_append_leaves_no_half(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    with AppendFile(path, 0) as file:
        file.append(b"before ")
        disk = Disk(3, monkeypatch)

        def interrupt(descriptor, data, write=disk.write):
            if not disk.room:
                raise KeyboardInterrupt
            return write(descriptor, data)

        monkeypatch.setattr(os, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            file.append(b"after")
    assert path.read_bytes() == b"before "


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="cannot write"):
        AppendFile(tmp_path / "missing" / "a.bin", 0)


def test_remove_leftovers_takes_only_what_the_dead_have_left(tmp_path):
    with files.replacing(tmp_path / "mine.json") as beside:
        beside.write_bytes(b"{}")
        dead = subprocess.Popen(["true"])
        dead.wait()
        for name in (f".theirs.pyes-{dead.pid}.json", f".a.b.pyes-{dead.pid}.safetensors", f".lock.pyes-{dead.pid}"):
            (tmp_path / name).touch()
        users = [
            ".hydra",
            ".notes.2024.txt",
            f".notes.{dead.pid}.txt",
            f"x.pyes-{dead.pid}.json",
            ".a.pyes-1234567890123",
        ]
        for name in users:
            (tmp_path / name).touch()
        (tmp_path / f".living.pyes-{os.getppid()}.json").touch()
        files.remove_leftovers(tmp_path, exclusive=False)
        left = sorted(os.listdir(tmp_path))
        assert left == sorted([f".living.pyes-{os.getppid()}.json", *users])  # this process has just begun, they say
        files.remove_leftovers(tmp_path, exclusive=True)
        assert sorted(os.listdir(tmp_path)) == sorted(users)
        beside.write_bytes(b"{}")


def test_a_path_that_is_taken_has_a_number(tmp_path):
    taken = str(tmp_path / "day" / "run")
    assert [files.new_folder(taken) for _ in range(3)] == [taken, f"{taken}-2", f"{taken}-3"]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        files.new_folder(str(tmp_path / "file" / "run"))
    (tmp_path / "link").symlink_to(tmp_path / "not mounted")
    with pytest.raises(NotADirectoryError):
        files.new_folder(str(tmp_path / "link" / "run"))


def test_names_of_new_folders_are_synced_to_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "_flush", synced.append)
    files.make_folder(tmp_path / "a" / "b")
    files.make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path / "a", tmp_path]


def test_a_file_that_another_process_has_written_to_is_left_alone(tmp_path):
    path = tmp_path / "file"
    with files.AppendFile(path, 0, exclusive=True) as first, files.AppendFile(path, 0, exclusive=True) as second:
        first.append(b"one")
        with pytest.raises(ConfigError, match="file was changed by another process; one of the two has to end"):
            second.append(b"two")
        first.append(b"three")
    assert path.read_bytes() == b"onethree"
    with files.AppendFile(path, 3) as table:  # which may be edited
        path.write_bytes(b"one\n")
        table.append(b"two")
    assert path.read_bytes() == b"one\ntwo"


@pytest.mark.skipif(os.name == "nt", reason="a folder that is in use cannot be removed")
def test_a_relative_path_where_there_is_no_working_folder_is_one_line(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match=r"cannot write out\.png: No such file or directory; choose a place"):
        write_file(Path("out.png"), b"")
