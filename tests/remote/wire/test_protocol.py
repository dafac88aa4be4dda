"""Both ends of a connection, joined in memory: what they may say when, and what is refused."""

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import BY_KIND, MESSAGES

from pyes.errors import ProtocolError
from pyes.remote import wire
from pyes.remote.wire.messages import KINDS
from pyes.remote.wire.protocol import HeadSide, NodeSide, State, check_hello

HELLO = wire.Hello(wire.PROTOCOL, "0.1.0", "node", 4, 4, 2**33, "kernels", False)
WATCH = wire.Watch(wire.PROTOCOL, "0.1.0")
WELCOME = wire.Welcome()
LIMIT = 2**20

FROM_NODE = {wire.Ready, wire.Unable, wire.Done, wire.Leave, wire.Workers, wire.Log}
FROM_HEAD = {kind for number, kind in KINDS.items() if 33 < number < 65} - {wire.Report}


def pair(first=HELLO, *, welcome=True):
    """Return the head's and the node's side after a handshake."""
    head, node = HeadSide(LIMIT), NodeSide(LIMIT)
    assert head.receive(node.send(first)) == [first]
    if welcome:
        assert node.receive(head.send(WELCOME)) == [WELCOME]
    return head, node


def long_log():
    return wire.Log(30, "x" * 5000)


@pytest.mark.parametrize(("first", "state"), [(HELLO, State.NODE), (WATCH, State.WATCHER)])
def test_handshake_lets_in(first, state):
    head, node = pair(first)
    assert head.state is node.state is state


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(BY_KIND, key=str), ids=lambda kind: kind.__name__)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_message_passes_in_its_own_direction_alone(kind, data):
    message = data.draw(BY_KIND[kind])
    either = {wire.Beat, wire.Echo}
    for way, allowed in enumerate((FROM_NODE | either, FROM_HEAD | either)):
        ends = pair()[:: -1 if way == 0 else 1]
        if kind in allowed:
            (got,) = ends[1].receive(ends[0].send(message))
            assert type(got) is kind
        else:
            with pytest.raises(ProtocolError, match="cannot send"):
                ends[0].send(message)
            with pytest.raises(ProtocolError, match=f"got {kind.__name__} in state NODE"):
                ends[1].receive(wire.encode(message))


@settings(max_examples=40, deadline=None)
@given(message=st.one_of(*(each for kind, each in BY_KIND.items() if kind not in (wire.Hello, wire.Watch))))
def test_head_hears_hello_or_watch_first(message):
    with pytest.raises(ProtocolError):
        HeadSide(LIMIT).receive(wire.encode(message))


def test_node_that_goes_on_before_it_is_let_in_is_an_error():
    head, _ = pair(welcome=False)
    with pytest.raises(ProtocolError, match="got Log in state HELLO, expected nothing"):
        head.receive(wire.encode(wire.Log(30, "text")))


def test_node_that_is_welcomed_unasked_refuses():
    with pytest.raises(ProtocolError, match="got Welcome in state NEW"):
        NodeSide(LIMIT).receive(wire.encode(WELCOME))


def test_long_message_is_let_through_after_the_handshake_alone():
    head, _ = pair(welcome=False)
    with pytest.raises(ProtocolError, match=r"length of \d+ bytes, expected at most 1024"):
        head.receive(wire.encode(long_log()))
    head, node = pair()
    assert head.receive(node.send(long_log())) == [long_log()]


def test_job_in_the_same_bytes_as_the_welcome_is_let_through():
    head, node = pair(welcome=False)
    job = wire.Job("job", {"text": "x" * 5000}, "replay")
    data = head.send(WELCOME) + head.send(job)
    assert node.receive(data) == [WELCOME, job]


def test_message_over_the_limit_is_refused_before_it_comes():
    head, _ = pair()
    with pytest.raises(ProtocolError, match="expected at most 1048576"):
        head.receive(struct.pack("<I", LIMIT + 1))


def test_watcher_gets_reports_and_says_nothing():
    head, node = pair(WATCH)
    report = wire.Report('{"nodes": []}' + " " * 5000)
    assert node.receive(head.send(report)) == [report]
    with pytest.raises(ProtocolError, match="cannot send Beat in state WATCHER"):
        node.send(wire.Beat(1.0))
    with pytest.raises(ProtocolError, match="got Log in state WATCHER, expected nothing"):
        head.receive(wire.encode(wire.Log(30, "text")))


@pytest.mark.parametrize("asked", [False, True])
def test_refused_node_is_told_and_whatever_comes_is_dropped(asked):
    head, node = pair(welcome=False) if asked else (HeadSide(LIMIT), NodeSide(LIMIT))
    refused = wire.Refused("no room")
    assert node.receive(head.send(refused)) == [refused]
    assert head.state is node.state is State.OVER
    assert head.receive(b"\xff" * 5000) == node.receive(b"\xff" * 5000) == []
    with pytest.raises(ProtocolError, match="expected nothing"):
        head.send(WELCOME)


def test_head_can_say_why_after_an_error():
    head, node = pair(welcome=False)
    with pytest.raises(ProtocolError):
        head.receive(b"\xff" * 100)
    assert node.receive(head.send(wire.Refused("nonsense"))) == [wire.Refused("nonsense")]


def test_bytes_are_counted_both_ways():
    head, node = pair()
    data = node.send(wire.Log(30, "text"))
    head.receive(data)
    assert head.bytes_received == node.bytes_sent == len(wire.encode(HELLO)) + len(data)
    assert node.bytes_received == head.bytes_sent == len(wire.encode(WELCOME))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(messages=st.lists(MESSAGES, max_size=3), noise=st.binary(max_size=50), welcomed=st.booleans())
def test_anything_gives_messages_of_nodes_or_an_error(messages, noise, welcomed):
    head, _ = pair(welcome=welcomed)
    try:
        got = head.receive(b"".join(map(wire.encode, messages)) + noise)
    except ProtocolError:
        return
    assert {type(each) for each in got} <= FROM_NODE | {wire.Beat, wire.Echo}


def test_silent_and_babbling_ends_cost_a_kibibyte():
    ends = [HeadSide(LIMIT) for _ in range(20)]
    tracemalloc.start()
    try:
        for head in ends:
            for _ in range(1000):  # one byte at a time, of a frame that never ends
                head.receive(b"\x00\x04\x00\x00"[: 4 - head.bytes_received] or b"\x00")
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20 * 2048
    assert peak < 20 * 2048 + 2**16


def hello(**changes):
    return wire.Hello(**vars(HELLO) | changes)


def test_hello_of_the_same_versions_is_welcome():
    assert check_hello(HELLO, "0.1.0", "kernels") is None
    assert check_hello(WATCH, "0.1.0", "kernels") is None


@pytest.mark.parametrize(
    ("greeting", "both"),
    [
        (hello(protocol=7), ("node has protocol 7", f"the head {wire.PROTOCOL};")),
        (hello(package="0.2.0"), ("node has pyes-rl 0.2.0", "the head 0.1.0;")),
        (hello(kernels="others"), ("node has the kernels others", "the head kernels:")),
        (wire.Watch(7, "0.1.0"), ("node has protocol 7",)),
        (wire.Watch(wire.PROTOCOL, "0.2.0"), ("node has pyes-rl 0.2.0", "the head 0.1.0;")),
    ],
)
def test_hello_of_another_version_is_refused_with_both_sides_values(greeting, both):
    reason = check_hello(greeting, "0.1.0", "kernels")
    assert reason is not None
    assert "\n" not in reason
    for each in both:
        assert each in reason
    (got,) = NodeSide(LIMIT).receive(HeadSide(LIMIT).send(wire.Refused(reason)))
    assert got.reason == reason


def test_longest_hello_fits_into_the_handshake():
    name = "ü" * 64
    longest = wire.Hello(2**32 - 1, name, name, 2**32 - 1, 2**32 - 1, 2**63 - 1, name, True)
    assert HeadSide(LIMIT).receive(NodeSide(LIMIT).send(longest)) == [longest]


def test_done_of_many_members_arrives_whole_however_it_is_cut():
    head, node = pair()
    n = 3000
    done = wire.Done(
        1, "ab12", np.array([[0, n]]), np.arange(n, dtype=float), np.ones(n, np.uint8), None, None, None, None, 1.0, []
    )
    data, got = node.send(done), []
    for place in range(0, len(data), 997):
        got += head.receive(data[place : place + 997])
    np.testing.assert_array_equal(got[0].returns, done.returns)
