"""Messages and frames: what is encoded comes back however the bytes are cut, and nothing else is let in."""

import struct

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import BY_KIND, MEMBERS, MESSAGES, assert_same

from pyes import wire
from pyes.errors import ProtocolError
from pyes.wire.messages import KINDS

EMPTY = np.empty((0, 2), np.int64)


def decoder(limit=2**20):
    made = wire.Decoder()
    made.limit = limit
    return made


def frame(*values, **options):
    """Return a frame of any values."""
    payload = msgpack.packb(list(values), **options)
    return struct.pack("<I", len(payload)) + payload


def refusal(data):
    """Return why a decoder refuses a frame: one line."""
    with pytest.raises(ProtocolError) as caught:
        decoder().feed(data)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    return text


def grant(ranges):
    return wire.Grant(3, np.array(ranges, np.int64).reshape(-1, 2))


def done(**changes):
    values = {
        "batch": 1,
        "theta_hash": "hash",
        "ranges": np.array([[0, 2], [5, 6]]),
        "returns": np.array([1.0, np.nan, -np.inf]),
        "lengths": np.array([1, 2, 3], np.uint8),
        "status": None,
        "sums": None,
        "behaviours": None,
        "busy": 0.5,
        "errors": [],
    }
    return wire.Done(**values | changes)


def test_every_kind_has_a_number_a_strategy_and_checked_fields():
    assert set(KINDS.values()) == set(BY_KIND) == set(wire.Message.__subclasses__())


@pytest.mark.parametrize("kind", BY_KIND, ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_message_comes_back_as_it_was(kind, data):
    message = data.draw(BY_KIND[kind])
    (got,) = decoder().feed(wire.encode(message))
    assert_same(got, message)


@settings(max_examples=40, deadline=None)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=3))
def test_stream_cut_after_every_byte_gives_the_same_messages(messages):
    stream = b"".join(map(wire.encode, messages))
    one, got = decoder(), []
    for place in range(len(stream)):
        got += one.feed(stream[place : place + 1])
    for each, expected in zip(got, messages, strict=True):
        assert_same(each, expected)


def test_arrays_are_aligned_views_that_cannot_be_written():
    (got,) = decoder().feed(wire.encode(done()))
    for array in (got.returns, got.ranges, got.lengths):
        assert not array.flags.writeable
        assert array.flags.aligned
        assert not array.flags.owndata


@settings(max_examples=100, deadline=None)
@given(members=MEMBERS)
def test_ranges_hold_their_members_and_are_the_fewest(members):
    ranges = wire.ranges_of(members)
    np.testing.assert_array_equal(wire.members_of(ranges), members)
    assert wire.count(ranges) == len(members)
    assert (ranges[1:, 0] > ranges[:-1, 1]).all()


@pytest.mark.parametrize("members", [[1, 1], [2, 1]])
def test_ranges_of_members_out_of_order_is_refused(members):
    with pytest.raises(ValueError, match="ascend"):
        wire.ranges_of(np.array(members))


SCALARS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=20),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=30)),
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=12), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=20,
)
RAW = st.one_of(
    st.binary(max_size=200),
    st.binary(max_size=60).map(lambda data: struct.pack("<I", len(data)) + data),
    NESTED.map(lambda value: frame(*(value if isinstance(value, list) else [value]))),
    st.tuples(st.sampled_from(sorted(KINDS)), st.lists(SCALARS, max_size=17)).map(
        lambda each: frame(each[0], *each[1])
    ),
)


@st.composite
def mutated(draw):
    """Return a valid frame with some bytes changed, cut out, doubled or cut off."""
    data = bytearray(wire.encode(draw(MESSAGES)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        way = draw(st.sampled_from(["change", "remove", "insert", "cut"]))
        if way == "change" and data:
            data[place] = draw(st.integers(0, 255))
        elif way == "remove":
            del data[place : place + draw(st.integers(1, 4))]
        elif way == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=4))
        else:
            del data[place:]
    return bytes(data)


@settings(max_examples=200, deadline=None)
@given(data=st.one_of(RAW, mutated()))
def test_anything_else_is_refused_or_is_a_message_that_encodes(data):
    try:
        messages = decoder().feed(data)
    except ProtocolError:
        return
    for message in messages:
        (again,) = decoder().feed(wire.encode(message))
        assert_same(again, message)
