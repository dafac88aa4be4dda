"""The messages of a head and its nodes, as values.

Owns the fields of each message; knows neither which end may send it when (`pyes.remote.wire.protocol`) nor how fields
are encoded (`pyes.remote.wire.fields`). Fields are sent in the order of their definition. Arrays of received messages
are read-only.

Members are given as ranges, int64 (k, 2); the rows of other arrays belong to these members in ascending order, or to
all members of a generation where there are no ranges.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from pyes.episodes.batch import Status
from pyes.remote.wire import ranges
from pyes.remote.wire.fields import (
    Array,
    Data,
    Digest,
    Exact,
    Label,
    Lengths,
    Piece,
    Plain,
    Prose,
    ProseList,
    RangesField,
    Text,
    Values,
    Whole,
)

#: Version of this package's protocol, which must be equal at both ends.
PROTOCOL = 1

_NAME_BYTES = 128  # three of them and some numbers fit into the 1 KiB of a handshake
_BIG = 2**63 - 1
_GATHER_SECONDS = (0.001, 1.0)  # from .. to

UInt32 = Annotated[int, Whole()]
UInt63 = Annotated[int, Whole(_BIG)]
Real = Annotated[float, Plain(float)]
Flag = Annotated[bool, Plain(bool)]
Name = Annotated[str, Label(_NAME_BYTES)]
ThetaHash = Annotated[str, Digest(8)]
Reason = Annotated[str, Prose(512)]
Ranges = Annotated[NDArray[np.int64], RangesField()]
Returns = Annotated[NDArray[np.float64], Exact()]
Counts = Annotated[NDArray[np.unsignedinteger[Any]], Lengths()]
Statuses = Annotated[NDArray[np.uint8] | None, Array(("|u1",), optional=True)]
Behaviours = Annotated[NDArray[np.float32] | None, Array(("<f4",), 2, optional=True)]
Halves = Annotated[NDArray[np.float64] | None, Array(("<f8",), 2, optional=True)]
Integers = Annotated[NDArray[np.int64], Array(("<i8",))]
Vector = Annotated[NDArray[np.float32], Array(("<f4",))]
OptionalVector = Annotated[NDArray[np.float32] | None, Array(("<f4",), optional=True)]


@dataclass(frozen=True)
class Message:
    """Base of all messages."""

    def check(self) -> None:
        """Raise ValueError for inconsistent fields."""


# --- from a node to the head ---


@dataclass(frozen=True)
class Hello(Message):
    """A node asks to be accepted.

    Attributes
    ----------
    protocol : int
        Its `PROTOCOL`.
    package : str
        Its version of pyes-rl.
    node : str
        Its name.
    workers : int
        Its worker processes.
    cores : int
        Cores that it may use.
    memory : int
        Bytes available to it.
    kernels : str
        Digest of its kernels' self-test.
    relay : bool
        Whether its workers are those of nodes of its own.
    """

    protocol: UInt32
    package: Name
    node: Name
    workers: UInt32
    cores: UInt32
    memory: UInt63
    kernels: Name
    relay: Flag


@dataclass(frozen=True)
class Watch(Message):
    """A watcher asks for a report of the head."""

    protocol: UInt32
    package: Name


@dataclass(frozen=True)
class Ready(Message):
    """The node is prepared for the job and reports its state: at first, after each snapshot, and when out of step.

    Attributes
    ----------
    digest : str
        Digest of the node's settings.
    table : str
        Fingerprint of its noise table.
    theta_hash : str
        Hash of the center of ``generation``.
    snapshot : int
        Number of the last snapshot received over this connection; 0: none.
    versions : dict
        Versions of what the job needs, by distribution.
    """

    job: Name
    digest: Name
    table: Name
    theta_hash: ThetaHash
    generation: UInt32
    snapshot: UInt32
    versions: Annotated[dict[str, Any], Values()]

    def check(self) -> None:
        """Reject versions that are no text of one line."""
        for name, version in self.versions.items():
            if not isinstance(version, str) or not (name + version).isprintable() or len(version) > _NAME_BYTES:
                raise ValueError("versions: expected a short text for each distribution")


@dataclass(frozen=True)
class Unable(Message):
    """The node cannot take part in the job."""

    reason: Reason


@dataclass(frozen=True)
class Done(Message):
    """Results of some members of a batch; see `pyes.episodes.batch.Results`.

    Attributes
    ----------
    theta_hash : str
        Hash of the center around which they were drawn.
    status : uint8 (n,) or None
        None: all 0.
    sums : float64 (rows, 2, size) or None
        Sums for members whose observations are summed; None if there are no such members.
    busy : float
        Seconds that workers spent on them.
    errors : list of str
        The first few errors.
    """

    batch: UInt63
    theta_hash: ThetaHash
    ranges: Ranges
    returns: Returns
    lengths: Counts
    status: Statuses
    sums: Annotated[NDArray[np.float64] | None, Array(("<f8",), 3, optional=True)]
    behaviours: Behaviours
    halves: Halves
    busy: Real
    errors: Annotated[list[str], ProseList(Prose(2048))]

    def check(self) -> None:
        """Reject arrays that do not fit the members of ``ranges``."""
        members = ranges.count(self.ranges)
        _check_members(self, members)
        _check_rows("halves", self.halves, members)
        if not 0.0 <= self.busy < math.inf:
            raise ValueError(f"busy: got {self.busy:g} seconds, expected a finite number of at least 0")
        if self.sums is not None and self.sums.shape[1] != 2:
            raise ValueError(f"sums: got shape {self.sums.shape}, expected (rows, 2, size)")


@dataclass(frozen=True)
class Leave(Message):
    """The node takes no more members and hands back all but ``ranges``, which its workers still run.

    The head closes the connection when it has the results of these.
    """

    batch: UInt63
    ranges: Ranges


@dataclass(frozen=True)
class Workers(Message):
    """The node has another number of workers than before: nodes have joined or left a relay."""

    workers: UInt32

    def check(self) -> None:
        """Reject a node without workers, which would have closed the connection."""
        if self.workers == 0:
            raise ValueError("workers: got 0, expected at least 1")


@dataclass(frozen=True)
class Log(Message):
    """A record of the node's log as one line, with its level as in `logging`."""

    level: Annotated[int, Whole(1000)]
    text: Annotated[str, Prose(8192)]


# --- from the head to a node ---


@dataclass(frozen=True)
class Welcome(Message):
    """The node is accepted."""


@dataclass(frozen=True)
class Refused(Message):
    """The other end is refused."""

    reason: Reason


@dataclass(frozen=True)
class Job(Message):
    """The job of the node.

    Attributes
    ----------
    settings : dict
        The configuration as JSON values.
    sync : str
        How nodes get theta.
    """

    job: Name
    settings: Annotated[dict[str, Any], Values()]
    sync: Name


@dataclass(frozen=True)
class Learn(Message):
    """The record of a generation; see `pyes.run.journal.Generation`.

    Attributes
    ----------
    theta_hash : str
        Hash of the center around which its members were drawn.
    status : uint8 (n,) or None
        None: all 0.
    observations : int
        Number of observations so far, including this generation.
    sums : float64 (2 * size,)
        Sums of the observations so far, then of their squares.
    agreement : float
        NaN: none.
    """

    generation: UInt32
    theta_hash: ThetaHash
    returns: Returns
    lengths: Counts
    status: Statuses
    observations: UInt63
    sums: Returns
    behaviours: Behaviours
    agreement: Real

    def check(self) -> None:
        """Reject arrays of different numbers of members."""
        _check_members(self, len(self.returns))


@dataclass(frozen=True)
class Snapshot(Message):
    """The packed state at the beginning of a generation, for a node that joins late or is out of step.

    ``number`` counts the snapshots of one connection, from 1. ``state`` may be sent as a tuple of pieces.
    """

    number: UInt32
    generation: UInt32
    theta_hash: ThetaHash
    state: Annotated[bytes | tuple[Piece, ...], Data()]


@dataclass(frozen=True)
class Open(Message):
    """Opens a batch whose members every node can draw itself.

    ``episodes`` is 0 for the generation's population, otherwise the number of episodes of an evaluation of its center.
    """

    batch: UInt63
    generation: UInt32
    episodes: UInt32
    theta_hash: ThetaHash


@dataclass(frozen=True)
class Vectors(Message):
    """Opens a batch and describes its members; see `pyes.algorithms.population` and `pyes.episodes.batch`.

    Attributes
    ----------
    bases : float32 (m, dim)
        Empty if each member has its own, which are sent with the grants as `Bases`.
    rows, offsets : int64 (n,)
    scales : float32 (n,)
    deviation : float32 (dim,) or None
    seeds : int64 (n, episodes)
    mean, inverse_std : float32 (observation_size,) or None
        Both or none.
    """

    batch: UInt63
    generation: UInt32
    theta_hash: ThetaHash
    bases: Annotated[NDArray[np.float32], Array(("<f4",), 2)]
    rows: Integers
    offsets: Integers
    scales: Vector
    deviation: OptionalVector
    seeds: Annotated[NDArray[np.int64], Array(("<i8",), 2)]
    limit: UInt63
    mean: OptionalVector
    inverse_std: OptionalVector
    statistics_stride: UInt32
    evaluation: Flag
    reward_min: Real

    def check(self) -> None:
        """Reject arrays that do not describe a population."""
        n = len(self.rows)
        for name in ("offsets", "scales", "seeds"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"{name}: got {len(getattr(self, name))} rows, expected {n} as in rows")
        bases = len(self.bases) or n
        if n and not (self.rows.min() >= 0 and self.rows.max() < bases and self.offsets.min() >= 0):
            raise ValueError(f"rows, offsets: got numbers out of bounds, expected rows below {bases}")
        if self.deviation is not None and len(self.deviation) != self.bases.shape[1]:
            raise ValueError(f"deviation: got {len(self.deviation)} numbers, expected {self.bases.shape[1]}")
        if _size(self.mean) != _size(self.inverse_std):
            raise ValueError("mean, inverse_std: got two lengths, expected both or none, of equal length")


@dataclass(frozen=True)
class Bases(Message):
    """The bases of some members of a batch, which are about to be granted: float32 (n, dim)."""

    batch: UInt63
    ranges: Ranges
    bases: Annotated[NDArray[np.float32], Array(("<f4",), 2)]

    def check(self) -> None:
        """Reject another number of vectors than the ranges have members."""
        _check_rows("bases", self.bases, ranges.count(self.ranges))


@dataclass(frozen=True)
class Grant(Message):
    """Tells the node to evaluate these members of the batch.

    Attributes
    ----------
    refill_at : int
        Members, beyond one for each of the node's workers, with which it gets more once it has sent its results.
    gather : float
        Seconds for which it gathers results at least.
    """

    batch: UInt63
    ranges: Ranges
    refill_at: UInt32
    gather: Real

    def check(self) -> None:
        """Reject a time in which a node would do nothing but look for results."""
        least, most = _GATHER_SECONDS
        if not least <= self.gather <= most:
            raise ValueError(f"gather: got {self.gather:g} seconds, expected {least:g} to {most:g}")


@dataclass(frozen=True)
class Withdraw(Message):
    """The node need not evaluate these members any more."""

    batch: UInt63
    ranges: Ranges


@dataclass(frozen=True)
class Granted(Message):
    """All members of the batch are granted: nobody waits for a node's results as long as it runs others."""

    batch: UInt63


@dataclass(frozen=True)
class Close(Message):
    """The batch is over."""

    batch: UInt63


@dataclass(frozen=True)
class End(Message):
    """The job is over; the node waits for another one."""


@dataclass(frozen=True)
class Report(Message):
    """The state of the head and its nodes, as JSON."""

    text: Annotated[str, Text(2**24)]


# --- either way ---


@dataclass(frozen=True)
class Beat(Message):
    """A sign of life; ``time`` is the sender's clock."""

    time: Real


@dataclass(frozen=True)
class Echo(Message):
    """The answer to a `Beat`, with its time."""

    time: Real


#: Numbers of messages in the encoding.
KINDS: dict[int, type[Message]] = {
    1: Hello,
    2: Watch,
    3: Ready,
    4: Unable,
    5: Done,
    6: Log,
    7: Leave,
    8: Workers,
    33: Welcome,
    34: Refused,
    35: Job,
    36: Learn,
    37: Snapshot,
    38: Open,
    39: Vectors,
    40: Bases,
    41: Grant,
    42: Withdraw,
    43: Close,
    44: End,
    45: Report,
    46: Granted,
    65: Beat,
    66: Echo,
}


def _check_members(message: Done | Learn, n: int) -> None:
    """Reject arrays that have another number of rows than there are members, and unknown statuses."""
    for name in ("returns", "lengths", "status", "behaviours"):
        _check_rows(name, getattr(message, name), n)
    if message.status is not None and message.status.max(initial=0) > max(Status):
        raise ValueError(f"status: got {message.status.max()}, expected at most {max(Status):d}")


def _check_rows(name: str, array: NDArray[Any] | None, n: int) -> None:
    if array is not None and len(array) != n:
        raise ValueError(f"{name}: got {len(array)} rows for the {n} members")


def _size(array: NDArray[Any] | None) -> int | None:
    return None if array is None else len(array)
