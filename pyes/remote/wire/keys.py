"""The key of a cluster: one file that a head and its nodes share, and what TLS makes of it.

Owns the file (a private key on P-256 and its self-signed certificate, PEM) and the rules of verification: TLS 1.3
alone, and either end shows exactly this certificate. Opens no connection. There are no host names and no authorities:
who has the file is in the cluster, whatever the machine is called.
"""

import os
import re
import ssl
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pyes.errors import ConfigError
from pyes.system.files import replacing

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
_END = b"-----END CERTIFICATE-----"
_LONGEST = 2**16  # bytes that are read of what should be a key
#: Clocks of machines differ, and a cluster has no one to renew its key: RFC 5280, 4.1.2.5, has this date for no end.
_FROM, _UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def generate(path: Path) -> None:
    """Write a new key, which only its owner can read; whole or not at all.

    Raises
    ------
    ConfigError    there is a file already, or it cannot be written
    """
    if os.path.lexists(path):
        raise ConfigError(
            f"{path} exists already; choose another name: a new key shuts out every machine with the old one"
        )
    data = new()
    with replacing(path) as beside:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)


def new() -> bytes:
    """Return a private key and a certificate that it has signed itself, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pyes cluster")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private + certificate.public_bytes(encoding)


def from_standard_input() -> bytes:
    """Read a key from standard input, as far as its certificate ends: more may follow.

    Raises
    ------
    ConfigError    there is no key
    """
    data = b""
    while _END not in data and len(data) < _LONGEST and (more := os.read(0, _LONGEST)):
        data += more
    if _END not in data:
        raise _no_key("standard input")
    return data


@contextmanager
def in_memory(data: bytes) -> Iterator[Path]:
    """Lend a file with a key, for our own user alone: on Linux in memory, and gone when this process is.

    Other processes of ours find it under the same path.
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


def server_context(path: str | Path) -> ssl.SSLContext:
    """Return how the head speaks TLS with this key.

    Raises
    ------
    ConfigError    there is no such file, no key in it, or others can read it
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, Path(path))
    context.num_tickets = 0  # every connection shows its certificate; none resumes another
    return context


def client_context(path: str | Path) -> ssl.SSLContext:
    """Return how a node speaks TLS with this key; raises what `server_context` does."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, Path(path))


def same_certificate(connection: ssl.SSLObject | ssl.SSLSocket, path: str | Path) -> bool:
    """Return whether the other end, after the handshake, has shown exactly the certificate of this key."""
    shown = connection.getpeercert(binary_form=True)
    return shown is not None and shown == ssl.PEM_cert_to_DER_cert(_certificate(Path(path)))


def _context(protocol: int, path: Path) -> ssl.SSLContext:
    certificate = _certificate(path)
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=certificate)
        context.load_cert_chain(path, password=lambda: "")  # else it would ask at the terminal
    except (ssl.SSLError, ValueError) as error:
        raise _no_key(path) from error
    return context


def _certificate(path: Path) -> str:
    """Return the only certificate in the file, as PEM, after a look at who can read it."""
    try:
        with open(path, encoding="ascii") as file:
            state = os.fstat(file.fileno())
            text = file.read(_LONGEST)
    except UnicodeDecodeError as error:
        raise _no_key(path) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read the key {path}: {error.strerror or error}; make one with pyes keygen -o {path}, "
            "and copy it to every machine"
        ) from error
    # As ssh has it: a file of somebody else's, as root's in a container, is theirs to protect.
    if os.name == "posix" and state.st_uid == os.getuid() and state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{path}: others can use this key (mode {state.st_mode & 0o777:04o}); run: chmod 600 {path}")
    found = _CERTIFICATE.findall(text)
    if len(found) != 1:
        raise _no_key(path)
    return str(found[0])


def _no_key(path: Path | str) -> ConfigError:
    return ConfigError(f"{path}: expected one private key and its certificate, as pyes keygen -o FILE writes them")
