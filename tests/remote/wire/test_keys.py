"""The keys of a cluster: what is written, who can read it, and TLS between exactly a head and its nodes."""

import os
import re
import ssl
import stat
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

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


def node(key):
    """Return the nodes' file of a head's."""
    return keys.node_path(key)


def test_head_and_node_talk_by_tls_1_3_and_know_each_other(key):
    head, other = keys.of_head(key), keys.of_node(str(node(key)))
    server, client = converse(head.context, other.context)
    assert server.version() == client.version() == "TLSv1.3"
    assert head.recognize(server)
    assert other.recognize(client)


def test_keys_of_another_cluster_are_told_apart(key, tmp_path):
    other = tmp_path / "other.key"
    keys.generate(other)
    server, client = converse(keys.of_head(key).context, keys.of_node(node(key)).context)
    assert not keys.of_head(other).recognize(server)
    assert not keys.of_node(node(other)).recognize(client)
    for one, two in [(key, other), (other, key)]:
        with pytest.raises(ssl.SSLCertVerificationError):
            converse(keys.of_head(one).context, keys.of_node(node(two)).context)


def test_a_nodes_key_does_not_make_a_head(key):
    """The file of a node, stolen: no other node takes its owner's orders."""
    thief = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    thief.load_cert_chain(node(key))
    with pytest.raises(ssl.SSLCertVerificationError):
        converse(thief, keys.of_node(node(key)).context)
    gullible = keys.of_node(node(key)).context  # as if a node trusted both certificates
    gullible.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(keys.of_head(key).other))
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        converse(thief, gullible)


def test_a_head_does_not_take_its_own_certificate_for_a_node(key):
    double = unverified()
    double.load_cert_chain(key)
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate verify failed"):
        converse(keys.of_head(key).context, double)


def unverified():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_node_that_takes_any_head_is_refused_with_a_wrong_key_and_with_none(key, tmp_path):
    other = tmp_path / "other.key"
    keys.generate(other)
    wrong = unverified()
    wrong.load_cert_chain(node(other))
    for context in (unverified(), wrong):
        with pytest.raises(ssl.SSLError, match=r"(?i)peer did not return a certificate|certificate verify failed"):
            converse(keys.of_head(key).context, context)


def test_older_tls_is_refused(key):
    old = unverified()
    old.load_cert_chain(node(key))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.protocol|protocol.version"):
        converse(keys.of_head(key).context, old)


def test_session_cannot_be_resumed(key):
    _, first = converse(keys.of_head(key).context, keys.of_node(node(key)).context)
    assert first.session is None or not first.session.has_ticket


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_keys_are_for_their_owner_alone_whatever_the_mask(tmp_path):
    before = os.umask(0)
    try:
        keys.generate(tmp_path / "key")
    finally:
        os.umask(before)
    assert sorted(os.listdir(tmp_path)) == ["key", "key.node"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_keys_and_certificates_are_of_p256_for_all_time_and_one_end_each(key):
    for path, name, usage in (
        (key, "pyes head", ExtendedKeyUsageOID.SERVER_AUTH),
        (node(key), "pyes node", ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        data = path.read_bytes()
        private = serialization.load_pem_private_key(data, None)
        certificate = x509.load_pem_x509_certificate(data)
        assert private.curve.name == "secp256r1"
        assert certificate.public_key() == private.public_key()
        assert certificate.subject.rfc4514_string() == f"CN={name}"
        assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]
        assert (certificate.not_valid_before_utc.year, certificate.not_valid_after_utc.year) == (2000, 9999)
        certificate.verify_directly_issued_by(certificate)


def test_a_nodes_file_has_no_private_key_of_the_head(key):
    assert node(key).read_text().count("PRIVATE KEY") == 2  # begin and end of its own
    assert part(key.read_bytes(), "PRIVATE KEY") not in node(key).read_bytes()
    assert keys.for_nodes(key) == node(key).read_bytes()


@pytest.mark.parametrize("left", ["cluster.key", "cluster.key.node"])
def test_files_that_exist_are_refused_and_stay(key, left):
    before = {path: path.read_bytes() for path in key.parent.iterdir() if path.name == left}
    for path in list(key.parent.iterdir()):
        if path not in before:
            path.unlink()
    with pytest.raises(ConfigError, match=f"{left} exists already"):
        keys.generate(key)
    assert {path: path.read_bytes() for path in key.parent.iterdir()} == before


def test_the_other_ends_file_is_refused_with_the_name_of_the_right_one(key):
    with pytest.raises(ConfigError) as caught:
        keys.of_node(key)
    assert str(caught.value) == f"{key} is the head's key and stays with the head; expected the nodes' key, {key}.node"
    with pytest.raises(ConfigError) as caught:
        keys.of_head(node(key))
    expected = f"{key}.node is the nodes' key, with which a machine can only join; expected the head's, {key}"
    assert str(caught.value) == expected


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
        lambda data, other: part(data, "PRIVATE KEY") + part(data, "CERTIFICATE"),
        lambda data, other: data.replace(part(data, "CERTIFICATE"), part(other, "CERTIFICATE")),
        lambda data, other: data + part(other, "CERTIFICATE"),
        lambda data, other: data.replace(part(data, "CERTIFICATE")[60:90], b"A" * 30),
        lambda data, other: data.replace(part(data, "PRIVATE KEY"), part(data, "PRIVATE KEY").replace(b"M", b"N")),
    ],
    ids=["empty", "bytes", "no key", "no certificate", "one", "of another", "three", "bad certificate", "bad key"],
)
@pytest.mark.parametrize(("make", "suffix"), [(keys.of_head, ""), (keys.of_node, ".node")])
def test_file_that_is_no_key_is_refused(change, make, suffix, key, tmp_path):
    other = tmp_path / "other.key"
    keys.generate(other)
    path = Path(f"{key}{suffix}")
    path.write_bytes(change(path.read_bytes(), Path(f"{other}{suffix}").read_bytes()))
    with pytest.raises(ConfigError, match="expected a key as pyes keygen -o FILE writes it") as caught:
        make(path)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="named pipes are of POSIX")
def test_pipe_is_no_key_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"it is no file; give another with cluster\.key=FILE"):
        keys.of_head(tmp_path / "pipe")


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_folder_is_no_key_and_leaves_no_file_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(ConfigError, match="cannot read the key"):
            keys.of_node(tmp_path)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_key_that_is_gone_is_named_in_full_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"cannot read the key {re.escape(str(tmp_path / 'gone'))}: .*cluster=local"):
        keys.of_head("gone")
    with pytest.raises(ConfigError, match=r"on the head, pyes keygen -o FILE makes FILE and, for nodes, FILE\.node"):
        keys.of_node("gone")


def test_key_with_a_password_is_refused_without_a_question(key):
    data = node(key).read_bytes()
    private = serialization.load_pem_private_key(data, None)
    locked = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    node(key).write_bytes(data.replace(part(data, "PRIVATE KEY"), locked))
    with pytest.raises(ConfigError, match="expected a key as pyes keygen"):
        keys.of_node(node(key))


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_key_that_others_can_use_is_refused(mode, key):
    key.chmod(mode)
    with pytest.raises(ConfigError, match=rf"others can use this key \(mode {mode:04o}\); run: chmod 600"):
        keys.of_head(key)


def test_keygen_prints_both_files_and_refuses_an_existing_one(tmp_path, capfd):
    path = tmp_path / "cluster.key"
    assert main(["keygen", "-o", str(path)]) == 0
    head, other = (line.split(" (")[0] for line in capfd.readouterr().out.splitlines())
    keys.of_head(head)
    keys.of_node(other)
    assert main(["keygen", "-o", str(path)]) == 2
    assert "exists already" in capfd.readouterr().err
    assert main(["keygen", "-o", str(tmp_path / "none" / "key")]) == 2
    assert "there is no directory" in capfd.readouterr().err
