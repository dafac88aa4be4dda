"""A node's side of the wire against a head that a test plays."""

import asyncio
import contextlib
import socket

import pytest

from pyes import wire
from pyes.addresses import Address
from pyes.cluster import session as session_module
from pyes.cluster.session import Session
from pyes.protocol import HeadSide


@pytest.fixture
def hasty(monkeypatch):
    """Beats every hundredth of a second."""
    monkeypatch.setattr(session_module, "BEAT_SECONDS", 0.01)


def test_a_node_is_not_silent_while_it_receives_one_long_message(hasty):
    """The head's beats come behind it, so their echoes cannot be what shows that the node is there."""
    heard: list[wire.Message] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        side = HeadSide(2**16)
        with contextlib.closing(writer):
            heard.extend(side.receive(await reader.read(2**12)))
            writer.write(side.send(wire.Welcome("head")))
            long = side.send(wire.Snapshot(1, 0, "theta", bytes(2**16)))
            writer.write(long[: len(long) // 2])
            while sum(isinstance(each, wire.Beat) for each in heard) < 3:
                heard.extend(side.receive(await reader.read(2**12)))
            writer.write(long[len(long) // 2 :] + side.send(wire.End("job")))

    async def meet() -> None:
        server = await asyncio.start_server(play, "127.0.0.1", 0)
        async with server, asyncio.timeout(60.0):
            await Session(Address("127.0.0.1", port_of(server)), None, 1).run()

    asyncio.run(meet())
    assert {type(each) for each in heard} == {wire.Hello, wire.Beat}


def port_of(server: asyncio.Server) -> int:
    listening: socket.socket = server.sockets[0]
    return listening.getsockname()[1]
