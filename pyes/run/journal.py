"""The journal of a run: an append-only file of all results from which the rest of the run can be computed again.

Owns the format of ``journal.bin``; knows nothing of algorithms, tasks or theta itself. Invariants: a record is either
complete or absent, and the digest of each record covers all records before it.

    file      magic, record, record, ...
    record    header: payload's length uint32, kind uint8, generation uint32, CRC-32 of these uint32 (little-endian)
              payload: MessagePack
              digest: BLAKE2b-128 of the previous digest (none for the first), header and payload

Reading distinguishes two kinds of damage. A *torn end*, left by a kill or a power cut, is a last record that is
incomplete, of which a part was never written (zeros), or that is damaged; it is cut off, and the run computes it again.
Any other *damage* is an error that names the record.
"""

import hashlib
import math
import struct
import threading
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

import msgpack
import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError, JournalError
from pyes.system.files import READABLE, AppendFile, what_to_try
from pyes.system.lifetime import Closing

#: Since format 2, the initial parameters of compiled networks come from pyes' own streams;
#: since format 3, sigma and the learning rate follow schedules of the progress.
FORMAT = 3

_MAGIC = b"pyesjnl" + bytes([FORMAT])
_FIELDS = struct.Struct("<IBI")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _FIELDS.size + _CRC.size
_DIGEST_BYTES = 16
_SYNC_SECONDS = 0.5  # interval of syncs: a power cut loses less than a second


class Kind(IntEnum):
    """Kind of a record."""

    START = 1
    GENERATION = 2
    EVALUATION = 3


@dataclass(frozen=True)
class Start:
    """Start of a run, or of its continuation under other settings.

    Attributes
    ----------
    generation : int
        First generation under these settings.
    settings : dict
        All settings that affect theta, from `pyes.config.deciding`.
    table : str
        Fingerprint of the noise table.
    theta_hash : str
        Hash of the center of ``generation``.
    versions : dict
        Versions of Python and of the packages that affect numbers.
    reference : str or None
        Digest of the reference batch; None without virtual batch normalisation.
    """

    generation: int
    settings: dict[str, Any]
    table: str
    theta_hash: str
    versions: dict[str, str]
    reference: str | None = None


@dataclass(frozen=True)
class Generation:
    """Results of the members of a generation.

    Attributes
    ----------
    theta_hash : str
        Hash of the center around which the members were drawn.
    returns : float64 (n,)
        The task's own returns in member order; NaN where a member failed.
    lengths : uint (n,)
        Timesteps of all episodes of a member.
    status : uint8 (n,)
        See `pyes.episodes.batch.Status`.
    observations : int
        Number of observations so far, including this generation; 0 if they are not normalised.
    sums : float64 (2 * size,)
        Sums of the observations so far, then of their squares; empty if they are not normalised.
    behaviours : float32 (n * behaviour_size,) or None
        In member order, NaN where a member failed; None if not wanted.
    agreement : float or None
        Agreement between the halves of the members' episodes; None if not wanted or not defined.
    """

    generation: int
    theta_hash: str
    returns: NDArray[np.float64]
    lengths: NDArray[np.unsignedinteger[Any]]
    status: NDArray[np.uint8]
    observations: int
    sums: NDArray[np.float64]
    behaviours: NDArray[np.float32] | None = None
    agreement: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation of the center of ``generation``.

    Attributes
    ----------
    theta_hash : str
        Hash of the center.
    returns : float64 (n,)
        Return of each episode.
    status : uint8 (n,)
        See `pyes.episodes.batch.Status`.
    timesteps : int or None
        Total timesteps; None where no share bounds them: of the initial center, and if ``evaluation.share`` is null.
    """

    generation: int
    theta_hash: str
    returns: NDArray[np.float64]
    status: NDArray[np.uint8]
    timesteps: int | None = None

    @property
    def summary(self) -> tuple[float, float]:
        """Mean and standard deviation over the episodes that did not fail; NaN if all of them did."""
        known = self.returns[np.isfinite(self.returns)]
        return (float(known.mean()), float(known.std())) if len(known) else (math.nan, math.nan)

    @property
    def failed(self) -> int:
        """Episodes that failed."""
        return int(np.count_nonzero(self.status))


Record = Start | Generation | Evaluation

_RECORDS: dict[Kind, type[Record]] = {
    Kind.START: Start,
    Kind.GENERATION: Generation,
    Kind.EVALUATION: Evaluation,
}
_KINDS = {record: kind for kind, record in _RECORDS.items()}


@dataclass(frozen=True)
class Entry:
    """Position of a record in the file, and its digest."""

    kind: Kind
    generation: int
    place: int
    length: int
    digest: bytes


@dataclass(frozen=True)
class Recording:
    """The complete records of a journal; each is read from the file on access.

    Attributes
    ----------
    path : Path
    entries : list of Entry
    size : int
        Bytes up to the end of the last complete record.
    torn : int
        Bytes after that.
    """

    path: Path
    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    torn: int = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> Record:
        entry = self.entries[index]
        with open(self.path, "rb") as file:
            file.seek(entry.place)
            payload = file.read(entry.length)
        return _decode(entry, payload)

    @property
    def generations(self) -> int:
        """Number of recorded generations."""
        for entry in reversed(self.entries):
            if entry.kind == Kind.GENERATION:
                return entry.generation + 1
        return 0

    @property
    def digest(self) -> str:
        """Hex digest of the last record, which covers all records."""
        return self.entries[-1].digest.hex() if self.entries else ""

    @property
    def starts(self) -> list[Start]:
        """Records of settings, the first one and those of its continuations under others."""
        records = (self[index] for index, entry in enumerate(self.entries) if entry.kind == Kind.START)
        return [record for record in records if isinstance(record, Start)]

    @property
    def branches(self) -> list[int]:
        """Generations at which settings that decide theta were changed: then no configuration makes the run again."""
        return [entry.generation for entry in self.entries if entry.kind == Kind.START][1:]

    def begins_with(self, settings: dict[str, Any]) -> bool:
        """Whether the run began with these settings."""
        start = self[0]
        return isinstance(start, Start) and start.settings == settings

    def find(self, digest: str) -> int:
        """Return the number of records up to the one with this digest, or -1."""
        return next((i + 1 for i, entry in enumerate(self.entries) if entry.digest.hex() == digest), -1)


def read(path: Path) -> Recording:
    """Read and check a whole journal; without a file, the recording is empty.

    Raises
    ------
    JournalError
        The file cannot be read, is not a journal, has another format, or is damaged before its end.
    """
    try:
        with open(path, "rb") as file:
            return _Reader(path, file).read()
    except FileNotFoundError:
        return Recording(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> JournalError:
    unreadable = isinstance(error, PermissionError)
    advice = READABLE if unreadable else what_to_try(error) or "restore it from a copy"
    return JournalError(f"cannot read {path}: {error.strerror or error}; {advice}")


class _Reader:
    """Reads a journal once from begin to end."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._end = file.seek(0, 2)
        file.seek(0)

    def read(self) -> Recording:
        entries: list[Entry] = []
        place, digest = self._magic(), b""
        while place < self._end and (entry := self._entry(place, len(entries), digest)) is not None:
            entries.append(entry)
            place, digest = entry.place + entry.length + _DIGEST_BYTES, entry.digest
        size = place if entries else 0  # the magic alone is not a journal
        return Recording(self._path, entries, size, self._end - size)

    def _magic(self) -> int:
        magic = self._file.read(len(_MAGIC))
        if _MAGIC.startswith(magic):  # or cut short
            return len(magic)
        if _only_zeros(magic):  # never written
            self._check_never_written(0, 0, len(magic))
            return self._end
        if magic[:-1] == _MAGIC[:-1]:
            raise JournalError(
                f"{self._path} has format {magic[-1]}, expected {FORMAT}; read it with the version of pyes-rl that "
                "wrote it, or start the run again"
            )
        raise JournalError(f"{self._path} is no journal of a pyes run; restore it from a copy")

    def _entry(self, place: int, number: int, before: bytes) -> Entry | None:
        """Check the record at ``place``; None if it is a torn end."""
        header = self._file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES:
            return None
        length, kind, generation = _FIELDS.unpack_from(header)
        if zlib.crc32(header[: _FIELDS.size]) != _CRC.unpack_from(header, _FIELDS.size)[0]:
            self._check_never_written(number, place, place + _HEADER_BYTES)
            return None
        end = place + _HEADER_BYTES + length + _DIGEST_BYTES
        if end > self._end:
            return None
        payload, digest = self._file.read(length), self._file.read(_DIGEST_BYTES)
        if digest != _digest(before, header, payload):
            self._check_never_written(number, place, end)
            return None
        if kind not in _RECORDS:
            known = ", ".join(f"{each:d}" for each in _RECORDS)
            where = f"{self._path}: record {number} at byte {place}"
            raise JournalError(f"{where} is of kind {kind}, expected one of {known}; take a newer pyes-rl")
        return Entry(Kind(kind), generation, place + _HEADER_BYTES, length, digest)

    def _check_never_written(self, number: int, place: int, rest: int) -> None:
        """Raise unless only zeros, which a power cut leaves, follow at ``rest``: otherwise it is not a torn end."""
        self._file.seek(rest)
        while block := self._file.read(2**20):
            if not _only_zeros(block):
                raise JournalError(
                    f"{self._path} is damaged: record {number} at byte {place} is not what was written; "
                    "restore it from a copy"
                )


def _only_zeros(data: bytes) -> bool:
    return data.count(0) == len(data)


def _digest(before: bytes, header: bytes, payload: bytes) -> bytes:
    digest = hashlib.blake2b(before, digest_size=_DIGEST_BYTES)
    digest.update(header)
    digest.update(payload)
    return digest.digest()


def _encode(record: Record, before: bytes) -> tuple[bytes, bytes]:
    """Return a record's bytes, without values that are None, and its digest, with which they end."""
    values = asdict(record)
    generation = values.pop("generation")
    payload: bytes = msgpack.packb({key: _packed(value) for key, value in values.items() if value is not None})
    fields = _FIELDS.pack(len(payload), _KINDS[type(record)], generation)
    header = fields + _CRC.pack(zlib.crc32(fields))
    digest = _digest(before, header, payload)
    return header + payload + digest, digest


def _decode(entry: Entry, payload: bytes) -> Record:
    values = {key: _unpacked(value) for key, value in msgpack.unpackb(payload).items()}
    return _RECORDS[entry.kind](generation=entry.generation, **values)


def _packed(value: Any) -> Any:
    """Return an array as its dtype, length and little-endian bytes; the bytes of a zero array are left out."""
    if not isinstance(value, np.ndarray):
        return value
    data = value.tobytes()
    return msgpack.ExtType(1, msgpack.packb((value.dtype.str, len(value), b"" if _only_zeros(data) else data)))


def _unpacked(value: Any) -> Any:
    if not isinstance(value, msgpack.ExtType):
        return value
    dtype, length, data = msgpack.unpackb(value.data)
    return np.frombuffer(data, dtype).copy() if data else np.zeros(length, dtype)


class Journal(Closing):
    """Appends records to the journal of a run; a thread forces them to disk within a second.

    Parameters
    ----------
    recording : Recording
        Existing records; a torn end after them is cut off.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """

    def __init__(self, recording: Recording) -> None:
        self._file = AppendFile(recording.path, recording.size, exclusive=True)
        self._digest = recording.entries[-1].digest if recording.entries else b""
        self._dirty = False
        #: The error of a failed sync; the operating system reports it only once, so all later calls raise it.
        self._refusal: ConfigError | None = None
        # SimpleQueue: its put takes no lock that an interrupt could leave locked.
        self._end: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._keep_synced, name="journal", daemon=True)
        self._thread.start()

    @property
    def digest(self) -> str:
        """Hex digest of the last record, which covers all records."""
        return self._digest.hex()

    def append(self, record: Record) -> None:
        """Append a record; after this returns, it survives a kill of the process.

        Raises
        ------
        ConfigError
            It cannot be written, or earlier records could not be synced to disk.
        """
        if self._refusal is not None:
            raise self._refusal
        data, digest = _encode(record, self._digest)
        self._file.append(data if self._file.size else _MAGIC + data)
        self._digest = digest
        self._dirty = True

    def sync(self) -> None:
        """Sync all records to disk; after this returns, they survive a power cut.

        Raises
        ------
        ConfigError
            This or an earlier sync has failed.
        """
        if self._refusal is None:
            self._dirty = False  # before the sync, so that records appended during it are synced next time
            try:
                self._file.sync()
            except ConfigError as error:
                self._refusal = error
        if self._refusal is not None:
            raise self._refusal

    def _keep_synced(self) -> None:
        while True:
            try:
                self._end.get(timeout=_SYNC_SECONDS)
                return
            except Empty:
                if self._dirty:
                    with suppress(ConfigError):  # raised again by the next append
                        self.sync()

    def close(self) -> None:
        """Sync all records to disk and close the file."""
        if not self._thread.is_alive():
            return
        self._end.put(None)
        self._thread.join()
        try:
            self.sync()
        finally:
            self._file.close()
