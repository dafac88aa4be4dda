"""Messages of every kind, as Hypothesis strategies and as examples."""

from dataclasses import fields

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pyes.remote import wire

WHOLE = st.one_of(st.sampled_from([0, 1, 2**32 - 1]), st.integers(0, 2**32 - 1))
BIG = st.one_of(WHOLE, st.integers(0, 2**63 - 1))
NAMES = st.one_of(st.just("0123456789abcdef"), st.text(max_size=30).filter(str.isprintable))
TEXTS = st.text(max_size=60)
PROSE = st.text(st.characters().filter(str.isprintable), max_size=60)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
MEMBERS = st.sets(st.integers(0, 40), max_size=12).map(lambda each: np.array(sorted(each), np.int64))
DIGESTS = st.binary(max_size=8).map(bytes.hex)
WIDTHS = st.integers(1, 4)
UNSIGNED = st.sampled_from([np.uint8, np.uint16, np.uint32])


def matrix(dtype, *shape):
    return arrays(dtype, shape)


def optional(strategy):
    return st.one_of(st.none(), strategy)


@st.composite
def outcomes(draw, n):
    """Return what `Done` and `Learn` share: the arrays of ``n`` members."""
    return {
        "theta_hash": draw(DIGESTS),
        "returns": draw(matrix(np.float64, n)),
        "lengths": draw(UNSIGNED.flatmap(lambda dtype: matrix(dtype, n))),
        "status": draw(optional(arrays(np.uint8, n, elements=st.integers(0, 3)))),
        "behaviours": draw(optional(matrix(np.float32, n, draw(WIDTHS)))),
    }


@st.composite
def done(draw):
    sums = optional(matrix(np.float64, draw(st.integers(0, 3)), 2, draw(WIDTHS)))
    errors = st.lists(PROSE, max_size=3)
    members = draw(MEMBERS)
    values = draw(outcomes(len(members)))
    halves = draw(optional(matrix(np.float64, len(members), 2)))
    return wire.Done(
        batch=draw(BIG),
        ranges=wire.ranges_of(members),
        sums=draw(sums),
        halves=halves,
        busy=draw(st.floats(0.0, allow_infinity=False)),
        errors=draw(errors),
        **values,
    )


@st.composite
def learn(draw):
    sums = matrix(np.float64, draw(st.integers(0, 6)))
    agreement = draw(st.floats())
    values = draw(outcomes(draw(st.integers(0, 20))))
    return wire.Learn(generation=draw(WHOLE), observations=draw(BIG), sums=draw(sums), agreement=agreement, **values)


@st.composite
def bases(draw):
    members = draw(MEMBERS)
    vectors = draw(matrix(np.float32, len(members), draw(WIDTHS)))
    return wire.Bases(draw(BIG), wire.ranges_of(members), vectors)


@st.composite
def vectors(draw):
    n, m, dim, size = (draw(st.integers(low, high)) for low, high in [(0, 5), (0, 3), (1, 4), (0, 3)])
    statistics = draw(st.booleans())
    return wire.Vectors(
        batch=draw(BIG),
        generation=draw(WHOLE),
        theta_hash=draw(DIGESTS),
        bases=draw(matrix(np.float32, m, dim)),
        rows=draw(arrays(np.int64, n, elements=st.integers(0, max(0, (m or n) - 1)))),
        offsets=draw(arrays(np.int64, n, elements=st.integers(0, 2**40))),
        scales=draw(matrix(np.float32, n)),
        deviation=draw(optional(matrix(np.float32, dim))),
        seeds=draw(matrix(np.int64, n, draw(WIDTHS))),
        limit=draw(BIG),
        mean=draw(matrix(np.float32, size)) if statistics else None,
        inverse_std=draw(matrix(np.float32, size)) if statistics else None,
        statistics_stride=draw(WHOLE),
        evaluation=draw(st.booleans()),
        reward_min=draw(st.floats(allow_nan=False)),
    )


RANGES = MEMBERS.map(wire.ranges_of)
SETTINGS = st.dictionaries(TEXTS, JSON, max_size=5)
BY_KIND = {
    wire.Hello: st.builds(wire.Hello, WHOLE, NAMES, NAMES, WHOLE, WHOLE, BIG, NAMES, st.booleans()),
    wire.Watch: st.builds(wire.Watch, WHOLE, NAMES),
    wire.Ready: st.builds(
        wire.Ready, NAMES, NAMES, NAMES, DIGESTS, WHOLE, WHOLE, st.dictionaries(NAMES, NAMES, max_size=3)
    ),
    wire.Unable: st.builds(wire.Unable, PROSE),
    wire.Done: done(),
    wire.Workers: st.builds(wire.Workers, st.integers(1, 2**32 - 1)),
    wire.Leave: st.builds(wire.Leave, BIG, MEMBERS.map(wire.ranges_of)),
    wire.Log: st.builds(wire.Log, st.integers(0, 50), PROSE),
    wire.Welcome: st.just(wire.Welcome()),
    wire.Refused: st.builds(wire.Refused, PROSE),
    wire.Job: st.builds(wire.Job, NAMES, SETTINGS, NAMES),
    wire.Learn: learn(),
    wire.Snapshot: st.builds(wire.Snapshot, WHOLE, WHOLE, DIGESTS, st.binary(max_size=50)),
    wire.Open: st.builds(wire.Open, BIG, WHOLE, WHOLE, DIGESTS),
    wire.Vectors: vectors(),
    wire.Bases: bases(),
    wire.Grant: st.builds(wire.Grant, BIG, RANGES, WHOLE, st.floats(0.001, 1.0)),
    wire.Granted: st.builds(wire.Granted, BIG),
    wire.Withdraw: st.builds(wire.Withdraw, BIG, RANGES),
    wire.Close: st.builds(wire.Close, BIG),
    wire.End: st.just(wire.End()),
    wire.Report: st.builds(wire.Report, TEXTS),
    wire.Beat: st.builds(wire.Beat, st.floats()),
    wire.Echo: st.builds(wire.Echo, st.floats()),
}
MESSAGES = st.one_of(*BY_KIND.values())


def assert_same(got, expected):
    """Compare two messages, NaN being equal to itself, by bytes."""
    assert type(got) is type(expected)
    for each in fields(expected):
        one, other = getattr(got, each.name), getattr(expected, each.name)
        if isinstance(other, np.ndarray):
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), each.name
        else:
            assert type(one) is type(other), each.name
            assert repr(one) == repr(other), each.name
