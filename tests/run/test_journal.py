"""The journal: what is written comes back, torn ends are cut off, damage is named, and records are on disk in time."""

import contextlib
import os
import threading

import numpy as np
import pytest
from heads import until
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pyes.errors import ConfigError, JournalError
from pyes.run import journal
from pyes.run.journal import Evaluation, Generation, Journal, Kind, Start

START = Start(0, {"seed": 3, "task": {"env_id": "CartPole-v1"}, "hidden": [64]}, "table", "hash", {"python": "3.11"})


def generation(number, members=5, observations=2):
    rng = np.random.default_rng(number)
    return Generation(
        generation=number,
        theta_hash=f"hash{number}",
        returns=np.where(rng.random(members) < 0.2, np.nan, rng.normal(size=members)),
        lengths=rng.integers(0, 200, members).astype(np.uint8),
        status=(rng.random(members) < 0.2).astype(np.uint8),
        observations=number * 10,
        sums=rng.normal(size=2 * observations),
    )


RECORDS = [
    START,
    generation(0),
    Evaluation(1, "hash1", np.array([1.0, -0.0, np.inf]), np.zeros(3, np.uint8)),
    generation(1, observations=0),
    Start(2, {"seed": 4}, "table", "hash2", {}),
    generation(2, members=1),
]


def write(path, records=RECORDS):
    with Journal(journal.read(path)) as writer:
        for record in records:
            writer.append(record)
    return path


def assert_same(got, expected):
    assert type(got) is type(expected)
    for name, value in vars(expected).items():
        if isinstance(value, np.ndarray):
            assert (getattr(got, name).dtype, getattr(got, name).tobytes()) == (value.dtype, value.tobytes())
        else:
            assert getattr(got, name) == value


def test_records_come_back_as_they_were_written(tmp_path):
    recording = journal.read(write(tmp_path / "journal.bin"))
    assert len(recording) == len(RECORDS)
    for index, record in enumerate(RECORDS):
        assert_same(recording[index], record)
    assert (recording.generations, recording.torn) == (3, 0)
    assert recording.size == (tmp_path / "journal.bin").stat().st_size


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    returns=arrays(np.float64, st.integers(1, 50)),
    lengths=arrays(st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]), st.integers(1, 50)),
    status=arrays(np.uint8, st.integers(1, 50)),
    sums=arrays(np.float64, st.integers(0, 20)),
    number=st.integers(0, 2**32 - 1),
    observations=st.integers(0, 2**63),
)
def test_any_generation_comes_back(returns, lengths, status, sums, number, observations, tmp_path_factory):
    record = Generation(number, "hash", returns, lengths, status, observations, sums)
    path = write(tmp_path_factory.mktemp("journal") / "journal.bin", [START, record])
    assert_same(journal.read(path)[1], record)


def test_a_member_costs_ten_bytes(tmp_path):
    """A return of eight and, for episodes of up to 65,535 timesteps, a length of two."""
    members = 1000
    lengths = np.full(members, 1000, np.uint16)
    record = Generation(0, "0" * 16, np.ones(members), lengths, np.zeros(members, np.uint8), 0, np.empty(0))
    first, second = write(tmp_path / "a", [START]), write(tmp_path / "b", [START, record])
    assert second.stat().st_size - first.stat().st_size <= 10 * members + 200


def test_no_file_is_an_empty_recording(tmp_path):
    recording = journal.read(tmp_path / "none")
    assert (len(recording), recording.generations, recording.digest) == (0, 0, "")


def test_a_journal_goes_on_where_it_ended(tmp_path):
    whole = write(tmp_path / "whole")
    parts = write(tmp_path / "parts", RECORDS[:2])
    write(parts, RECORDS[2:])
    assert parts.read_bytes() == whole.read_bytes()


def test_a_journal_cut_at_any_byte_keeps_its_whole_records_and_goes_on(tmp_path):
    data = write(tmp_path / "whole").read_bytes()
    ends = [entry.place + entry.length + 16 for entry in journal.read(tmp_path / "whole").entries]
    path = tmp_path / "cut"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        recording = journal.read(path)
        assert len(recording) == sum(end <= size for end in ends)
        assert recording.size + recording.torn == size
        write(path, RECORDS[len(recording) :])
        assert path.read_bytes() == data


def test_an_end_that_was_never_written_is_torn(tmp_path):
    """After a power cut, a file may be longer than what reached the disk: zeros."""
    data = write(tmp_path / "whole").read_bytes()
    last = journal.read(tmp_path / "whole").entries[-1]
    for cut in (last.place - 13, last.place - 5, last.place, last.place + 10, len(data) - 16, len(data) - 1):
        (tmp_path / "zeros").write_bytes(data[:cut] + bytes(5000))
        assert len(journal.read(tmp_path / "zeros")) in (len(RECORDS) - 1, len(RECORDS))
    (tmp_path / "zeros").write_bytes(bytes(100))
    assert len(journal.read(tmp_path / "zeros")) == 0
    (tmp_path / "zeros").write_bytes(bytes(8) + data[8:])
    with pytest.raises(JournalError, match="is damaged: record 0 at byte 0"):
        journal.read(tmp_path / "zeros")


def test_two_writers_leave_a_whole_journal(tmp_path):
    path = write(tmp_path / "journal", RECORDS[:2])
    with Journal(journal.read(path)) as first, Journal(journal.read(path)) as second:
        second.append(RECORDS[2])
        with pytest.raises(ConfigError, match="was changed by another process"):
            first.append(RECORDS[2])
        second.append(RECORDS[3])
    assert len(journal.read(path)) == 4


def test_a_flipped_bit_anywhere_but_in_the_last_record_is_named(tmp_path):
    data = write(tmp_path / "whole").read_bytes()
    entries = journal.read(tmp_path / "whole").entries
    last = entries[-1].place - 13  # where its header begins
    path = tmp_path / "flipped"
    for place in range(8, last):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        number = sum(entry.place + entry.length + 16 <= place for entry in entries)
        with pytest.raises(JournalError, match=rf"is damaged: record {number} at byte \d+ is not what was written"):
            journal.read(path)


def test_a_flipped_bit_in_the_last_record_never_gives_another_record(tmp_path):
    data = write(tmp_path / "whole").read_bytes()
    first = journal.read(tmp_path / "whole").entries[-1].place - 13
    path = tmp_path / "flipped"
    for place in range(first, len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with contextlib.suppress(JournalError):  # a header whose length is another one
            assert len(journal.read(path)) == len(RECORDS) - 1


def test_records_in_another_order_are_damage(tmp_path):
    """Each one is whole, but the chain of digests is not."""
    whole = write(tmp_path / "whole")
    data = whole.read_bytes()
    first, second, third = ((e.place - 13, e.place + e.length + 16) for e in journal.read(whole).entries[:3])
    swapped = data[: first[1]] + data[slice(*third)] + data[slice(*second)] + data[third[1] :]
    whole.write_bytes(swapped)
    with pytest.raises(JournalError, match="record 1 "):
        journal.read(whole)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"generation,timesteps\n0,10\n", "is no journal of a pyes run"),
        (b"pyesjnl\x63 and more", "has format 99, expected 3; read it with the version of pyes-rl that wrote it"),
    ],
)
def test_a_foreign_or_newer_file_is_refused_in_one_line(data, expected, tmp_path):
    (tmp_path / "journal.bin").write_bytes(data)
    with pytest.raises(JournalError, match=expected) as error:
        journal.read(tmp_path / "journal.bin")
    assert "\n" not in str(error.value)


def test_digest_finds_the_record_that_it_ends(tmp_path):
    path = tmp_path / "journal.bin"
    with Journal(journal.read(path)) as writer:
        digests = []
        for record in RECORDS:
            writer.append(record)
            digests.append(writer.digest)
    recording = journal.read(path)
    assert [recording.find(digest) for digest in digests] == list(range(1, len(RECORDS) + 1))
    assert recording.find("00" * 16) == -1
    assert recording.digest == digests[-1]


def test_reading_holds_no_record(tmp_path):
    """Only where each lies: a journal of gigabytes is read in megabytes."""
    recording = journal.read(write(tmp_path / "journal.bin", [START, *(generation(i, 1000) for i in range(3))]))
    assert {entry.kind for entry in recording.entries} == {Kind.START, Kind.GENERATION}
    assert not any(isinstance(value, np.ndarray) for entry in recording.entries for value in vars(entry).values())


def test_records_are_forced_to_disk_without_being_asked(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(descriptor), fsync(descriptor)))
    with Journal(journal.read(tmp_path / "journal.bin")) as writer:
        writer.append(START)
        assert journal._SYNC_SECONDS < 1  # what a power cut may cost; a busy machine may take longer here
        until(lambda: synced, "a record on the disk")


@pytest.mark.parametrize("first", ["thread", "snapshot"])
def test_a_disk_that_refuses_to_sync_ends_the_run_at_the_next_record(tmp_path, monkeypatch, first):
    """It says so once; what is forced to disk after that may have lost something before."""

    def refuse(descriptor):
        monkeypatch.undo()  # Linux tells a descriptor once
        raise OSError(5, "Input/output error")

    with contextlib.suppress(ConfigError), Journal(journal.read(tmp_path / "journal.bin")) as writer:
        if first == "snapshot":
            writer._end.put(None)  # the thread looks no more
            writer._thread.join()
        monkeypatch.setattr(os, "fsync", refuse)
        writer.append(START)
        if first == "snapshot":
            with pytest.raises(ConfigError, match="Input/output error"):
                writer.sync()
        until(lambda: writer._refusal, "the refusal")
        with pytest.raises(ConfigError, match="Input/output error"):
            writer.append(generation(0))
        with pytest.raises(ConfigError, match="Input/output error"):
            writer.sync()
    monkeypatch.undo()
    writer._file.close()


def test_a_closed_journal_has_ended_its_thread(tmp_path):
    with Journal(journal.read(tmp_path / "journal.bin")) as writer:
        assert "journal" in {thread.name for thread in threading.enumerate()}
    writer.close()
    assert "journal" not in {thread.name for thread in threading.enumerate()}
