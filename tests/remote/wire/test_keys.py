"""The cluster's key: what is written, who can read it, and TLS that lets in exactly those who have it."""

import os
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from pyes.cli import main
from pyes.errors import ConfigError
from pyes.remote.wire import keys


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "cluster.key"
    keys.generate(path)
    return path


class End:
    """One end of a TLS connection in memory."""

    def __init__(self, context, server):
        self.inside, self.outside = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.inside, self.outside, server_side=server)

    def step(self, call):
        try:
            return call()
        except ssl.SSLWantReadError:
            return None


def converse(server_context, client_context):
    """Shake hands and send a byte each way; return both ends, or raise what one of them does."""
    server, client = End(server_context, True), End(client_context, False)
    for _ in range(4):
        client.step(client.tls.do_handshake)
        server.inside.write(client.outside.read())
        server.step(server.tls.do_handshake)
        client.inside.write(server.outside.read())
    client.tls.write(b"1")
    server.inside.write(client.outside.read())
    assert server.step(lambda: server.tls.read(1)) == b"1"
    server.tls.write(b"2")
    client.inside.write(server.outside.read())
    assert client.step(lambda: client.tls.read(1)) == b"2"
    return server.tls, client.tls


def test_both_ends_with_the_key_talk_by_tls_1_3_and_know_each_other(key):
    ends = converse(keys.server_context(key), keys.client_context(str(key)))
    for end in ends:
        assert end.version() == "TLSv1.3"
        assert keys.same_certificate(end, key)


def test_another_key_is_told_apart(key, tmp_path):
    other = tmp_path / "other.key"
    keys.generate(other)
    server, client = converse(keys.server_context(key), keys.client_context(key))
    assert not keys.same_certificate(server, other)
    assert not keys.same_certificate(client, other)
    for one, two in [(key, other), (other, key)]:
        with pytest.raises(ssl.SSLCertVerificationError):
            converse(keys.server_context(one), keys.client_context(two))


def unverified():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_node_that_takes_any_head_is_refused_with_a_wrong_key_and_with_none(key, tmp_path):
    other = tmp_path / "other.key"
    keys.generate(other)
    wrong = unverified()
    wrong.load_cert_chain(other)
    for context in (unverified(), wrong):
        with pytest.raises(ssl.SSLError, match=r"(?i)peer did not return a certificate|certificate verify failed"):
            converse(keys.server_context(key), context)


def test_head_without_the_private_key_is_refused(key, tmp_path):
    """Who has seen the certificate, which is no secret, cannot pass for the head."""
    other = tmp_path / "other.key"
    keys.generate(other)
    head = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    head.load_cert_chain(other)
    with pytest.raises(ssl.SSLCertVerificationError):
        converse(head, keys.client_context(key))


def test_older_tls_is_refused(key):
    old = unverified()
    old.load_cert_chain(key)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.protocol|protocol.version"):
        converse(keys.server_context(key), old)


def test_session_cannot_be_resumed(key):
    server = keys.server_context(key)
    client = keys.client_context(key)
    _, first = converse(server, client)
    assert first.session is None or not first.session.has_ticket


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_key_is_for_its_owner_alone_whatever_the_mask(tmp_path):
    before = os.umask(0)
    try:
        keys.generate(tmp_path / "key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["key"]


def test_key_and_certificate_are_of_p256_for_all_time(key):
    data = key.read_bytes()
    private = serialization.load_pem_private_key(data, None)
    certificate = x509.load_pem_x509_certificate(data)
    assert private.curve.name == "secp256r1"
    assert certificate.public_key() == private.public_key()
    assert (certificate.not_valid_before_utc.year, certificate.not_valid_after_utc.year) == (2000, 9999)
    certificate.verify_directly_issued_by(certificate)


def test_two_keys_differ(key, tmp_path):
    keys.generate(tmp_path / "other.key")
    assert key.read_bytes() != (tmp_path / "other.key").read_bytes()


def test_file_that_exists_is_refused_and_stays(key):
    before = key.read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        keys.generate(key)
    assert key.read_bytes() == before


@pytest.mark.parametrize("make", [keys.server_context, keys.client_context])
def test_missing_file_says_how_to_make_one(make, tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the key .*: No such file.*pyes keygen -o"):
        make(tmp_path / "missing.key")


def part(data, name):
    begin = data.index(f"-----BEGIN {name}".encode())
    return data[begin : data.index(b"-----\n", data.index(b"-----END", begin)) + 6]


@pytest.mark.parametrize(
    "change",
    [
        lambda data, other: b"",
        lambda data, other: b"\xff\xfe nonsense",
        lambda data, other: part(data, "CERTIFICATE"),
        lambda data, other: part(data, "PRIVATE KEY"),
        lambda data, other: part(data, "PRIVATE KEY") + part(other, "CERTIFICATE"),
        lambda data, other: data + part(other, "CERTIFICATE"),
        lambda data, other: data.replace(part(data, "CERTIFICATE")[60:90], b"A" * 30),
        lambda data, other: part(data, "PRIVATE KEY").replace(b"M", b"N") + part(data, "CERTIFICATE"),
    ],
    ids=["empty", "bytes", "no key", "no certificate", "of another", "two", "damaged certificate", "damaged key"],
)
def test_file_that_is_no_key_is_refused(change, key, tmp_path):
    other = tmp_path / "other.key"
    keys.generate(other)
    key.write_bytes(change(key.read_bytes(), other.read_bytes()))
    with pytest.raises(ConfigError, match="expected one private key and its certificate") as caught:
        keys.server_context(key)
    assert "\n" not in str(caught.value)


def test_key_with_a_password_is_refused_and_asks_nobody(key):
    data = key.read_bytes()
    private = serialization.load_pem_private_key(data, None)
    locked = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    key.write_bytes(locked + part(data, "CERTIFICATE"))
    with pytest.raises(ConfigError, match="expected one private key"):
        keys.client_context(key)


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_key_that_others_can_use_is_refused(mode, key):
    key.chmod(mode)
    with pytest.raises(ConfigError, match=rf"others can use this key \(mode {mode:04o}\); run: chmod 600"):
        keys.server_context(key)


def test_keygen_prints_the_file_and_refuses_an_existing_one(tmp_path, capfd):
    path = tmp_path / "cluster.key"
    assert main(["keygen", "-o", str(path)]) == 0
    assert capfd.readouterr().out.strip() == str(path)
    keys.server_context(path)
    assert main(["keygen", "-o", str(path)]) == 2
    assert "exists already" in capfd.readouterr().err
    assert main(["keygen", "-o", str(tmp_path / "none" / "key")]) == 2
    assert "there is no directory" in capfd.readouterr().err
