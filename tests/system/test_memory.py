import contextlib
import errno
import os
import sys
import tempfile
import threading
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from pyes.errors import ConfigError
from pyes.system import memory
from pyes.system.memory import SharedBlock

KINDS = ["memfd", "shared_memory", "file"] if sys.platform == "linux" else ["shared_memory", "file"]


@pytest.mark.parametrize("kind", KINDS)
def test_block_written_by_owner_is_read_by_attached(kind):
    with SharedBlock(4096, kind) as block:
        block.array(np.int64, (10,))[:] = np.arange(10)
        with SharedBlock.attach(block.handle, writable=False) as other:
            np.testing.assert_array_equal(other.array(np.int64, (10,)), np.arange(10))


def _add_one(handle):
    with SharedBlock.attach(handle, writable=True) as block:
        block.array(np.int64, (4,))[:] += 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_block_is_shared_with_children(kind, method):
    with SharedBlock(64, kind) as block:
        process = get_context(method).Process(target=_add_one, args=(block.handle,))
        process.start()
        process.join()
        assert process.exitcode == 0
        np.testing.assert_array_equal(block.array(np.int64, (4,)), 1)


@pytest.mark.skipif(sys.platform != "linux", reason="sealing is the Linux kernel's")
def test_sealed_block_refuses_writable_maps():
    with SharedBlock(4096, "memfd") as block:
        block.array(np.uint8, (4096,))[:] = 7
        block.seal()
        with pytest.raises(PermissionError):
            SharedBlock.attach(block.handle, writable=True)
        view = block.array(np.uint8, (4096,))
        assert (view == 7).all()
        assert not view.flags.writeable
        del view


@pytest.mark.skipif(sys.platform != "linux", reason="sealing is the Linux kernel's")
def test_seal_waits_until_the_kernel_lets_go_of_a_page():
    with SharedBlock(4096, "memfd") as block, contextlib.ExitStack() as ends:
        block.array(np.uint8, (4096,))[:] = 7
        reading, writing = os.pipe()
        ends.callback(os.close, reading)
        ends.callback(os.close, writing)
        descriptor = os.open(block.handle.name, os.O_RDWR)
        ends.callback(os.close, descriptor)
        os.splice(descriptor, writing, 4096)  # the pipe holds the page itself, not a copy
        import fcntl  # not on every system

        with pytest.raises(OSError, match="busy"):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        letting_go = threading.Timer(0.5, os.read, (reading, 4096))
        letting_go.start()
        block.seal()
        letting_go.join()
        with pytest.raises(PermissionError):
            SharedBlock.attach(block.handle, writable=True)


@pytest.mark.parametrize("kind", KINDS)
def test_block_too_large_is_refused_with_both_figures(kind):
    with pytest.raises(ConfigError, match=r"does not fit: [\d,]+ MiB of memory are available"):
        SharedBlock(2**60, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_owner_closing_removes_the_name(kind):
    block = SharedBlock(64, kind)
    name = block.handle.name
    block.close()
    place = Path("/dev/shm") / name if kind == "shared_memory" else Path(name)
    assert not place.exists()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "shared_memory"])
def test_a_view_that_is_kept_outlives_the_block(kind):
    block = SharedBlock(4096, kind)
    view = block.array(np.int64, (10,))
    view[:] = 7
    block.close()
    assert view.sum() == 70


def test_a_limit_of_the_system_is_named(monkeypatch):
    def refuse(name, flags):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(memory.os, "memfd_create", refuse, raising=False)
    with pytest.raises(ConfigError, match=r"\(Too many open files\); raise the limit of open files \(ulimit -n\)"):
        SharedBlock(64, "memfd")


def test_a_block_that_finds_no_room_leaves_nothing(tmp_path, monkeypatch):
    def refuse(descriptor, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(memory, "_allocate", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(os.listdir("/dev/fd"))
    with pytest.raises(ConfigError, match=r"cannot make a block of 64 bytes .*No space left on device"):
        SharedBlock(64, "file")
    assert not list(tmp_path.iterdir())
    assert set(os.listdir("/dev/fd")) <= before
