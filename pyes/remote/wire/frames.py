"""Encodes messages as frames and decodes frames to messages; does no input and no output.

    frame    length of the payload uint32 (little-endian), payload
    payload  MessagePack array [kind, field, field, ...], fields in the order of the message's class

Invariant: received bytes give messages with checked fields, or ProtocolError; at most ``Decoder.limit`` of them are
stored, and nothing is allocated for a longer frame.
"""

import struct
from dataclasses import fields
from typing import Any, get_type_hints

import msgpack

from pyes.errors import ProtocolError
from pyes.remote.wire.fields import TEXTS, Field, Piece, unpacked
from pyes.remote.wire.messages import KINDS, PROTOCOL, Hello, Message, Watch

#: Maximum bytes of a payload before the other end has been accepted.
HANDSHAKE_LIMIT = 1024

_LENGTH = struct.Struct("<I")
_NUMBERS = {message: number for number, message in KINDS.items()}


def _layout(message: type[Message]) -> list[tuple[str, Field]]:
    """Return the names and types of a message's fields, in order."""
    hints = get_type_hints(message, include_extras=True)
    return [(each.name, hints[each.name].__metadata__[0]) for each in fields(message)]


LAYOUTS = {message: _layout(message) for message in KINDS.values()}

#: Maximum items of a list in a payload.
_ITEMS = max(TEXTS, 1 + max(map(len, LAYOUTS.values())))


def encode(message: Message) -> bytes:
    """Return a message as a frame.

    Raises
    ------
    ProtocolError
        A field has a value that the other end would reject.
    """
    return b"".join(pieces_of(message))


def pieces_of(message: Message) -> list[Piece]:
    """Return the frame of a message in pieces, without copying large fields; see `encode`."""
    kind = type(message)
    packer = msgpack.Packer()
    pieces: list[Piece] = [b"", packer.pack_array_header(1 + len(LAYOUTS[kind])), packer.pack(_NUMBERS[kind])]
    for name, field in LAYOUTS[kind]:
        try:
            pieces += field.dump(packer, getattr(message, name))
        except ValueError as error:
            raise ProtocolError(f"{kind.__name__}.{name}: {error}") from error
    _check(message)
    length = sum(map(len, pieces))
    if length >= 2**32:
        raise ProtocolError(f"{kind.__name__}: got {length} bytes, expected less than {2**32}")
    pieces[0] = _LENGTH.pack(length)
    return pieces


def _check(message: Message) -> None:
    try:
        message.check()
    except ValueError as error:
        raise ProtocolError(f"{type(message).__name__}.{error}") from error


def _decode(payload: memoryview) -> Message:
    try:
        values = unpacked(payload, _ITEMS, maps=False)
    except ValueError as error:
        raise ProtocolError(f"a frame: {error}") from error
    if type(values) is not list or not values:
        raise ProtocolError(f"a frame: got {type(values).__name__}, expected an array [kind, field, ...]")
    kind = KINDS.get(values[0]) if type(values[0]) is int else None
    if kind is None:
        got = values[0] if type(values[0]) is int else type(values[0]).__name__
        raise ProtocolError(f"a frame: got a message of kind {got}, expected one of {', '.join(map(str, KINDS))}")
    if len(values) != 1 + len(LAYOUTS[kind]):
        raise ProtocolError(f"{kind.__name__}: {_field_count(kind, values[1:])}")
    read = []
    for (name, field), value in zip(LAYOUTS[kind], values[1:], strict=True):
        try:
            read.append(field.load(value))
        except ValueError as error:
            raise ProtocolError(f"{kind.__name__}.{name}: {error}") from error
    message = kind(*read)
    _check(message)
    return message


def _field_count(kind: type[Message], values: list[Any]) -> str:
    """Return the error for a wrong number of fields; the other end may have another version."""
    if kind in (Hello, Watch) and values and type(values[0]) is int and values[0] != PROTOCOL:
        return f"got protocol {values[0]}, expected {PROTOCOL}; install the same version of pyes-rl on both ends"
    return f"got {len(values)} fields, expected {len(LAYOUTS[kind])}"


class Decoder:
    """Decodes the messages in a stream of bytes, independent of how it is split.

    After an error each call raises it again.

    Attributes
    ----------
    limit : int
        Maximum bytes of one frame's payload; may be raised between two messages.
    """

    def __init__(self) -> None:
        self.limit = HANDSHAKE_LIMIT
        self._buffer = bytearray()

    def append(self, data: bytes) -> None:
        """Append bytes; then call `next` until it returns None, before appending more."""
        self._buffer += data

    def next(self) -> Message | None:
        """Return the first complete message, and remove its bytes; None without one.

        Raises
        ------
        ProtocolError
            These bytes are not frames of this protocol.
        """
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self.limit:
            raise ProtocolError(f"a frame: got a length of {length} bytes, expected at most {self.limit}")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view, view[_LENGTH.size : end] as payload:
            message = _decode(payload)
        del self._buffer[:end]
        return message
