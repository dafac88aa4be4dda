"""Messages and frames: what is encoded comes back however the bytes are cut, and nothing else is let in."""

import dataclasses
import math
import struct
import tracemalloc

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import BY_KIND, MEMBERS, MESSAGES, assert_same

from pyes.errors import ProtocolError
from pyes.remote import wire
from pyes.remote.wire.messages import KINDS


def decoder(limit=2**21):
    made = wire.Decoder()
    made.limit = limit
    return made


def messages_of(one, data):
    """Return the messages that bytes complete."""
    one.append(data)
    return list(iter(one.next, None))


def frame(*values, **options):
    """Return a frame of any values."""
    payload = msgpack.packb(list(values), **options)
    return struct.pack("<I", len(payload)) + payload


def grant(ranges, gather=0.005):
    return wire.Grant(3, np.array(ranges, np.int64).reshape(-1, 2), 5, gather)


def done(**changes):
    values = {
        "batch": 1,
        "theta_hash": "ab12",
        "ranges": np.array([[0, 2], [5, 6]]),
        "returns": np.array([1.0, np.nan, -np.inf]),
        "lengths": np.array([1, 2, 3], np.uint8),
        "status": None,
        "sums": None,
        "behaviours": None,
        "halves": None,
        "busy": 0.5,
        "errors": [],
    }
    return wire.Done(**values | changes)


def test_every_kind_has_a_number_a_strategy_and_checked_fields():
    assert set(KINDS.values()) == set(BY_KIND) == set(wire.Message.__subclasses__())


@pytest.mark.parametrize("kind", BY_KIND, ids=lambda kind: kind.__name__)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_message_comes_back_as_it_was(kind, data):
    message = data.draw(BY_KIND[kind])
    (got,) = messages_of(decoder(), wire.encode(message))
    assert_same(got, message)


@settings(max_examples=40, deadline=None)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=3))
def test_stream_cut_after_every_byte_gives_the_same_messages(messages):
    stream = b"".join(map(wire.encode, messages))
    one, got = decoder(), []
    for place in range(len(stream)):
        got += messages_of(one, stream[place : place + 1])
    for each, expected in zip(got, messages, strict=True):
        assert_same(each, expected)


def test_arrays_are_aligned_views_that_cannot_be_written():
    (got,) = messages_of(decoder(), wire.encode(done(returns=np.array([0.1, np.nan, -np.inf]))))
    for array in (got.returns, got.lengths):
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
        messages = messages_of(decoder(), data)
    except ProtocolError:
        return
    for message in messages:
        (again,) = messages_of(decoder(), wire.encode(message))
        assert_same(again, message)


def ext(code, entries, *row):
    return msgpack.ExtType(code, entries + struct.pack(f"<{len(row)}I", *row))


HASH = b"\xab\x12"
RANGES = ext(21, np.array([0, 2], np.uint16).tobytes())
RETURNS = ext(18, np.zeros(2).tobytes())
LENGTHS = ext(20, b"\x05\x06")
NOBODY = ext(21, b"")


def done_frame(
    ranges=RANGES, returns=RETURNS, lengths=LENGTHS, status=None, sums=None, behaviours=None, halves=None, busy=0.5
):
    return frame(5, 1, HASH, ranges, returns, lengths, status, sums, behaviours, halves, busy, [])


def raw(payload):
    return struct.pack("<I", len(payload)) + payload


def test_frame_made_by_hand_is_the_message():
    (got,) = messages_of(decoder(), done_frame())
    assert_same(
        got, done(ranges=np.array([[0, 2]]), returns=np.zeros(2), lengths=np.array([5, 6], np.uint8), theta_hash="ab12")
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (raw(b""), "cannot unpack"),
        (frame(), "got list, expected an array"),
        (raw(msgpack.packb(7)), "got int"),
        (raw(msgpack.packb({1: 2})), "cannot unpack"),
        (frame(99), "kind 99, expected one of 1, 2"),
        (frame("5"), "kind str"),
        (frame(True), "kind bool"),
        (frame([[]]), "kind list"),
        (frame(43, 1, 2), "Close: got 2 fields, expected 1"),
        (frame(43), "Close: got 0 fields"),
        (raw(msgpack.packb([43, 1]) + b"\x00"), "extra data"),
        (raw(msgpack.packb([43, 1])[:-1]), "incomplete"),
        (raw(b"\x91" * 900), "cannot unpack"),
        (raw(b"\x91" * 5000), "StackError"),
        (raw(b"\xdd\xff\xff\xff\xff"), "max_array_len"),
        (raw(b"\xdf\xff\xff\xff\xff"), "max_map_len"),
        (raw(b"\xc6\xff\xff\xff\xff"), "incomplete input"),
        (raw(b"\xdb\xff\xff\xff\xff"), "incomplete input"),
        (raw(b"\xc9\xff\xff\xff\xff\x12"), "max_ext_len"),
        (raw(b"\xc1"), "cannot unpack"),
        (raw(b"\x92\x22\xa2\xff\xfe"), "utf-8"),
        (raw(b"\x92\x22\xa3\xed\xa0\x80"), "utf-8"),
        (raw(b"\x92\x2b\xd6\xff\x00\x00\x00\x01"), "got Timestamp, expected int"),
        (frame(43, -1), "Close.batch: got -1, expected 0 to"),
        (frame(43, 2**63), "expected 0 to"),
        (frame(43, 1.0), "got float, expected int"),
        (frame(43, True), "got bool, expected int"),
        (frame(43, None), "got NoneType"),
        (frame(65, 1), "Beat.time: got int, expected float"),
        (frame(2, 1, "x" * 129), "Watch.package: got text of 129 bytes, expected at most 128"),
        (frame(2, 1, "ü" * 65), "130 bytes"),
        (frame(2, 1, b"job"), "got bytes, expected str"),
        (frame(2, 1, "one\ntwo"), "printed in one line"),
        (frame(34, "x" * 513), "Refused.reason"),
        (frame(6, 5000, "text"), "Log.level: got 5000"),
        (frame(1, 2, "0.2.0", "something new"), "Hello: got protocol 2, expected 1; install the same version"),
        (frame(1, 1, "0.2.0"), "Hello: got 2 fields, expected 8"),
        (frame(38, 1, 2, 0, "ab12"), "Open.theta_hash: got str, expected bytes"),
        (frame(38, 1, 2, 0, bytes(9)), "Open.theta_hash: got a digest of 9 bytes, expected at most 8"),
        (done_frame(ranges=[[0, 2]]), "Done.ranges: got list, expected an array"),
        (done_frame(ranges=RETURNS), "got float64 of 1 dimensions, expected <u2 or <u4 of 1"),
        (
            done_frame(ranges=ext(21, np.arange(3, dtype=np.uint16).tobytes())),
            "got 3 bounds of ranges, expected two of each",
        ),
        (done_frame(ranges=ext(21, np.array([2, 2], np.uint16).tobytes())), r"Done.ranges: got \[2, 2\)"),
        (done_frame(ranges=ext(19, np.array([-1, 1]).tobytes())), "got int64 of 1 dimensions"),
        (
            done_frame(ranges=ext(21, np.array([2, 3, 1, 2], np.uint16).tobytes())),
            r"got \[1, 2\), expected ranges in \[3",
        ),
        (done_frame(ranges=ext(22, np.array([0, 2**31 + 1], np.uint32).tobytes())), "expected ranges in"),
        (done_frame(ranges=ext(21, bytes(4 * (2**16 + 1)))), "with k <= 65536"),
        (done_frame(ranges=NOBODY), "Done.returns: got 2 rows for the 0 members"),
        (done_frame(returns=ext(18, bytes(24))), "Done.returns: got 3 rows for the 2 members"),
        (done_frame(returns=ext(18, bytes(15))), r"got 15 bytes for rows of 8, float64 of shape \(\)"),
        (done_frame(returns=ext(19, bytes(16))), "got int64 of 1 dimensions"),
        (done_frame(returns=ext(50, b"", *[2**32 - 1] * 2)), "got 0 bytes for rows of 1475"),
        (done_frame(behaviours=ext(33, b"", 0)), r"got 0 bytes for rows of 0, float32 of shape \(0,\)"),
        (done_frame(returns=msgpack.ExtType(33, b"ab")), "got an array of 2 bytes, expected a shape of 4"),
        (done_frame(returns=msgpack.ExtType(0, b"")), "extension of code 0"),
        (done_frame(returns=msgpack.ExtType(24, b"")), "extension of code 24"),
        (done_frame(returns=msgpack.ExtType(127, b"")), "extension of code 127"),
        (done_frame(lengths=ext(19, np.arange(2).tobytes())), r"Done.lengths: got int64"),
        (done_frame(lengths=ext(23, b"\xff" * 16)), "got a length of 18446744073709551615"),
        (done_frame(status=ext(20, b"\x00\x04")), "Done.status: got 4, expected at most 3"),
        (done_frame(sums=ext(50, bytes(24), 3, 1)), r"Done.sums: got shape \(1, 3, 1\)"),
        (done_frame(behaviours=ext(33, bytes(4), 1)), "Done.behaviours: got 1 rows"),
        (done_frame(halves=ext(34, bytes(16), 2)), "Done.halves: got 1 rows"),
        (frame(5, 1, HASH, RANGES, RETURNS, LENGTHS, None, None, None, None, 0.5, [7]), "Done.errors: got int"),
        (
            frame(5, 1, HASH, RANGES, RETURNS, LENGTHS, None, None, None, None, 0.5, ["x"] * 17),
            "17 exceeds max_array_len|got 17 texts",
        ),
        (frame(6, 30, "one line\nand another"), "Log.text: got 'one line.nand another', expected text"),
        (frame(4, "\x1b[2J"), "Unable.reason: got .*, expected text that can be printed in one line"),
        (frame(35, "job", b"\x80\x80", "replay"), "Job.settings: cannot unpack"),
        (frame(35, "job", b"\x01", "replay"), "Job.settings: got int, expected dict"),
        (frame(35, "job", msgpack.packb({1: 2}, strict_types=True), "replay"), "Job.settings: cannot unpack"),
        (frame(35, "job", msgpack.packb({b"a": 2}), "replay"), "got bytes, expected str"),
        (frame(35, "job", msgpack.packb({"a": [b"b"]}), "replay"), "got bytes among the values"),
        (frame(35, "job", msgpack.packb({"a": RETURNS}), "replay"), "got ndarray among the values"),
        (frame(35, "job", b"\x81\xa1a" * 17 + b"\xc0", "replay"), "nested deeper than 16"),
        (frame(35, "job", msgpack.packb({"a": [0] * 1025}), "replay"), "max_array_len"),
        (frame(35, "job", b"\x81\xa1a" * 5000, "replay"), "cannot unpack"),
    ],
)
def test_frame_that_is_not_allowed_is_refused_in_one_line(data, reason):
    with pytest.raises(ProtocolError, match=reason) as caught:
        messages_of(decoder(), data)
    assert "\n" not in str(caught.value)


def vectors(**changes):
    values = {
        "batch": 1,
        "generation": 2,
        "theta_hash": "ab12",
        "bases": np.zeros((2, 3), np.float32),
        "rows": np.array([0, 1]),
        "offsets": np.array([5, 6]),
        "scales": np.zeros(2, np.float32),
        "deviation": None,
        "seeds": np.zeros((2, 1), np.int64),
        "limit": 100,
        "mean": None,
        "inverse_std": None,
        "statistics_stride": 0,
        "evaluation": False,
        "reward_min": -1.5,
    }
    return wire.Vectors(**values | changes)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (vectors(rows=np.array([0, 2])), "rows, offsets"),
        (vectors(rows=np.array([-1, 0])), "rows, offsets"),
        (vectors(offsets=np.array([-1, 0])), "rows, offsets"),
        (vectors(scales=np.zeros(3, np.float32)), "scales: got 3 rows"),
        (vectors(deviation=np.zeros(2, np.float32)), "deviation: got 2 numbers, expected 3"),
        (vectors(mean=np.zeros(2, np.float32)), "both or none"),
        (vectors(bases=np.zeros((2, 3))), "Vectors.bases: got float64"),
        (wire.Bases(1, np.array([[0, 2]]), np.zeros((1, 3), np.float32)), "Bases.bases: got 1 rows"),
        (grant([[0, 2], [1, 3]]), "Grant.ranges"),
        (done(behaviours=np.zeros((3, 0), np.float32)), r"got an array of shape \(3, 0\), expected at least one entry"),
        (done(returns=np.zeros(2)), "Done.returns: got 2 rows for the 3 members"),
        (done(returns=[1.0, 2.0, 3.0]), "got list, expected an array"),
        (done(returns=np.zeros(3, ">f8")), "Done.returns: got >f8"),
        (wire.Open(1, 2, 0, "xyz"), "Open.theta_hash: got 'xyz', expected at most 16 hexadecimal digits"),
        (wire.Open(1, 2, 0, "AB12"), "got 'AB12'"),
        (wire.Open(1, 2, 0, "ab1"), "got 'ab1'"),
        (wire.Open(1, 2, 0, "ab12\n"), "got 'ab12"),
        (wire.Open(1, 2, 0, "00" * 9), "expected at most 16"),
        (grant([[0, 2]], math.nan), "gather: got nan seconds, expected 0.001 to 1"),
        (grant([[0, 2]], 0.0), "gather: got 0 seconds"),
        (wire.Close(np.int64(3)), "got int64, expected int"),
        (wire.Watch(1, "\ud800"), "utf-8"),
        (wire.Job("job", {"a": 2**70}, "replay"), "Job.settings: got an integer"),
        (wire.Job("job", {"a": (1, 2)}, "replay"), "got tuple among the values"),
        (wire.Job("job", {str(i): "x" * 2000 for i in range(600)}, "replay"), "expected at most 1048576"),
    ],
)
def test_message_that_the_other_end_would_refuse_is_not_sent(message, reason):
    with pytest.raises(ProtocolError, match=reason):
        wire.encode(message)


def test_texts_for_people_are_cut_to_what_fits():
    (got,) = messages_of(decoder(), wire.encode(wire.Refused("ü" * 1000)))
    assert got.reason == "ü" * 256
    (got,) = messages_of(decoder(), wire.encode(done(errors=["\ud800" + "x" * 5000] * 30)))
    assert got.errors == ["?" + "x" * 2047] * 16


def test_texts_for_people_are_one_line_without_control_characters():
    (got,) = messages_of(decoder(), wire.encode(wire.Log(30, "a\n12:00 b\r\t\x1b[2J\u2028\u202ec\x00ü")))
    assert got.text == "a 12:00 b   [2J  c ü"


def test_array_that_is_not_contiguous_is_sent_as_it_reads():
    (got,) = messages_of(decoder(), wire.encode(done(returns=np.arange(6.0)[::-2])))
    np.testing.assert_array_equal(got.returns, [5.0, 3.0, 1.0])


def test_frame_over_the_limit_is_refused_by_its_length_alone():
    one = wire.Decoder()
    assert messages_of(one, struct.pack("<I", wire.HANDSHAKE_LIMIT)) == []
    with pytest.raises(ProtocolError, match="a length of 1025 bytes, expected at most 1024"):
        messages_of(wire.Decoder(), struct.pack("<I", wire.HANDSHAKE_LIMIT + 1))


def test_decoder_is_of_no_use_after_an_error():
    one = decoder()
    for data in (frame(99), wire.encode(wire.Close(1))):
        with pytest.raises(ProtocolError, match="kind 99"):
            messages_of(one, data)


@pytest.mark.parametrize(
    "data",
    [
        raw(b"\xdc\x00\x12" * 1000),  # lists of 18 within each other
        frame(35, "job", b"\xdc\x04\x00" * 1000, "replay"),
        frame(35, "job", b"\xde\x04\x00" * 300, "replay"),
        frame(41, 1, ext(37, bytes(2**17), 2**15, 2)),
        struct.pack("<I", 2**32 - 1),
    ],
    ids=["lists", "lists in values", "maps in values", "ranges", "length"],
)
def test_frame_that_promises_much_costs_little(data):
    one = decoder()
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            messages_of(one, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**24


@pytest.mark.parametrize(
    ("returns", "bytes_each"),
    [
        ([200.0, -7.0, 0.5, -0.0, float("inf")], 4),
        ([200.0, 0.1], 8),
        ([1e300, 1.0], 8),  # beyond float32
        ([1e-300, 1.0], 8),  # zero in float32
        (np.array([0x7FF8000000000001], np.int64).view(np.float64), 8),  # NaN with a bit that float32 has not
    ],
)
def test_returns_take_half_the_bytes_where_float32_holds_them(returns, bytes_each):
    returns, count = np.asarray(returns, np.float64), len(returns)
    message = wire.Learn(*(3, "ab12", returns, np.zeros(count, np.uint8), None, 0, np.zeros(0), None, 0.0))
    encoded = wire.encode(message)
    (back,) = messages_of(wire.Decoder(), encoded)
    assert back.returns.tobytes() == returns.tobytes()
    empty = dataclasses.replace(message, returns=returns[:0], lengths=message.lengths[:0])
    rest = len(encoded) - len(wire.encode(empty)) - count  # a byte for each length
    assert count * bytes_each <= rest <= count * bytes_each + 8  # and their lengths
