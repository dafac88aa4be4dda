"""Addresses as users write them: ``tcp://HOST:PORT``.

Owns their text form, and the address of this machine as seen from others. Opens no connection.
"""

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass

from pyes.errors import ConfigError

#: After which the next address of a name is tried beside one that does not answer, as RFC 8305 recommends.
NEXT_ADDRESS_SECONDS = 0.25
_ADDRESS = re.compile(
    r"tcp://(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<name>[\w-]{1,63}(\.[\w-]{1,63})*\.?)):(?P<port>\d{1,5})", re.ASCII
)


@dataclass(frozen=True)
class Address:
    """The address of a head.

    Attributes
    ----------
    host : str
        A name, an IPv4 address, or an IPv6 address without its brackets.
    port : int
        0 to 65535; 0 to listen at any free port.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; False for names that must be looked up."""
        ip = _ip(self.host)
        return self.host.lower() == "localhost" if ip is None else ip.is_loopback

    @property
    def local(self) -> "Address":
        """The address as seen from this machine (0.0.0.0 becomes 127.0.0.1)."""
        ip = _ip(self.host)
        if ip is None or not ip.is_unspecified:
            return self
        return Address("127.0.0.1" if ip.version == 4 else "::1", self.port)

    @property
    def named(self) -> "Address":
        """The address as seen from other machines that know this machine's name (0.0.0.0 becomes the name)."""
        ip = _ip(self.host)
        return Address(socket.gethostname(), self.port) if ip is not None and ip.is_unspecified else self


def cannot_listen(setting: str, where: object, error: OSError, taken: str) -> ConfigError:
    """Return the one-line error for an address that ``setting`` names, with ``taken`` to ask where it is in use."""
    hint = "expected an address of this machine, or 0.0.0.0 for all that it has"
    if error.errno == errno.EADDRINUSE:
        hint = taken
    elif error.errno == errno.EACCES:
        hint = "take a port above 1023"
    why = str(error.strerror).partition(" (")[0]  # asyncio and `create_server` add the address
    return ConfigError(f"{setting}: cannot listen at {where} ({why}); {hint}")


def parse(text: str) -> Address:
    """Read an address.

    Raises
    ------
    ConfigError
        It is not of the form tcp://HOST:PORT.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535 or (match["six"] and _ip(match["six"]) is None):
        raise ConfigError(
            f"address: got {text!r}, expected tcp://HOST:PORT, for example tcp://127.0.0.1:5555 or tcp://[::1]:5555"
        )
    return Address(match["six"] or match["name"], int(match["port"]))


def own_host(towards: str) -> str | None:
    """Return this machine's address for packets to a host, without sending any; None without a route."""
    try:
        family, kind, _, _, there = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)  # the kernel only chooses an interface
            return str(probe.getsockname()[0])
    except OSError:
        return None


def is_ipv6(host: str) -> bool:
    """Whether a host is an IPv6 address, or a name that has no other."""
    if ":" in host:
        return True
    try:
        found = {family for family, *_ in socket.getaddrinfo(host, 9, type=socket.SOCK_STREAM)}
    except OSError:  # of no name that this machine knows
        return False
    return found == {socket.AF_INET6}


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
