"""A copy of the run's state at a head, for nodes that lack it, and the records of the generations since.

Owns the threads in which the state is copied and packed: for millions of parameters that takes seconds, in which the
head must go on. Knows no connection. Invariant: the run's state is read before `copied` ends, and not afterwards.
"""

import asyncio
from typing import Any

from pyes.remote import wire
from pyes.remote.standing import Place
from pyes.run.journal import Generation
from pyes.run.state import RunState
from pyes.system import packing

_SMALL = 2**18  # bytes of a state


class StateCopy:
    """A copy of a state, made in the running event loop.

    Attributes
    ----------
    place : Place
    pieces : tuple of bytes-like or None
        The packed state; None while it is being made.
    offered : bool
        Whether the nodes that waited for it have been let in; the head drops it with the batch after that.
    records : list of Generation
        What follows it; kept by the head.
    copied, packed : Future
        End when the state has been copied, and when that has been packed.
    """

    def __init__(self, state: RunState, size: int) -> None:
        self.place: Place = state.generation, state.theta_hash
        self.pieces: tuple[wire.Piece, ...] | None = None
        self.offered = False
        self.copied: asyncio.Future[Any]
        self.packed: asyncio.Future[Any]
        self.records: list[Generation] = []
        loop = asyncio.get_running_loop()
        if size <= _SMALL:  # quicker than a thread is begun, and no batch can end meanwhile
            self.pieces, self.offered = tuple(packing.packed(state.state_dict())), True
            done: asyncio.Future[Any] = loop.create_future()
            done.set_result(None)
            self.copied = self.packed = done
            return
        self.copied = loop.create_task(asyncio.to_thread(state.state_dict))
        self.packed = loop.create_task(self._pack())

    async def _pack(self) -> None:
        self.pieces = tuple(await asyncio.to_thread(packing.packed, await self.copied))
