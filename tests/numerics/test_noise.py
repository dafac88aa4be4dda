import signal
import subprocess
import sys
import textwrap

import leftovers
import numpy as np
import pytest
from commands import running

from pyes.errors import ConfigError
from pyes.numerics import noise
from pyes.numerics.noise import NoiseTable, default_entries, few_entries
from pyes.system import limits

DTYPES = ["float32", "bfloat16", "int8"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_table_is_equal_private_shared_and_filled_by_any_number_of_threads(dtype):
    with (
        NoiseTable(100_003, 5, dtype) as private,
        NoiseTable(100_003, 5, dtype, shared=True, threads=3) as shared,
        NoiseTable.attach(shared.handle, 5, dtype) as attached,
    ):
        np.testing.assert_array_equal(private.array, shared.array)
        np.testing.assert_array_equal(private.array, attached.array)
        assert private.fingerprint == shared.fingerprint == attached.fingerprint


@pytest.mark.parametrize("shared", [False, True])
def test_table_cannot_be_written(shared):
    with NoiseTable(1000, 0, shared=shared) as table, pytest.raises(ValueError, match="read-only"):
        table.array[0] = 1.0


def test_fingerprint_differs_by_seed_size_and_dtype():
    prints = set()
    for entries, seed, dtype in [(1000, 0, "float32"), (1000, 1, "float32"), (1001, 0, "float32"), (1000, 0, "int8")]:
        with NoiseTable(entries, seed, dtype) as table:
            prints.add(table.fingerprint)
    assert len(prints) == 4


def test_slices_of_the_dtypes_agree():
    with NoiseTable(5000, 1) as exact, NoiseTable(5000, 1, "bfloat16") as half, NoiseTable(5000, 1, "int8") as eighth:
        np.testing.assert_allclose(half.slice(17, 900), exact.slice(17, 900), rtol=2**-8)
        clipped = exact.slice(17, 900).clip(-127 / 32, 127 / 32)
        np.testing.assert_allclose(eighth.slice(17, 900), clipped, atol=1 / 64 + 1e-4)


def test_offset_bound_admits_the_last_slice_and_refuses_a_table_that_is_too_small():
    """With as many entries as parameters, all members would lie on one line."""
    with NoiseTable(100, 0) as table:
        assert table.offset_bound(50) == 51
        assert table.offset_bound(1) == 100
        table.slice(99, 1)
        message = r"the table has 100 entries, theta has 51 parameters; expected noise\.entries=102 or more"
        with pytest.raises(ConfigError, match=message):
            table.offset_bound(51)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True])
def test_impossible_seed_is_refused(seed):
    with pytest.raises(ConfigError, match=r"seed: got .*, expected an integer in \[0, 2\*\*64\)"):
        NoiseTable(1000, seed)


@pytest.mark.parametrize(("entries", "dtype"), [(0, "float32"), (-1, "float32"), (1e6, "float32"), (10, "float16")])
def test_impossible_table_is_refused(entries, dtype):
    with pytest.raises(ConfigError, match="noise"):
        NoiseTable(entries, 0, dtype)


def test_few_entries_grow_with_theta_up_to_a_gibibyte():
    assert few_entries(18) == 2**20
    assert few_entries(100_000) == 25_600_000
    assert few_entries(10_000_000) == 2**28
    assert few_entries(200_000_000) == 400_000_000


@pytest.mark.parametrize("free", [2**20, 2**40])
def test_default_entries_depend_on_theta_and_dtype_alone(free, monkeypatch):
    monkeypatch.setattr(limits, "available_memory", lambda: free)
    assert default_entries(18) == default_entries(2**14) == 2**22
    assert default_entries(2**14 + 1) == 2**23
    assert default_entries(2**16) == 2**24
    assert default_entries(2**16 + 1) == 2**25
    assert default_entries(10_000_000) == 2**28  # 1 GiB
    assert default_entries(10_000_000, "bfloat16") == 2**29
    assert default_entries(10_000_000, "int8") == 2**30
    assert default_entries(2**28) == 2**29  # two slices, whatever they take


@pytest.mark.parametrize("shared", [False, True])
def test_table_that_does_not_fit_is_refused_with_one_that_does(shared, monkeypatch):
    monkeypatch.setattr(limits, "available_memory", lambda: 2**20)
    message = (
        r"a noise table of 1,000,000 float32 entries takes 4 MiB, 1 MiB of memory are available .*; 131072 would fit "
        r"\(noise\.entries of a run\), if theta has no more than half as many parameters, or noise=int8, a quarter"
    )
    with pytest.raises(ConfigError, match=message):
        NoiseTable(1_000_000, 0, shared=shared)
    with NoiseTable(131_072, 0, shared=shared) as table:
        assert len(table) == 131_072


@pytest.mark.parametrize("dtype", DTYPES)
def test_weighted_sum_is_equal_for_any_number_of_threads(dtype):
    rng = np.random.default_rng(0)
    with NoiseTable(200_000, 0, dtype) as table:
        offsets = rng.integers(0, 100_000, 50)
        weights = rng.standard_normal(50).astype(np.float32)
        sums = [np.empty(99_991, np.float32) for _ in range(3)]
        for threads, out in zip((1, 2, 5), sums, strict=True):
            noise.weighted_sum(table, offsets, weights, out, threads)
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_array_equal(sums[0], sums[2])


@pytest.mark.parametrize("entries", [np.uint8(200), np.uint16(50_000)])
def test_a_length_of_numpys_does_not_overflow(entries):
    with NoiseTable(entries, 0, shared=True) as table:
        assert len(table) == entries


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("ending", ["exit", "interrupt", "kill"])
def test_nothing_is_left_behind_however_the_owner_ends(ending):
    before = leftovers.shared_blocks()
    script = textwrap.dedent(
        """
        import select, signal, sys
        from pyes.numerics.noise import NoiseTable
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit it ignored
        table = NoiseTable(2**20, 0, shared=True)
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            pass  # reading at once could miss a signal that comes just before
        """
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with running([sys.executable, "-c", script], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        if ending == "exit":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGINT if ending == "interrupt" else signal.SIGKILL)
        process.wait(60)
    assert leftovers.shared_blocks() == before
