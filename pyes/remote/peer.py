"""The head's view of one node: its connection, its speed, and whether it is in step."""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pyes.remote import wire
from pyes.remote.pace import Pace
from pyes.remote.standing import Place, Standing
from pyes.remote.wire.protocol import HeadSide, State
from pyes.run.journal import Generation
from pyes.run.metrics import NodeRow

_MOST_WAITING = 2**22  # maximum unsent bytes of a node that enters another batch
_CHUNK = 2**18  # bytes of a long message that are given to the connection at a time


@dataclass(frozen=True)
class Figures:
    """Totals of a node since it was accepted."""

    members: int = 0
    timesteps: int = 0
    busy_seconds: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0

    def since(self, before: "Figures") -> "Figures":
        """Return the difference from earlier figures."""
        return Figures(*(getattr(self, each.name) - getattr(before, each.name) for each in fields(self)))


@dataclass(eq=False)
class Peer:
    """An accepted node.

    Attributes
    ----------
    number : int
        Number of the connection.
    below : WriteTransport
        The connection's own transport, below TLS.
    standing : Standing
        Whether the node is in step with the run.
    unable : str
        Why it cannot take part in the job; empty if it can.
    heard : float
        Monotonic time at which the node was last heard.
    since : float
        Monotonic time at which it was first ready; 0 before.
    leaving : bool
        The node takes no more members.
    error : str
        The last error that it has reported of a member.
    contradicted : int
        Members that failed on it and not on another node, since the last result of its own that counted.
    """

    number: int
    hello: wire.Hello
    side: HeadSide
    writer: asyncio.StreamWriter
    below: asyncio.WriteTransport
    pace: Pace
    standing: Standing = field(default_factory=Standing)
    unable: str = ""
    heard: float = field(default_factory=time.monotonic)
    since: float = 0.0
    leaving: bool = False
    error: str = ""
    contradicted: int = 0
    members: int = 0
    timesteps: int = 0
    busy_seconds: float = 0.0
    told: Figures = Figures()
    _lessons: int = 0  # bytes of records sent since the connection was last not congested, or since the last snapshot
    _outbox: deque[wire.Piece] = field(default_factory=deque)  # what is long and being sent, and what follows it
    _sender: "asyncio.Task[None] | None" = None
    _large: bool = False  # whether the last snapshot was

    @property
    def figures(self) -> Figures:
        """The node's totals up to now."""
        side = self.side
        return Figures(self.members, self.timesteps, self.busy_seconds, side.bytes_sent, side.bytes_received)

    def row(self, generation: int, seconds: float) -> NodeRow:
        """Return the node's metrics since the last row, for a generation whose evaluation took ``seconds``."""
        before, self.told = self.told, self.figures
        new, workers = self.told.since(before), self.pace.workers
        return NodeRow(
            generation=generation,
            node=self.name,
            workers=workers,
            members=new.members,
            timesteps=new.timesteps,
            steps_per_second=new.timesteps / seconds,
            idle_fraction=max(0.0, 1.0 - new.busy_seconds / (workers * seconds)),
            round_trip=self.pace.round_trip,
            bytes_sent=new.bytes_sent,
            bytes_received=new.bytes_received,
        )

    def report(self, now: float) -> dict[str, Any]:
        """Return the node's state as JSON values."""
        return {
            "node": self.name,
            "state": self._state,
            "workers": self.pace.workers,
            "cores": self.hello.cores,
            "memory": self.hello.memory,
            "round_trip": self.pace.round_trip,
            "heard": now - self.heard,
            "seconds": now - self.since if self.since else 0.0,
            **asdict(self.figures),
        }

    @property
    def _state(self) -> str:
        if self.leaving:
            return "leaving"
        if self.standing.in_step:
            return "at work"
        return "ready" if self.standing.ready else self.unable or "preparing"

    @property
    def available(self) -> bool:
        """Whether it may enter a batch: one that loads a large snapshot may when it has said that it is done."""
        loads = self._large and not self.standing.answered
        return self.standing.ready and not self.leaving and not loads and not self.congested

    @property
    def congested(self) -> bool:
        """Whether too many bytes wait to be sent, or none can be any more."""
        if self.writer.is_closing():  # asyncio's TLS, once it is closed, cannot say what waits
            return True
        waiting = self.below.get_write_buffer_size() + sum(map(len, self._outbox))
        if self.writer.transport is not self.below:
            waiting += self.writer.transport.get_write_buffer_size()
        return waiting > _MOST_WAITING

    @property
    def sending(self) -> bool:
        """Whether something long is being sent."""
        return bool(self._outbox)

    @property
    def name(self) -> str:
        """The name that the node has given itself."""
        return self.hello.node

    def send(self, message: wire.Message, encoded: bytes | None = None) -> None:
        """Send a message, possibly already encoded; does nothing if the connection is closed or the node refused."""
        if self.side.state is not State.OVER and not self.writer.is_closing():
            self._give([self.side.send(message, encoded)])

    def teach(self, lesson: wire.Learn, encoded: bytes | None = None) -> None:
        """Send the record of a generation, unless the connection is congested: then a snapshot will replace it."""
        if not self.congested:
            self._lessons = 0
        if self._lessons > _MOST_WAITING:
            self.standing.miss()
            return
        before = self.side.bytes_sent
        self.send(lesson, encoded)
        self._lessons += self.side.bytes_sent - before

    def correct(self, place: Place, packed_state: tuple[wire.Piece, ...]) -> None:
        """Send the state that the node should be in; its bytes are not copied if they are many."""
        self._lessons = 0
        if self.side.state is State.OVER or self.writer.is_closing():
            return
        pieces = self.side.send_pieces(wire.Snapshot(self.standing.correct(place), *place, packed_state))
        self._large = sum(map(len, pieces)) > _CHUNK
        self._give(pieces)

    def _give(self, pieces: Sequence[wire.Piece]) -> None:
        """Give bytes to the connection: what is long in parts, so that other nodes are heard meanwhile."""
        if not self._outbox and sum(map(len, pieces)) <= _CHUNK:
            self.writer.write(b"".join(pieces))
            return
        self._outbox += pieces
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        """Give the connection what waits, as fast as it is taken."""
        with contextlib.suppress(OSError):
            while self._outbox:
                piece = memoryview(self._outbox[0])
                for begin in range(0, len(piece), _CHUNK):
                    if not self.writer.is_closing():
                        self.writer.write(piece[begin : begin + _CHUNK])
                        await self.writer.drain()
                self._outbox.popleft()
        self._outbox.clear()
        self._sender = None

    async def farewell(self) -> None:
        """Close the connection after everything has been sent."""
        with contextlib.suppress(OSError):
            if self._sender is not None:
                await asyncio.wait([self._sender])
            await self.writer.drain()
            self.writer.close()
            await self.writer.wait_closed()

    def leave(self) -> None:
        """Close the connection immediately."""
        self.writer.transport.abort()


def lesson(record: Generation) -> wire.Learn:
    """Return the message with the record of a generation."""
    count = len(record.returns)
    return wire.Learn(
        generation=record.generation,
        theta_hash=record.theta_hash,
        returns=record.returns,
        lengths=record.lengths,
        status=record.status if record.status.any() else None,
        observations=record.observations,
        sums=record.sums,
        behaviours=None if record.behaviours is None else record.behaviours.reshape(count, -1),
        agreement=math.nan if record.agreement is None else record.agreement,
    )
