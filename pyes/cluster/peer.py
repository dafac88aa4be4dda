"""One node, as the head sees it: its connection, its speed, and what it knows."""

import asyncio
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyes import wire
from pyes.protocol import HeadSide
from pyes.schedule import Pace


@dataclass
class Figures:
    """What a node has done since they were last taken."""

    members: int = 0
    timesteps: int = 0
    busy_seconds: float = 0.0


@dataclass(eq=False)
class Peer:
    """A node that has been let in.

    Attributes
    ----------
    number : int           of the connection
    ready : bool           its workers are there, for this job
    standing : (int, str)  the generation and the hash of theta that it last said it is at
    in_step : bool         it has learnt all that the head has
    corrections : int      snapshots sent to it in a row
    known : bool (n,)      members of the last generation's batch whose results it reported
    heard : float          monotonic seconds of the last sign of life
    """

    number: int
    hello: wire.Hello
    side: HeadSide
    writer: asyncio.StreamWriter
    pace: Pace
    ready: bool = False
    standing: tuple[int, str] = (0, "")
    in_step: bool = False
    corrections: int = 0
    known: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    heard: float = field(default_factory=time.monotonic)
    figures: Figures = field(default_factory=Figures)

    @property
    def name(self) -> str:
        """What the node calls itself."""
        return self.hello.node

    def send(self, message: wire.Message) -> None:
        """Send a message, if the connection still stands."""
        if not self.writer.is_closing():
            self.writer.write(self.side.send(message))

    def leave(self) -> None:
        """Close the connection at once."""
        self.writer.transport.abort()
