"""One node, as the head sees it: its connection, its speed, and what it knows."""

import asyncio
import contextlib
import math
import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.remote import wire
from pyes.remote.pace import Pace
from pyes.remote.standing import Place, Standing
from pyes.remote.wire.protocol import HeadSide, State
from pyes.run.journal import Generation
from pyes.run.metrics import NodeRow

_MOST_WAITING = 2**22  # bytes that may wait to be sent to a node that enters another batch


@dataclass(frozen=True)
class Figures:
    """What a node has done since it was let in."""

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
    """A node that has been let in.

    Attributes
    ----------
    number : int
        Of the connection.
    below : WriteTransport
        The connection's own transport, below TLS.
    standing : Standing
        Whether the node is in step with the run.
    unable : str
        Why it cannot take part in the job; empty if it can.
    known : bool (n,)
        Members of the last generation's batch whose results are those that this node reported.
    heard : float
        Monotonic seconds of the last sign of life.
    since : float
        Monotonic seconds at which it was first ready; 0: not yet.
    """

    number: int
    hello: wire.Hello
    side: HeadSide
    writer: asyncio.StreamWriter
    below: asyncio.WriteTransport
    pace: Pace
    standing: Standing = field(default_factory=Standing)
    unable: str = ""
    known: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    heard: float = field(default_factory=time.monotonic)
    since: float = 0.0
    members: int = 0
    timesteps: int = 0
    busy_seconds: float = 0.0
    told: Figures = Figures()
    _lessons: int = 0  # bytes of them sent since the connection last kept up, or since the last snapshot

    @property
    def figures(self) -> Figures:
        """What the node has done up to now."""
        side = self.side
        return Figures(self.members, self.timesteps, self.busy_seconds, side.bytes_sent, side.bytes_received)

    def row(self, generation: int, seconds: float) -> NodeRow:
        """Return what the node has done since the last row, for a generation that took so many seconds."""
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
        """Return how the node is doing, as JSON values."""
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
        if self.standing.in_step:
            return "at work"
        return "ready" if self.standing.ready else self.unable or "preparing"

    @property
    def congested(self) -> bool:
        """Whether so much waits to be sent that more would only pile up."""
        waiting = self.below.get_write_buffer_size()
        if self.writer.transport is not self.below:
            waiting += self.writer.transport.get_write_buffer_size()
        return waiting > _MOST_WAITING

    @property
    def name(self) -> str:
        """The name that the node has given itself."""
        return self.hello.node

    def send(self, message: wire.Message, encoded: bytes | None = None) -> None:
        """Send a message, which may be encoded already; not if the connection is closed or the node was sent away."""
        if self.side.state is not State.OVER and not self.writer.is_closing():
            self.writer.write(self.side.send(message, encoded))

    def teach(self, lesson: wire.Learn, encoded: bytes | None = None) -> None:
        """Send the record of a generation, unless too much waits to be sent: then the node needs a snapshot later."""
        if not self.congested:
            self._lessons = 0
        if self._lessons > _MOST_WAITING:
            self.standing.miss()
            return
        before = self.side.bytes_sent
        self.send(lesson, encoded)
        self._lessons += self.side.bytes_sent - before

    def correct(self, place: Place, packed_state: bytes) -> None:
        """Send the state that the node should be in."""
        self._lessons = 0
        self.send(wire.Snapshot(self.standing.correct(place), *place, packed_state))

    async def farewell(self) -> None:
        """Close the connection when all has been sent."""
        with contextlib.suppress(OSError):
            await self.writer.drain()
            self.writer.close()
            await self.writer.wait_closed()

    def leave(self) -> None:
        """Close the connection at once."""
        self.writer.transport.abort()


def lesson(record: Generation, members: NDArray[np.int64]) -> wire.Learn:
    """Return the record of a generation with the results of these members alone."""
    status = record.status[members]
    behaviours = record.behaviours
    return wire.Learn(
        generation=record.generation,
        theta_hash=record.theta_hash,
        ranges=wire.ranges_of(members),
        returns=record.returns[members],
        lengths=record.lengths[members],
        status=status if status.any() else None,
        observations=record.observations,
        sums=record.sums,
        behaviours=None if behaviours is None else behaviours.reshape(len(record.returns), -1)[members],
        agreement=math.nan if record.agreement is None else record.agreement,
    )
