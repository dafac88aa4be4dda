"""Messages that a node has received but not handled yet.

Owns which messages are superseded: those of a batch that has been closed, and those before a later snapshot of the
run's state. Does no input or output. Invariant: a dropped message would have changed nothing, and a slow node holds a
bounded number of bytes, since `room` makes its connection wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from pyes.remote import wire

_MOST_BYTES = 2**22  # of waiting messages, above which nothing is read from the connection

_OF_A_BATCH = (wire.Open, wire.Vectors, wire.Bases, wire.Grant, wire.Granted, wire.Withdraw)


class Inbox:
    """A queue of messages that drops superseded ones."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[wire.Message, int]] = deque()
        self._bytes = 0
        self._ended = False
        self._changed = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether reading from the connection should pause."""
        return self._bytes > _MOST_BYTES

    def put(self, message: wire.Message, size: int) -> None:
        """Add a message of ``size`` bytes."""
        if isinstance(message, wire.Close):
            dropped = self._drop(lambda each: isinstance(each, _OF_A_BATCH) and each.batch == message.batch)
            if any(isinstance(each, wire.Open | wire.Vectors) for each in dropped):
                return  # the batch was never opened here
        if isinstance(message, wire.Snapshot):
            self._drop(lambda each: isinstance(each, (wire.Learn, wire.Snapshot, *_OF_A_BATCH)))
        self._waiting.append((message, size))
        self._bytes += size
        self._changed.set()

    def end(self) -> None:
        """Drop the messages about batches, as the connection has ended; after the others, `get` returns None."""
        self._ended = True
        self._drop(lambda each: isinstance(each, (wire.Close, *_OF_A_BATCH)))
        self._changed.set()

    async def get(self) -> wire.Message | None:
        """Wait for the next message and remove it; None after the last one."""
        while not self._waiting:
            if self._ended:
                return None
            await self._change()
        message, size = self._waiting.popleft()
        self._bytes -= size
        self._changed.set()
        return message

    async def room(self) -> None:
        """Wait until reading from the connection may continue."""
        while self.full:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _drop(self, superseded: Callable[[wire.Message], bool]) -> list[wire.Message]:
        """Drop messages, and return them."""
        dropped = [each for each in self._waiting if superseded(each[0])]
        self._waiting = deque(each for each in self._waiting if not superseded(each[0]))
        self._bytes -= sum(size for _, size in dropped)
        self._changed.set()
        return [message for message, _ in dropped]
