"""The door of a head: who is let in, and what is said to those who are not.

Owns the cluster's key and the log of refusals. Invariant: who passes has the key, where there is one, and is of
the same version, with kernels that come to the same.
"""

import asyncio
import logging
import socket
import ssl
import time

from pyes.errors import ProtocolError
from pyes.node import selftest
from pyes.remote import wire
from pyes.remote.wire import keys, protocol
from pyes.remote.wire.protocol import HeadSide
from pyes.system.lookup import version

logger = logging.getLogger(__name__)

_SECONDS = 60.0  # in which the same reason of the same host is logged once
_MOST_REASONS = 20  # of a host in that time
_MOST_HOSTS = 1000  # that are kept in mind


class Refusals:
    """Logs why somebody is refused: each reason of a host once a minute, and then that there are more."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[float, set[str]]] = {}  # since when, and what

    def log(self, host: str, reason: str) -> None:
        """Log a refusal, unless it was logged just now."""
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


HANDSHAKE_SECONDS = 10.0


class Door:
    """Lets connections in, or does not.

    Parameters
    ----------
    key : str or None    file with the cluster's key

    Raises
    ------
    ConfigError    it cannot be used
    """

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._context: ssl.SSLContext | None = None if key is None else keys.server_context(key)
        self.refusals = Refusals()

    async def greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, side: HeadSide
    ) -> wire.Hello | wire.Watch | None:
        """Wait for a greeting and answer it; return it, or None where the other end has left without one.

        Raises
        ------
        ProtocolError, ssl.SSLError    it is not let in
        """
        if self._key is not None and self._context is not None:
            await writer.start_tls(self._context)
            if not keys.same_certificate(writer.get_extra_info("ssl_object"), self._key):
                raise ProtocolError("it has another key")
        messages: list[wire.Message] = []
        while not messages:
            data = await reader.read(2**12)
            if not data:
                return None
            messages = side.receive(data)
        hello = messages[0]
        assert isinstance(hello, wire.Hello | wire.Watch)
        reason = protocol.check_hello(hello, version("pyes-rl"), selftest.digest())
        if reason is not None:
            writer.write(side.send(wire.Refused(reason)))
            await writer.drain()
            raise ProtocolError(reason)
        writer.write(side.send(wire.Welcome(socket.gethostname()[:100])))
        return hello
