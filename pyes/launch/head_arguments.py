"""The head's part of a launch: where nodes find it, and what it is told beside the user's own arguments.

Owns the arguments of ``pyes train`` that a launch sets. Starts nothing.
"""

import socket

from pyes.errors import ConfigError
from pyes.system.addresses import Address, own_host

_OURS = ("cluster", "cluster.name", "cluster.listen", "cluster.key")


def split(training: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments of ``train`` in two parts: before and after the place where a launch puts its own.

    Hydra wants all overrides in one place, and the last one of a key counts.

    Raises
    ------
    ConfigError    it is no ``train``, or it says what a launch has to say
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


def overrides(listen: Address, key: str) -> list[str]:
    """Return what makes ``pyes train`` the head of nodes, in the grammar of Hydra's overrides."""
    quoted = key.replace("'", "\\'").replace("${", "\\${")
    return ["cluster=socket", f"cluster.listen='{listen}'", f"cluster.key='{quoted}'"]


def address_for_nodes() -> str:
    """Return this machine's address on its way to others; its name where it has no way out."""
    return own_host("192.0.2.1") or socket.gethostname()  # an address that is nobody's (RFC 5737)


def listening(address: Address) -> Address:
    """Return where a head listens that nodes find at ``address``: everywhere, unless only this machine can reach it."""
    if address.is_loopback:
        return address
    return Address("::" if ":" in address.host else "0.0.0.0", address.port)
