"""Addresses: every form that users write, and one line for all others."""

import socket

import pytest

from pyes.errors import ConfigError
from pyes.system import addresses
from pyes.system.addresses import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:5555", Address("127.0.0.1", 5555)),
        ("tcp://0.0.0.0:0", Address("0.0.0.0", 0)),
        ("tcp://head:65535", Address("head", 65535)),
        ("tcp://node-1.cluster_a.example:80", Address("node-1.cluster_a.example", 80)),
        ("tcp://[::1]:5555", Address("::1", 5555)),
        ("tcp://[fe80::1%eth0]:5555", Address("fe80::1%eth0", 5555)),
        ("tcp://[::ffff:10.0.0.1]:1", Address("::ffff:10.0.0.1", 1)),
    ],
)
def test_parse_reads_what_str_writes(text, address):
    assert addresses.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "head:5555", "tcp://", "tcp://head", "tcp://head:", "tcp://:5555", "tcp://head:65536", "tcp://head:-1"),
        *(
            "tcp://::1:5555",
            "tcp://[head]:5555",
            "tcp://[]:5555",
            "tcp://[1::2::3]:5555",
            "tcp://head:5555/",
            "http://head:80",
        ),
        *("tcp://user@head:5555", "tcp://he ad:5555", "tcp://head:5555\n", "tcp://head:٣", "tcp://he\nad:1"),
    ],
)
def test_parse_refuses_anything_else_in_one_line(text):
    with pytest.raises(ConfigError, match="expected tcp://HOST:PORT") as caught:
        addresses.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_loopback_is_known(host):
    assert Address(host, 1).is_loopback


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "head", "localhost.example", "127.0.0.1.example", "127.1"]
)
def test_other_hosts_are_no_loopback(host):
    assert not Address(host, 1).is_loopback


@pytest.mark.parametrize(
    ("host", "local"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.1", "10.0.0.1"), ("head", "head")]
)
def test_local_is_where_this_machine_reaches_it(host, local):
    assert Address(host, 7).local == Address(local, 7)


def test_own_host_is_the_address_on_the_way():
    assert addresses.own_host("127.0.0.1") == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "families", "expected"),
    [
        ("::1", None, True),
        ("127.0.0.1", None, False),
        ("six", [socket.AF_INET6], True),
        ("both", [socket.AF_INET6, socket.AF_INET], False),
        ("unknown", [], False),
    ],
)
def test_name_that_has_ipv6_alone_is_known(host, families, expected, monkeypatch):
    def look_up(*_, **__):
        if not families:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return [(family, socket.SOCK_STREAM, 6, "", ()) for family in families]

    if families is not None:  # there is no name server here
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert addresses.is_ipv6(host) is expected
