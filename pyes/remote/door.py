"""The door of a head: accepts or refuses connections.

Owns the cluster's key, the handshake and the log of refusals. Knows nothing of batches: it passes the messages of an
accepted node to a `Handler`. Invariant: an accepted node has the nodes' key, if a key is used, and the head's version,
with kernels that give the same numbers.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from typing import Any, Protocol

import numpy as np

from pyes.errors import ConfigError, ProtocolError, PyesError
from pyes.node import selftest
from pyes.remote import wire
from pyes.remote.pace import Pace
from pyes.remote.peer import Peer
from pyes.remote.session import keep_alive
from pyes.remote.wire import keys, protocol
from pyes.remote.wire.protocol import HeadSide
from pyes.system import addresses
from pyes.system.lookup import version

logger = logging.getLogger(__name__)

_SECONDS = 60.0  # in which a reason is logged once per host
_MOST_REASONS = 20  # logged per host in that time
_MOST_HOSTS = 1000  # whose reasons are stored
_HANDSHAKE_SECONDS = 10.0
_MOST_GREETED = 1000  # handshakes of TLS at a time: each takes 0.3 MB of buffers before a key is shown


class Refusals:
    """Logs why connections are refused: each reason once per minute and host, up to a maximum number of reasons."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[float, set[str]]] = {}  # for each host: begin of its minute, and its reasons

    def log(self, host: str, reason: str) -> None:
        """Log a refusal, unless it was logged within the last minute."""
        now = time.monotonic()
        begun, said = self._said.get(host, (now, set()))
        if now - begun >= _SECONDS:
            begun, said = now, set()
        if reason in said or len(said) > _MOST_REASONS:
            return
        if len(self._said) >= _MOST_HOSTS:
            self._said.clear()
        said.add(reason)
        self._said[host] = begun, said
        more = len(said) > _MOST_REASONS
        logger.warning("refused %s: %s", host, "and more often this minute, for other reasons" if more else reason)


class Handler(Protocol):
    """Handles accepted nodes; see `pyes.remote.head.Head`."""

    def message_limit(self) -> int:
        """Return the maximum size in bytes of a node's message."""
        ...

    def report(self) -> wire.Report:
        """Return the state of the head and its nodes."""
        ...

    def welcome(self, peer: Peer) -> None:
        """Add an accepted node."""
        ...

    def take(self, peer: Peer, message: wire.Message) -> None:
        """Handle a message of a node."""
        ...

    def lose(self, peer: Peer) -> None:
        """Remove a node whose connection has ended."""
        ...


class Door:
    """Accepts or refuses connections.

    Parameters
    ----------
    key : str or None
        The head's key file.

    Attributes
    ----------
    gone : int64 (2,)
        Bytes sent and received over connections that have ended, without TLS.

    Raises
    ------
    ConfigError
        The key cannot be used.
    """

    def __init__(self, key: str | None) -> None:
        self._credentials = None if key is None else keys.of_head(key)
        self._connections = 0
        self._greeting = asyncio.Semaphore(_MOST_GREETED)
        self.refusals = Refusals()
        self.gone = np.zeros(2, np.int64)

    async def serve(self, handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection from begin to end."""
        host = str((writer.get_extra_info("peername") or ["?"])[0])
        side = HeadSide(handler.message_limit())
        below = writer.transport  # the transport below TLS
        hello = None
        try:
            keep_alive(writer)
            hello = await self._greeted(handler, side, reader, writer)
            if hello is not None:
                self._connections += 1
                pace = Pace(max(1, hello.workers), relay=hello.relay)
                await _listen(handler, Peer(self._connections, hello, side, writer, below, pace), reader)
        except ssl.SSLError as error:
            self.refusals.log(host, f"it does not have the nodes' key of this cluster ({error.reason})")
        except PyesError as error:
            self.refusals.log(host, str(error))
        except OSError as error:
            why = error.strerror or type(error).__name__
            if hello is None:  # of whoever reaches the port, who must not fill the log
                self.refusals.log(host, f"the connection broke ({why})")
            else:
                logger.info("connection with %s: %s", host, why)
        except asyncio.CancelledError:  # the run is over; asyncio would log it as an error
            pass
        except Exception as error:
            if hello is not None:
                raise
            self.refusals.log(host, f"{type(error).__name__}: {error}")  # whoever it is must not end the run
        finally:
            self.gone += (side.bytes_sent, side.bytes_received)
            writer.transport.abort()

    async def _greeted(
        self, handler: Handler, side: HeadSide, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> wire.Hello | None:
        """Greet a connection when there is room for it; see `_greet`."""
        if self._credentials is None:
            return await self._greet(handler, side, reader, writer)
        transport: Any = writer.transport
        transport.pause_reading()  # what arrives before TLS begins would be lost
        async with self._greeting:
            return await self._greet(handler, side, reader, writer)

    async def _greet(
        self, handler: Handler, side: HeadSide, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> wire.Hello | None:
        """Shake hands; return a node's greeting, or None without a greeting or after sending a watcher its report.

        Raises
        ------
        ProtocolError, ssl.SSLError
            The connection is refused.
        """
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                if self._credentials is not None:
                    await writer.start_tls(self._credentials.context)
                    if not self._credentials.recognize(writer.get_extra_info("ssl_object")):
                        raise ProtocolError("it has another key")
                greeting = await _first_message(side, reader)
                if greeting is None:
                    return None
                await self._admit(greeting, side, writer)
                if isinstance(greeting, wire.Hello):
                    return greeting
                writer.write(side.send(handler.report()))
                writer.close()
                await writer.wait_closed()  # otherwise unsent bytes would be lost
                return None
        except TimeoutError as error:
            raise ProtocolError(f"no handshake within {_HANDSHAKE_SECONDS:g} s") from error

    async def _admit(self, greeting: wire.Hello | wire.Watch, side: HeadSide, writer: asyncio.StreamWriter) -> None:
        """Answer a greeting; raise ProtocolError if it is refused."""
        reason = protocol.check_hello(greeting, version("pyes-rl"), selftest.digest())
        if reason is not None:
            writer.write(side.send(wire.Refused(reason)))
            await writer.drain()
            raise ProtocolError(reason)
        writer.write(side.send(wire.Welcome()))


def listen(address: addresses.Address, setting: str) -> socket.socket:
    """Return a socket that listens at an address, with as many connections as this process may have.

    Raises
    ------
    ConfigError
        The address, which ``setting`` names, is used or not of this machine.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listening = socket.create_server((address.host, address.port), family=family, backlog=4096)
    except OSError as error:
        taken = "is another head running there? take another port (a launch: --port P)"
        raise addresses.cannot_listen(setting, address, error, taken) from error
    bound = addresses.Address(*listening.getsockname()[:2])
    if bound.is_loopback and not address.is_loopback:
        listening.close()
        raise ConfigError(
            f"{setting}: this machine takes {address.host} for {bound.host}, which no other machine reaches; "
            f"expected its address, or tcp://0.0.0.0:{address.port} for all that it has"
        )
    return listening


async def _first_message(side: HeadSide, reader: asyncio.StreamReader) -> wire.Hello | wire.Watch | None:
    """Return the first message of the other end; None if it closes the connection without one."""
    while data := await reader.read(2**12):
        for message in side.receive(data):
            assert isinstance(message, wire.Hello | wire.Watch)  # the protocol allows no others here
            return message
    return None


async def _listen(handler: Handler, peer: Peer, reader: asyncio.StreamReader) -> None:
    """Pass on the messages of a node until its connection ends."""
    handler.welcome(peer)
    try:
        while data := await reader.read(2**18):
            peer.heard = time.monotonic()
            for message in peer.side.receive(data):
                handler.take(peer, message)
    finally:
        handler.lose(peer)
