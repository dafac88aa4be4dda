"""Messages as frames, and frames as messages; bytes in and out, no input and no output.

    frame    length of the payload uint32 (little-endian), payload
    payload  MessagePack array [kind, field, field, ...], fields in the order of the message's class

Invariant: bytes from outside give messages whose fields are checked, or ProtocolError; no more is kept of them than
``Decoder.limit``, and nothing is allocated for a frame that says it is longer.
"""

import struct
from dataclasses import fields
from typing import Any, get_type_hints

import msgpack

from pyes.errors import ProtocolError
from pyes.remote.wire.fields import TEXTS, Field, Piece, unpacked
from pyes.remote.wire.messages import KINDS, PROTOCOL, Hello, Message, Watch

#: Bytes of a payload before the other end has been let in.
HANDSHAKE_LIMIT = 1024

_LENGTH = struct.Struct("<I")
_NUMBERS = {message: number for number, message in KINDS.items()}


def _layout(message: type[Message]) -> list[tuple[str, Field]]:
    """Return the fields of a message and what they may hold, in order."""
    hints = get_type_hints(message, include_extras=True)
    return [(each.name, hints[each.name].__metadata__[0]) for each in fields(message)]


LAYOUTS = {message: _layout(message) for message in KINDS.values()}

#: Items of a list in a payload, at most.
_ITEMS = max(TEXTS, 1 + max(map(len, LAYOUTS.values())))


def encode(message: Message) -> bytes:
    """Return a message as a whole frame.

    Raises
    ------
    ProtocolError
        A field holds what the other end would refuse.
    """
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
    return b"".join(pieces)


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
    """Say why there are not as many fields as there should: the other end may be of another version."""
    if kind in (Hello, Watch) and values and type(values[0]) is int and values[0] != PROTOCOL:
        return f"got protocol {values[0]}, expected {PROTOCOL}; install the same version of pyes-rl on both ends"
    return f"got {len(values)} fields, expected {len(LAYOUTS[kind])}"


class Decoder:
    """Finds the messages in a stream of bytes, however it is cut.

    It cannot be used after an error: where the next frame begins is not known.

    Attributes
    ----------
    limit : int
        Bytes of one frame's payload, at most; may be raised between two messages.
    """

    def __init__(self) -> None:
        self.limit = HANDSHAKE_LIMIT
        self._buffer = bytearray()
        self._failure = ""

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes and return the messages that they complete.

        Raises
        ------
        ProtocolError
            These bytes, or earlier ones, are not frames of this protocol.
        """
        self.append(data)
        messages = []
        while (message := self.next()) is not None:
            messages.append(message)
        return messages

    def append(self, data: bytes) -> None:
        """Take bytes; `next` is to be called until it gives None before more are taken."""
        self._buffer += data

    def next(self) -> Message | None:
        """Return the first message that is complete, and drop its bytes; None when none is.

        Raises
        ------
        ProtocolError
            These bytes, or earlier ones, are not frames of this protocol.
        """
        try:
            return self._next()
        except ProtocolError as error:
            self._failure = self._failure or str(error)
            self._buffer.clear()
            raise

    def _next(self) -> Message | None:
        if self._failure:
            raise ProtocolError(self._failure)
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
