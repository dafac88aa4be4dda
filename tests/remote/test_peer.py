"""What the head sends to a node with a congested connection, and connections that are lost or come too late."""

import asyncio
import gc
import socket
from types import SimpleNamespace

import numpy as np
import pytest
from hosts import hello

from pyes.remote import wire
from pyes.remote.door import Door
from pyes.remote.head import Head
from pyes.remote.pace import Pace
from pyes.remote.peer import Peer
from pyes.remote.wire import keys
from pyes.remote.wire.protocol import HeadSide, NodeSide

LIMIT = 2**22


def test_lessons_do_not_pile_up_without_end():
    """A node that takes nothing in is sent some, and once it is back, the state instead of those that it missed."""
    peer, waiting = _peer()
    peer.standing.enter()
    waiting.bytes = 2 * LIMIT
    lesson = _lesson(50_000)
    for _ in range(100):
        peer.teach(lesson)
    assert LIMIT < peer.side.bytes_sent < LIMIT + 10**6
    assert not peer.standing.in_step

    waiting.bytes = 0
    peer.correct((3, "ab12"), (bytes(100),))
    peer.standing.enter()
    waiting.bytes = 2 * LIMIT  # that snapshot
    peer.teach(lesson)
    assert peer.standing.in_step


def test_a_node_that_keeps_up_gets_all_lessons():
    peer, _ = _peer()
    peer.standing.enter()
    before, lesson = peer.side.bytes_sent, _lesson(50_000)
    for _ in range(30):
        peer.teach(lesson)
    assert peer.side.bytes_sent - before == 30 * len(wire.encode(lesson))
    assert peer.standing.in_step


def test_a_connection_that_is_lost_under_tls_takes_no_lesson_and_raises_nothing(tmp_path):
    """Until its reader notices, the node is still there; asyncio's transport has forgotten its protocol by then."""
    key = keys.generate(tmp_path / "key")

    async def lose() -> None:
        writers = []
        server = await asyncio.start_server(
            lambda reader, writer: writers.append(writer), "127.0.0.1", 0, ssl=keys.of_head(tmp_path / "key").context
        )
        port = server.sockets[0].getsockname()[1]
        _, other = await asyncio.open_connection("127.0.0.1", port, ssl=keys.of_node(key).context)
        while not writers:
            await asyncio.sleep(0.01)
        peer, _ = _peer(writers[0])
        peer.standing.enter()
        for _ in range(2):  # as asyncio does when the other end resets the connection
            writers[0].transport.close()
        assert not peer.available
        before = peer.side.bytes_sent
        peer.teach(_lesson(5))
        assert peer.side.bytes_sent == before
        other.transport.abort()
        server.close()

    asyncio.run(lose())


@pytest.mark.slow
def test_connections_that_arrive_as_the_head_ends_are_closed():
    """Their tasks have not begun then: a warning of a socket that nobody has closed would fail this test."""

    async def end() -> list[socket.socket]:
        head = Head(Door(None), "tcp://127.0.0.1", print, "")
        await head.serve(listening, None)
        await asyncio.sleep(0)
        clients = [socket.create_connection(listening.getsockname()) for _ in range(3)]
        for _ in range(2):  # accepted, and no more
            await asyncio.sleep(0)
        await head.end()
        return clients

    with socket.create_server(("127.0.0.1", 0)) as listening:
        clients = asyncio.run(end())
        gc.collect()
        for client in clients:
            with client:
                client.settimeout(5)
                assert client.recv(1) == b""


def test_a_node_that_comes_as_the_head_ends_is_not_told_its_job():
    """It would prepare for it, and be cut off; so it waits for the next head instead."""
    clients: list[socket.socket] = []

    async def end() -> None:
        head = Head(Door(None), "tcp://127.0.0.1", print, "")
        await head.serve(listening, None)
        head.begin_job(SimpleNamespace(told=wire.Job("job", {}, "replay"), message_limit=2**20))

        async def drain() -> None:
            """Let another node come while the end waits for this one."""
            clients.append(socket.create_connection(listening.getsockname()))
            clients[0].sendall(node.send(hello()))
            while head.expected < 2:
                await asyncio.sleep(0)

        connection = {"write": lambda data: None, "close": lambda: None, "wait_closed": lambda: asyncio.sleep(0)}
        slow, _ = _peer(
            SimpleNamespace(transport=SimpleNamespace(), drain=drain, is_closing=lambda: False, **connection)
        )
        head.welcome(slow)
        await head.end()

    node, said = NodeSide(2**20), b""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asyncio.run(end())
    with clients[0] as client:
        client.settimeout(5)
        while data := client.recv(2**16):
            said += data
    kinds = {type(message) for message in node.receive(said)}
    assert wire.Welcome in kinds
    assert wire.Job not in kinds


def _peer(writer=None):
    """Return a node whose number no connection has, and how much waits to be sent to it."""
    waiting = SimpleNamespace(bytes=0)
    transport = SimpleNamespace(get_write_buffer_size=lambda: waiting.bytes)
    writer = writer or SimpleNamespace(transport=transport, is_closing=lambda: False, write=lambda data: None)
    side = HeadSide(2**20)
    side.receive(wire.encode(hello()))
    side.send(wire.Welcome())
    return Peer(0, hello(), side, writer, transport, Pace(1)), waiting


def _lesson(members):
    returns, lengths = np.zeros(members), np.zeros(members, np.uint8)
    return wire.Learn(3, "ab12", returns, lengths, None, 0, np.zeros(0), None, 0.0)
