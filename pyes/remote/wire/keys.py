"""The keys of a cluster: one file for its head, one for its nodes, and TLS between exactly these two.

Owns both files and the rules of verification: only TLS 1.3; each end shows its own certificate and accepts exactly the
other's. Head and nodes have different keys, so that a copied node's file lets a machine join but not act as a head.
Opens no connection. Host names and authorities are not used: the files are the only proof of identity.

    FILE         private key and certificate of the head, then those of the nodes, which it passes to nodes it starts
    FILE.node    private key and certificate of the nodes, then the certificate of the head

Both are in PEM format, with keys on P-256 and self-signed certificates.
"""

import os
import re
import ssl
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pyes.errors import ConfigError
from pyes.system.addresses import Address
from pyes.system.files import replacing

Role = Literal["head", "node"]

_BLOCK = re.compile(r"-----BEGIN (PRIVATE KEY|CERTIFICATE)-----[^-]+-----END \1-----")
#: Role of a file, given the kinds of its blocks in order.
_ROLES: dict[tuple[str, ...], Role] = {
    ("PRIVATE KEY", "CERTIFICATE", "PRIVATE KEY", "CERTIFICATE"): "head",
    ("PRIVATE KEY", "CERTIFICATE", "CERTIFICATE"): "node",
}
_END = b"-----END CERTIFICATE-----"
_LONGEST = 2**16  # maximum bytes read from a key file
#: Validity of certificates: clocks differ and keys are not renewed. The end means "no end" (RFC 5280, 4.1.2.5).
_FROM, _UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


#: What to do where there is no key.
_WHERE: dict[Role, str] = {
    "head": "give another with cluster.key=FILE (new: pyes keygen -o FILE), start by pyes launch, which makes its own, "
    "or do without other machines: cluster=local",
    "node": "on the head, pyes keygen -o FILE makes FILE and, for nodes, FILE.node",
}
#: What to do about a head that has another key.
ADVICE = "take the .node file that was made with the head's key"


def check_needed(address: Address, key: str | None) -> None:
    """Reject an address beyond this machine without a key, since any host that answers could give commands."""
    if key is None and not address.is_loopback:
        raise ConfigError(
            f"{address}: expected --key FILE with it (the head's pyes keygen writes FILE.node), "
            "or tcp://127.0.0.1:PORT for a head on this machine"
        )


def node_path(head: str | Path) -> Path:
    """Return the path of the nodes' file that belongs to a head's."""
    return Path(f"{head}.node")


# --- making keys


def generate(path: Path) -> Path:
    """Write the head's file and the nodes' beside it, readable only by their owner; return the path of the nodes' file.

    Raises
    ------
    ConfigError
        One of the files already exists, or cannot be written.
    """
    node = node_path(path)
    for each in (path, node):
        if os.path.lexists(each):
            raise ConfigError(
                f"{each} exists already; choose another name: a new key shuts out every machine with the old one"
            )
    data = new()
    _write(node, node_part(data))
    try:
        _write(path, data)
    except BaseException:
        node.unlink(missing_ok=True)
        raise
    return node


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as beside:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)


def new() -> bytes:
    """Return the content of a head's file with new keys."""
    return _new_pair("head") + _new_pair("node")


def _new_pair(role: Role) -> bytes:
    """Return a private key and its self-signed certificate, which is valid for only one end of TLS."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    usage = {"head": ExtendedKeyUsageOID.SERVER_AUTH, "node": ExtendedKeyUsageOID.CLIENT_AUTH}
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"pyes {role}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage[role]]), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private + certificate.public_bytes(encoding)


def node_part(head: bytes) -> bytes:
    """Return the content of the nodes' file that belongs to the content of a head's file."""
    _, certificate, private, own = _blocks(head.decode())
    return "\n".join((private, own, certificate, "")).encode()


# --- reading keys


@dataclass(frozen=True)
class Credentials:
    """What one end needs for TLS with the other.

    Attributes
    ----------
    context : ssl.SSLContext
        Shows this end's certificate, and trusts the other's.
    other : bytes
        The other end's certificate, as DER.
    """

    context: ssl.SSLContext
    other: bytes

    def recognize(self, connection: ssl.SSLObject | ssl.SSLSocket) -> bool:
        """Return whether the other end has shown its certificate in the handshake."""
        try:
            return connection.getpeercert(binary_form=True) == self.other
        except ValueError:  # the connection broke in the meantime
            return False


def of_head(path: str | Path) -> Credentials:
    """Return the credentials of a head from its key file.

    Raises
    ------
    ConfigError
        There is no such file, it is not a head's, or others can read it.
    """
    credentials = _credentials(Path(path), "head", ssl.PROTOCOL_TLS_SERVER)
    credentials.context.num_tickets = 0  # no session resumption: every connection shows its certificate
    return credentials


def of_node(path: str | Path) -> Credentials:
    """Return the credentials of a node from its key file; raises as `of_head`."""
    return _credentials(Path(path), "node", ssl.PROTOCOL_TLS_CLIENT)


def for_nodes(head: str | Path) -> bytes:
    """Return the content of the nodes' file that belongs to a head's file; raises as `of_head`."""
    return node_part("\n".join(_read(Path(head), "head")).encode())


def _credentials(path: Path, role: Role, protocol: int) -> Credentials:
    blocks = _read(path, role)
    other = blocks[-1]
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=other)
        context.load_cert_chain(path, password=lambda: "")  # never asks at the terminal
        return Credentials(context, ssl.PEM_cert_to_DER_cert(other))
    except (ssl.SSLError, ValueError) as error:
        raise _no_key(path) from error


def _read(path: Path, role: Role) -> list[str]:
    """Return the PEM blocks of a file of this role, which must be readable only by its owner."""
    try:
        # A pipe, which the number of a process that has ended may name by now, would be waited for.
        with open(path, encoding="ascii", opener=_at_once) as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise ConfigError(f"cannot read the key {path}: it is no file; {_WHERE[role]}")
            text = file.read(_LONGEST)
    except UnicodeDecodeError as error:
        raise _no_key(path) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read the key {path.absolute()}: {error.strerror or error}; {_WHERE[role]}"
        ) from error
    # As in ssh, files of other users (such as root's in a container) are not checked.
    if os.name == "posix" and state.st_uid == os.getuid() and state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{path}: others can use this key (mode {state.st_mode & 0o777:04o}); run: chmod 600 {path}")
    found = _role(text)
    if found is None:
        raise _no_key(path)
    if found == "head" != role:
        raise ConfigError(f"{path} is the head's key and stays with the head; expected the nodes' key, {path}.node")
    if found == "node" != role:
        head = path.with_suffix("") if path.suffix == ".node" else "FILE of pyes keygen -o FILE"
        raise ConfigError(f"{path} is the nodes' key, with which a machine can only join; expected the head's, {head}")
    return _blocks(text)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _blocks(text: str) -> list[str]:
    return [match[0] for match in _BLOCK.finditer(text)]


def _role(text: str) -> Role | None:
    return _ROLES.get(tuple(match[1] for match in _BLOCK.finditer(text)))


def _no_key(path: Path | str) -> ConfigError:
    return ConfigError(f"{path}: expected a key as pyes keygen -o FILE writes it: FILE for a head, FILE.node for nodes")


# --- keys without a file


def from_standard_input() -> bytes:
    """Read a node's key from standard input, up to its second certificate; more input may follow.

    Raises
    ------
    ConfigError
        There is no key, or it is a head's.
    """
    data = b""
    while sys.stdin is not None and data.count(_END) < 2 and len(data) < _LONGEST and (more := os.read(0, _LONGEST)):
        data += more
    found = _role(data.decode("ascii", "replace"))
    if found == "head":
        raise ConfigError(
            "standard input: got the head's key, which stays with the head; expected the nodes', FILE.node"
        )
    if found is None:
        raise _no_key("standard input")
    return data


@contextmanager
def in_memory(data: bytes) -> Iterator[Path]:
    """Yield the path of a key file for this user only; on Linux it is in memory and ends with this process.

    Other processes of this user can open the same path.
    """
    create = getattr(os, "memfd_create", None)
    if create is not None:
        descriptor = create("pyes-key")
        try:
            os.fchmod(descriptor, 0o600)
            os.write(descriptor, data)
            yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="pyes-key-") as file:  # its mode is 0600
        file.write(data)
        file.flush()
        yield Path(file.name)
