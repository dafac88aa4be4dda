"""Send fuzzed frames to both sides of a connection, and count the results.

    python tests/fuzz/protocol.py [--frames 1000000] [--seed 0]

A third each of random bytes, of valid frames with a few bytes changed, and of well-formed MessagePack with values that
do not belong there. Each ends as messages or as a ProtocolError, or the script fails with its seed and number; the most
memory that the process held is compared with that of the first tenth.
"""

import argparse
import random
import resource
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from pyes.errors import ProtocolError
from pyes.remote import wire
from pyes.remote.wire.messages import KINDS
from pyes.remote.wire.protocol import HeadSide, NodeSide

LIMIT = 2**20

_ranges = np.array([[0, 3], [7, 9]])
_returns = np.array([1.0, np.nan, -np.inf, 0.0, 5.0])
_lengths = np.array([1, 2, 3, 4, 5], np.uint16)
_status = np.array([0, 1, 2, 3, 0], np.uint8)
_behaviours = np.ones((5, 2), np.float32)
_halves = np.ones((5, 2))
_vector = np.ones(3, np.float32)
EXAMPLES = [
    wire.Hello(wire.PROTOCOL, "0.1.0", "node", 4, 4, 2**33, "0123456789abcdef", False),
    wire.Watch(wire.PROTOCOL, "0.1.0"),
    wire.Ready("job", "digest", "table", "ab12", 3, 1, {"numpy": "2.0"}),
    wire.Unable("no module named here"),
    wire.Done(
        1, "ab12", _ranges, _returns, _lengths, _status, np.ones((2, 2, 3)), _behaviours, _halves, 0.5, ["an error"]
    ),
    wire.Done(1, "ab12", _ranges, _returns, _lengths, None, None, None, None, 0.5, []),
    wire.Leave(1, _ranges),
    wire.Workers(5),
    wire.Log(30, "text"),
    wire.Welcome(),
    wire.Refused("no room"),
    wire.Job("job", {"seed": 3, "task": {"name": "cart_pole", "kwargs": {"a": [1, 2.5, None]}}}, "replay"),
    wire.Learn(3, "ab12", _returns, _lengths, _status, 100, np.ones(6), _behaviours, 0.5),
    wire.Snapshot(1, 3, "ab12", b"state" * 10),
    wire.Open(1, 3, 0, "ab12"),
    wire.Vectors(
        *(1, 3, "ab12", np.ones((2, 3), np.float32), np.array([0, 1]), np.array([5, 6]), _vector[:2], _vector),
        *(np.ones((2, 1), np.int64), 100, _vector, _vector, 10, True, -1.5),
    ),
    wire.Bases(1, _ranges, np.ones((5, 3), np.float32)),
    wire.Grant(1, _ranges, 3, 0.005),
    wire.Withdraw(1, _ranges),
    wire.Granted(1),
    wire.Close(1),
    wire.End(),
    wire.Report('{"nodes": []}'),
    wire.Beat(1.5),
    wire.Echo(1.5),
]
VALID = [wire.encode(each) for each in EXAMPLES]
PARTS: list[list[Any]] = [msgpack.unpackb(each[4:]) for each in VALID]
FIELDS = [field for parts in PARTS for field in parts[1:]]
SCALARS: list[Any] = [
    *(None, True, 0, 1, -1, 2**31, 2**32, 2**63, 2**64 - 1, -(2**63), 0.5, float("nan"), float("inf")),
    *("", "hash", "x" * 200, "ü", b"", b"\x80", b"\xff" * 40, b"\x91" * 200),
]
#: Heads of MessagePack values that promise more than follows, and bytes that it does not have.
BOMBS = [b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x12", b"\xc1"]
BOMBS += [b"\xdb\xff\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\x9f" * 300, b"\xdc\x00\x10" * 300, b"\x81" * 300]


def framed(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + payload


def random_bytes(draw: random.Random) -> bytes:
    data = draw.randbytes(draw.randrange(1, 120))
    return data if draw.random() < 0.2 else framed(data)


def mutated(draw: random.Random) -> bytes:
    data = bytearray(draw.choice(VALID))
    for _ in range(draw.randrange(1, 5)):
        place, way = draw.randrange(len(data) + 1), draw.randrange(5)
        if way == 0:
            data[place : place + 1] = draw.randbytes(1)
        elif way == 1:
            del data[place : place + draw.randrange(1, 5)]
        elif way == 2:
            data[place:place] = draw.randbytes(draw.randrange(1, 5))
        elif way == 3:
            data[place : place + 1] = bytes([draw.choice([0x7F, 0x80, 0xC7, 0xC8, 0xC9, 0xDC, 0xDD, 0xFF])])
        else:
            other = draw.choice(VALID)
            data[place:] = other[draw.randrange(len(other)) :]
    return framed(bytes(data[4:])) if draw.random() < 0.7 else bytes(data)  # with a length that is right, or as it came


def structured(draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        values = list(draw.choice(PARTS))
        for _ in range(draw.randrange(1, 4)):
            values[draw.randrange(len(values))] = value(draw, 0) if draw.random() < 0.7 else draw.choice(FIELDS)
    else:
        values = [draw.choice([*KINDS, draw.randrange(128)]), *(value(draw, 0) for _ in range(draw.randrange(16)))]
    payload = bytearray(msgpack.packb(values))
    if draw.random() < 0.1:
        payload += draw.choice(BOMBS)
    if draw.random() < 0.1:
        payload[draw.randrange(len(payload))] = draw.randrange(256)
    if draw.random() < 0.05:
        payload = bytearray(draw.choice(BOMBS) * draw.randrange(1, 5))
    return framed(bytes(payload))


def value(draw: random.Random, depth: int) -> Any:
    way = draw.random()
    if way < 0.5 or depth > 6:
        return draw.choice(SCALARS)
    if way < 0.8:
        return extension(draw)
    if way < 0.95:
        return [value(draw, depth + 1) for _ in range(draw.randrange(5))]
    return {str(i): value(draw, depth + 1) for i in range(draw.randrange(4))}


def extension(draw: random.Random) -> msgpack.ExtType:
    dimensions, row = draw.randrange(1, 4), [draw.choice([0, 1, 2, 3, 2**31, 2**32 - 1]) for _ in range(2)]
    code = 16 * dimensions + draw.randrange(1, 8) if draw.random() < 0.9 else draw.randrange(128)
    entries = draw.choice([b"", bytes(8), bytes(16), bytes(32), draw.randbytes(draw.randrange(40))])
    return msgpack.ExtType(code, entries + struct.pack(f"<{dimensions - 1}I", *row[: dimensions - 1]))


def head_of_a_node() -> HeadSide:
    head, node = HeadSide(LIMIT), NodeSide(LIMIT)
    head.receive(node.send(EXAMPLES[0]))
    head.send(wire.Welcome())
    return head


def node_in_a_job() -> NodeSide:
    node = NodeSide(LIMIT)
    node.send(EXAMPLES[0])
    node.receive(wire.encode(wire.Welcome()))
    return node


SOURCES: dict[str, Callable[[random.Random], bytes]] = {
    "random bytes": random_bytes,
    "mutated frames": mutated,
    "structured garbage": structured,
}
TARGETS: dict[str, Callable[[], Callable[[bytes], list[wire.Message]]]] = {
    "HeadSide, before the handshake": lambda: HeadSide(LIMIT).receive,
    "HeadSide, after it": lambda: head_of_a_node().receive,
    "NodeSide, after it": lambda: node_in_a_job().receive,
}


def outcome(receive: Callable[[bytes], list[wire.Message]], data: bytes, cut: int) -> str:
    """Feed a frame in two parts and say what came of it."""
    try:
        got = receive(data[:cut]) + receive(data[cut:])
    except ProtocolError as error:
        if "\n" in str(error) or not str(error):
            raise AssertionError(f"not one line: {error!r}") from error
        return "refused"
    return "message" if got else "incomplete"


def held() -> int:
    """Return the most memory that the process has held, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, counts, start, early = random.Random(options.seed), Counter[tuple[str, str, str]](), time.perf_counter(), 0
    for number in range(options.frames):
        source = tuple(SOURCES)[number % len(SOURCES)]
        target = tuple(TARGETS)[number // len(SOURCES) % len(TARGETS)]
        data = SOURCES[source](draw)
        try:
            counts[target, source, outcome(TARGETS[target](), data, draw.randrange(len(data) + 1))] += 1
        except BaseException as error:
            raise SystemExit(f"frame {number} of seed {options.seed}: {error!r}: {data.hex()}") from error
        if number == options.frames // 10:
            early = held()
    seconds = time.perf_counter() - start
    for (target, source, what), count in sorted(counts.items()):
        print(f"{target:<32}{source:<20}{what:<12}{count:>10,}")
    print(f"{options.frames:,} frames in {seconds:.0f} s, none of them anything but a message or a ProtocolError")
    print(f"most memory held: {held() / 1024:.0f} MiB, {early / 1024:.0f} MiB after the first tenth")


if __name__ == "__main__":
    main()
