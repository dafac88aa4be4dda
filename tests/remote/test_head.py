"""The head's part with nodes, where a real one cannot be made to fail."""

import asyncio
import logging
import socket
import struct
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace

import pytest

from pyes.errors import ClusterError, ConfigError
from pyes.remote.door import Door, listen
from pyes.remote.head import Head
from pyes.system.addresses import Address


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


def test_a_name_that_is_not_known_is_said_to_be_that():
    with pytest.raises(
        ConfigError, match=r"^cluster\.listen: cannot listen at tcp://no-such-host\.invalid:1 \("
    ) as caught:
        listen(Address("no-such-host.invalid", 1), "cluster.listen")
    assert "Unknown error" not in str(caught.value)
