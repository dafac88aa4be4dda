"""The head's part with nodes, where a real one cannot be made to fail."""

import asyncio
import contextlib
import logging
import socket
import struct
import time
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace

import pytest

from pyes.errors import ClusterError, ConfigError
from pyes.remote import door as door_module
from pyes.remote import wire
from pyes.remote.door import Door, listen
from pyes.remote.head import Head
from pyes.remote.wire import keys
from pyes.remote.wire.protocol import NodeSide
from pyes.system.addresses import Address
from pyes.system.lookup import version


def test_results_that_cannot_be_delivered_end_the_wait_for_them():
    def results():
        raise MemoryError

    head = Head(Door(None), "here", print, "")
    batch = SimpleNamespace(future=Future(), results=results)
    asyncio.run(head._deliver(batch))
    with pytest.raises(ClusterError, match=r"the head failed \(MemoryError"):
        batch.future.result(0)
    assert head.failure is not None


def test_connections_that_break_before_they_are_accepted_do_not_fill_the_log(caplog: pytest.LogCaptureFixture):
    """Whoever reaches the port can make such ones: a check of the port once a second, a scanner."""
    door, handler = Door(None), SimpleNamespace(message_limit=lambda: 2**20)

    async def run() -> None:
        server = await asyncio.start_server(partial(door.serve, handler), "127.0.0.1", 0)
        async with server:
            for _ in range(50):
                _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(b"GET")
                await asyncio.sleep(0.001)
                reset = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                writer.transport.abort()
            await asyncio.sleep(0.1)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert 1 <= len(caplog.records) <= 3


def test_a_name_for_loopback_is_refused(monkeypatch):
    """As Debian gives a machine's own name."""
    create = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda _, **options: create(("127.0.0.1", 0), **options))
    with pytest.raises(ConfigError, match=r"takes here for 127\.0\.0\.1, which no other machine reaches; expected its"):
        listen(Address("here", 5555), "cluster.listen")


def test_a_name_that_is_not_known_is_said_to_be_that():
    with pytest.raises(
        ConfigError, match=r"^cluster\.listen: cannot listen at tcp://no-such-host\.invalid:1 \("
    ) as caught:
        listen(Address("no-such-host.invalid", 1), "cluster.listen")
    assert "Unknown error" not in str(caught.value)


def test_a_middle_without_a_key_does_not_end_the_head(tmp_path):
    """It adds a record to those of a node, which breaks the connection after the handshake."""

    def node(port: int) -> None:
        context = keys.of_node(tmp_path / "head.node").context
        plain = socket.create_connection(("127.0.0.1", port))
        with contextlib.suppress(OSError), context.wrap_socket(plain, server_hostname="head") as encrypted:
            encrypted.recv(10)

    def middle(listening: socket.socket, port: int) -> None:
        inside, _ = listening.accept()
        with inside, socket.create_connection(("127.0.0.1", port)) as outside:
            outside.sendall(inside.recv(2**16))  # the beginning of a handshake
            inside.sendall(outside.recv(2**16))
            time.sleep(0.1)
            outside.sendall(inside.recv(2**16) + b"\x17\x03\x03\x00\x20" + bytes(32))
            outside.recv(2**16)

    async def run() -> ClusterError | None:
        head = Head(Door(str(tmp_path / "head")), "here", print, "")
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        await head.serve(listening, None)
        with socket.create_server(("127.0.0.1", 0)) as between:
            parts = (middle, between, port), (node, between.getsockname()[1])
            await asyncio.gather(*(asyncio.to_thread(*part) for part in parts))
            await asyncio.sleep(0.1)
        await head.end()
        return head.failure

    keys.generate(tmp_path / "head")
    assert asyncio.run(run()) is None


def test_connections_wait_where_too_many_shake_hands_at_once(tmp_path, monkeypatch):
    """What is sent meanwhile is not lost."""
    monkeypatch.setattr(door_module, "_MOST_GREETED", 1)
    keys.generate(tmp_path / "head")
    handler = SimpleNamespace(message_limit=lambda: 2**20, report=lambda: wire.Report("{}"))

    async def run() -> bytes:
        door = Door(str(tmp_path / "head"))
        server = await asyncio.start_server(partial(door.serve, handler), "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        async with server:
            _, idle = await asyncio.open_connection(*address)
            await asyncio.sleep(0.05)
            context = keys.of_node(tmp_path / "head.node").context
            waits = asyncio.create_task(asyncio.open_connection(*address, ssl=context))
            await asyncio.sleep(0.05)
            assert not waits.done()
            idle.transport.abort()
            reader, writer = await waits
            writer.write(NodeSide(2**20).send(wire.Watch(wire.PROTOCOL, version("pyes-rl"))))
            said = await reader.read()
            writer.close()
            await writer.wait_closed()
            return said

    assert asyncio.run(run())
