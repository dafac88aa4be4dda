"""The types of message fields: their checks and their encoding.

Owns the checks of single fields and the form of arrays; knows no message. Invariant: for any received MessagePack
values, a field has its type and is within its bounds, or ValueError says in one line what is wrong.

An array is an extension. Its code is ``16 * dimensions + number of the dtype``; its data are the entries, little-endian
in C order, then the length of each dimension but the first, which follows from the others, as uint32 little-endian. The
entries come first so that a view of them is aligned.
"""

import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from pyes.remote.wire import ranges

Piece = bytes | memoryview

#: Numbers of dtypes in the encoding.
_NUMBERS = {"<f4": 1, "<f8": 2, "<i8": 3, "|u1": 4, "<u2": 5, "<u4": 6, "<u8": 7}
#: For each extension code: dtype, and format of a row's shape, for arrays of one to three dimensions.
_FORMS = {
    16 * dimensions + number: (np.dtype(name), struct.Struct(f"<{dimensions - 1}I"))
    for name, number in _NUMBERS.items()
    for dimensions in (1, 2, 3)
}
_ARRAY_BYTES = 2**31  # arrays are smaller than this

#: Maximum number of texts in a list.
TEXTS = 16
_NESTING = 16  # maximum nesting of lists and maps in values
_VALUES_BYTES = 2**20
_VALUES_LENGTH = 1024  # maximum length of a list or map in values, so that few bytes cannot cause a large allocation


class Field:
    """The type of a message's field."""

    def check(self, value: Any) -> None:
        """Raise ValueError for an invalid value."""
        raise NotImplementedError

    def dump(self, packer: msgpack.Packer, value: Any) -> list[Piece]:
        """Return a value as bytes of a frame."""
        self.check(value)
        return [packer.pack(value)]

    def load(self, value: Any) -> Any:
        """Return the value from what MessagePack has unpacked."""
        self.check(value)
        return value


def expect(kind: type, value: Any) -> None:
    """Raise ValueError unless the value has exactly this type: True is not an int here."""
    if type(value) is not kind:
        raise ValueError(f"got {type(value).__name__}, expected {kind.__name__}")


@dataclass(frozen=True)
class Whole(Field):
    """An int in [0, high]."""

    high: int = 2**32 - 1

    def check(self, value: Any) -> None:
        """Reject another type or a number out of bounds."""
        expect(int, value)
        if not 0 <= value <= self.high:
            raise ValueError(f"got {value}, expected 0 to {self.high}")


@dataclass(frozen=True)
class Plain(Field):
    """A float or a bool."""

    kind: type

    def check(self, value: Any) -> None:
        """Reject another type."""
        expect(self.kind, value)


@dataclass(frozen=True)
class Text(Field):
    """Text that is never cut."""

    limit: int  # bytes of UTF-8

    def check(self, value: Any) -> None:
        """Reject another type, or text that is too long."""
        expect(str, value)
        if len(value) > self.limit or len(value.encode()) > self.limit:
            raise ValueError(f"got text of {len(value.encode())} bytes, expected at most {self.limit}")


@dataclass(frozen=True)
class Label(Text):
    """A name, a version or a digest: printable, so that it cannot forge a line of a log."""

    def check(self, value: Any) -> None:
        """Reject another type, and text that is too long or not printable."""
        super().check(value)
        if not value.isprintable():
            raise ValueError(f"got {value!r}, expected text that can be printed in one line")


@dataclass(frozen=True)
class Prose(Label):
    """A line for people: when sent, it is cut to the limit, and unprintable characters are replaced."""

    def dump(self, packer: msgpack.Packer, value: Any) -> list[Piece]:
        """Return the text as one line, cut."""
        expect(str, value)
        return super().dump(packer, self.cut(value))

    def cut(self, value: str) -> str:
        """Cut a text to the limit, and replace unprintable characters by spaces."""
        fitting = value.encode(errors="replace")[: self.limit].decode(errors="ignore")
        return "".join(each if each.isprintable() else " " for each in fitting)


@dataclass(frozen=True)
class ProseList(Field):
    """Several lines for people: only the first few are sent, each cut."""

    item: Prose

    def check(self, value: Any) -> None:
        """Reject another type, or too many texts."""
        expect(list, value)
        if len(value) > TEXTS:
            raise ValueError(f"got {len(value)} texts, expected at most {TEXTS}")
        for each in value:
            self.item.check(each)

    def dump(self, packer: msgpack.Packer, value: Any) -> list[Piece]:
        """Return the first texts, each cut."""
        expect(list, value)
        for each in value:
            expect(str, each)
        return super().dump(packer, [self.item.cut(each) for each in value[:TEXTS]])


@dataclass(frozen=True)
class Data(Field):
    """Bytes, limited only by the frame; they may be given as a tuple of pieces, which are not copied."""

    def check(self, value: Any) -> None:
        """Reject another type."""
        expect(bytes, value)

    def dump(self, packer: msgpack.Packer, value: Any) -> list[Piece]:
        """Return the bytes after MessagePack's header of them."""
        pieces = value if type(value) is tuple else (value,)
        for each in pieces:
            if type(each) is not memoryview:
                expect(bytes, each)
        size = sum(map(len, pieces))
        if size < 2**16:
            return [packer.pack(b"".join(pieces))]
        if size >= 2**32:
            raise ValueError(f"got {size} bytes, expected less than {2**32}")
        return [b"\xc6" + struct.pack(">I", size), *pieces]


@dataclass(frozen=True)
class Digest(Field):
    """A digest: lower-case hexadecimal digits, encoded as bytes; "" is none."""

    limit: int  # bytes

    def check(self, value: Any) -> None:
        """Reject another type, and text that is not such a digest."""
        expect(str, value)
        if len(value) > 2 * self.limit or not re.fullmatch("([0-9a-f]{2})*", value):
            raise ValueError(f"got {value[:80]!r}, expected at most {2 * self.limit} hexadecimal digits")

    def dump(self, packer: msgpack.Packer, value: Any) -> list[Piece]:
        """Return the digest as bytes."""
        self.check(value)
        return [packer.pack(bytes.fromhex(value))]

    def load(self, value: Any) -> Any:
        """Return the digits."""
        expect(bytes, value)
        if len(value) > self.limit:
            raise ValueError(f"got a digest of {len(value)} bytes, expected at most {self.limit}")
        return value.hex()


@dataclass(frozen=True)
class Values(Field):
    """A mapping of JSON values, encoded as a separate MessagePack with its own limits."""

    def check(self, value: Any) -> None:
        """Reject values that JSON does not have, and nesting that is too deep."""
        expect(dict, value)
        _check_json(value, _NESTING)

    def dump(self, packer: msgpack.Packer, value: Any) -> list[Piece]:
        """Return the mapping as bytes of MessagePack."""
        self.check(value)
        try:
            data = packer.pack(value)
        except OverflowError as error:
            raise ValueError("got an integer of more than 64 bits") from error
        if len(data) > _VALUES_BYTES:
            raise ValueError(f"got values of {len(data)} bytes, expected at most {_VALUES_BYTES}")
        return [packer.pack(data)]

    def load(self, value: Any) -> Any:
        """Return the mapping."""
        expect(bytes, value)
        if len(value) > _VALUES_BYTES:
            raise ValueError(f"got values of {len(value)} bytes, expected at most {_VALUES_BYTES}")
        return super().load(unpacked(value, maximum=_VALUES_LENGTH))


def _check_json(value: Any, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"got values nested deeper than {_NESTING}")
    if isinstance(value, dict):
        for key in value:
            expect(str, key)
        items = list(value.values())
    elif isinstance(value, list):
        items = value
    else:
        if not (value is None or type(value) in (bool, int, float, str)):
            raise ValueError(f"got {type(value).__name__} among the values, expected what JSON has")
        return
    if len(items) > _VALUES_LENGTH:
        raise ValueError(f"got {len(items)} values in one list, expected at most {_VALUES_LENGTH}")
    for each in items:
        _check_json(each, depth - 1)


@dataclass(frozen=True)
class Array(Field):
    """An array with one of several dtypes and a fixed number of dimensions."""

    dtypes: tuple[str, ...]
    dimensions: int = 1
    optional: bool = False

    def check(self, value: Any) -> None:
        """Reject another type, dtype or number of dimensions."""
        if value is None and self.optional:
            return
        if not isinstance(value, np.ndarray):
            raise ValueError(f"got {type(value).__name__}, expected an array")
        if value.dtype.str not in self.dtypes or value.ndim != self.dimensions:
            names = " or ".join(self.dtypes)
            raise ValueError(f"got {value.dtype} of {value.ndim} dimensions, expected {names} of {self.dimensions}")

    def dump(self, packer: msgpack.Packer, value: Any) -> list[Piece]:
        """Return the array as an extension, without copying contiguous entries."""
        self.check(value)
        if value is None:
            return [packer.pack(None)]
        code = 16 * self.dimensions + _NUMBERS[value.dtype.str]
        dtype, form = _FORMS[code]
        row = value.shape[1:]
        if value.nbytes >= _ARRAY_BYTES:
            raise ValueError(f"got an array of {value.nbytes} bytes, expected less than {_ARRAY_BYTES}")
        if not 0 < math.prod(row) * dtype.itemsize < _ARRAY_BYTES:
            raise ValueError(f"got an array of shape {value.shape}, expected at least one entry a row")
        entries = np.ascontiguousarray(value, dtype).reshape(-1)
        return [_extension_head(code, value.nbytes + form.size), entries.view(np.uint8).data, form.pack(*row)]


def _extension_head(code: int, size: int) -> bytes:
    """Return MessagePack's header of an extension: ext 8, ext 16 or ext 32."""
    if size < 2**8:
        return struct.pack(">BBb", 0xC7, size, code)
    if size < 2**16:
        return struct.pack(">BHb", 0xC8, size, code)
    return struct.pack(">BIb", 0xC9, size, code)


def array_from(code: int, data: bytes) -> NDArray[Any]:
    """Return the array of an extension, a view of ``data``; ValueError if code and data do not fit."""
    if code not in _FORMS:
        raise ValueError(f"got an extension of code {code}, expected an array")
    dtype, form = _FORMS[code]
    size = len(data) - form.size
    if size < 0:
        raise ValueError(f"got an array of {len(data)} bytes, expected a shape of {form.size}")
    row = form.unpack_from(data, size)
    row_bytes = math.prod(row) * dtype.itemsize
    if not 0 < row_bytes < _ARRAY_BYTES or size % row_bytes:
        raise ValueError(f"got {size} bytes for rows of {row_bytes}, {dtype} of shape {row}")
    return np.frombuffer(data, dtype, size // dtype.itemsize).reshape(size // row_bytes, *row)


@dataclass(frozen=True)
class Lengths(Array):
    """Numbers of timesteps: unsigned integers of any width that int64 can hold."""

    dtypes: tuple[str, ...] = ("|u1", "<u2", "<u4", "<u8")

    def check(self, value: Any) -> None:
        """Reject numbers that int64 cannot hold."""
        super().check(value)
        if value.dtype == np.uint64 and value.max(initial=0) >= 2**63:
            raise ValueError(f"got a length of {value.max()}, expected less than {2**63}")


@dataclass(frozen=True)
class Exact(Array):
    """Numbers in float64, encoded as float32 where that has the same bits back: many tasks reward in whole numbers."""

    dtypes: tuple[str, ...] = ("<f8", "<f4")

    def dump(self, packer: msgpack.Packer, value: Any) -> list[Piece]:
        """Return the numbers as an extension."""
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            raise ValueError(f"got {getattr(value, 'dtype', type(value).__name__)}, expected an array of float64")
        with np.errstate(over="ignore", under="ignore"):
            short = value.astype(np.float32)
        same = np.array_equal(short.astype(np.float64).view(np.int64), value.view(np.int64))
        return super().dump(packer, short if same else value)

    def load(self, value: Any) -> Any:
        """Return the numbers in float64."""
        numbers: NDArray[np.float64] = super().load(value).astype(np.float64, copy=False)
        numbers.flags.writeable = False
        return numbers


@dataclass(frozen=True)
class RangesField(Array):
    """Ranges of members: int64 (k, 2), encoded as uint16 or, if needed, uint32 (2k,)."""

    dtypes: tuple[str, ...] = ("<u2", "<u4")

    def dump(self, packer: msgpack.Packer, value: Any) -> list[Piece]:
        """Return the ranges as an extension; ValueError if they are invalid."""
        if not isinstance(value, np.ndarray) or value.dtype != np.int64 or value.ndim != 2:
            raise ValueError(f"got {getattr(value, 'dtype', type(value).__name__)}, expected ranges in int64 (k, 2)")
        ranges.check(value)
        return super().dump(packer, value.ravel().astype(np.uint16 if value.max(initial=0) < 2**16 else np.uint32))

    def load(self, value: Any) -> Any:
        """Return ranges in int64."""
        bounds = super().load(value).astype(np.int64)
        if len(bounds) % 2:
            raise ValueError(f"got {len(bounds)} bounds of ranges, expected two of each")
        wide = bounds.reshape(-1, 2)
        ranges.check(wide)
        return wide


def unpacked(data: bytes | memoryview, maximum: int, *, maps: bool = True) -> Any:
    """Unpack MessagePack whose lists, and maps if allowed, have at most ``maximum`` items; ValueError otherwise."""
    try:
        return msgpack.unpackb(
            data,
            ext_hook=array_from,
            max_array_len=min(maximum, len(data)),
            max_map_len=min(maximum, len(data)) if maps else 0,
        )
    except (ValueError, TypeError, OverflowError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise ValueError(f"cannot unpack: {str(error) or type(error).__name__}") from error
