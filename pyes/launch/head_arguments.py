"""The head's part of a launch: its address for nodes, and its arguments in addition to the user's.

Owns the arguments of ``pyes train`` that a launch sets. Starts nothing.
"""

import socket

from pyes.errors import ConfigError
from pyes.system import addresses
from pyes.system.addresses import Address

_OURS = ("cluster", "cluster.name", "cluster.listen", "cluster.key")


def split(training: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments of ``train`` in two parts, between which a launch inserts its own.

    Hydra requires all overrides in one place, and the last one of a key counts.

    Raises
    ------
    ConfigError
        The command is not ``train``, or it sets what a launch sets.
    """
    if training[:1] != ["train"]:
        got = " ".join(training) or "nothing"
        raise ConfigError(f"launch: got {got} to run, expected at the end: -- train [KEY=VALUE ...]")
    rest = training[1:]
    for text in rest:
        key = text.lstrip("+~").partition("=")[0]
        if key in _OURS:
            raise ConfigError(f"{key}: pyes launch sets it; leave it out (see pyes launch --help for port and key)")
    first = next((i for i, text in enumerate(rest) if "=" in text and not text.startswith("-")), len(rest))
    return rest[:first], rest[first:]


def values(arguments: list[str], key: str) -> list[str]:
    """Return what arguments set a key to, the one that counts last."""
    return [text.partition("=")[2] for text in arguments if text.lstrip("+").startswith(f"{key}=")]


def overrides(listen: Address, key: str) -> list[str]:
    """Return the overrides that make ``pyes train`` the head of nodes."""
    quoted = key.replace("'", "\\'").replace("${", "\\${")
    return ["cluster=socket", f"cluster.listen='{listen}'", f"cluster.key='{quoted}'"]


def address_for_nodes() -> str:
    """Return this machine's outgoing address, or its name without a route."""
    return addresses.own_host("192.0.2.1") or socket.gethostname()  # an address that no machine has (RFC 5737)


def listening(address: Address) -> Address:
    """Return where the head listens for nodes that use ``address``: at all addresses, unless it is loopback."""
    if address.is_loopback:
        return address
    return Address("::" if addresses.is_ipv6(address.host) else "0.0.0.0", address.port)
