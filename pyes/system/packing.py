"""Arrays and nested states as bytes, and digests of arrays.

A state is packed as safetensors for its arrays and JSON for the rest, with a checksum over both: no code, no pickle.
Equal arrays give equal bytes and equal digests on every machine.
"""

import hashlib
import json
import struct
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

#: Names of dtypes in safetensors.
_NAMES = {"|b1": "BOOL", "|u1": "U8", "|i1": "I8"} | {
    f"<{kind}{size}": f"{name}{8 * size}"
    for kind, name, sizes in (("f", "F", (2, 4, 8)), ("i", "I", (2, 4, 8)), ("u", "U", (2, 4, 8)))
    for size in sizes
}


def pack(state: dict[str, Any]) -> bytes:
    """Return a state as bytes.

    Parameters
    ----------
    state : dict
        Arrays, JSON values and nested dicts of these; keys contain no dots.
    """
    return b"".join(packed(state))


def packed(state: dict[str, Any]) -> list[bytes | memoryview]:
    """Return the bytes of `pack` in pieces, of which those of contiguous arrays are views.

    Threads go on meanwhile: a large array is only read, for the checksum, without the interpreter's lock.
    """
    arrays: dict[str, Any] = {}
    values = json.dumps(_split(state, "", arrays))
    arrays = {name: np.asarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    header: dict[str, Any] = {"__metadata__": {"values": values, "checksum": _checksum(values, arrays)}}
    pieces: list[bytes | memoryview] = []
    begin = 0
    for name in sorted(arrays, key=lambda each: (-arrays[each].itemsize, each)):  # each is aligned in the file
        array = np.ascontiguousarray(arrays[name])
        end = begin + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype.str], "shape": arrays[name].shape, "data_offsets": [begin, end]}
        pieces.append(_bytes_of(array))
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)) + text, *pieces]


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Return a view of the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def unpack(data: bytes) -> dict[str, Any]:
    """Return the state from the bytes of `pack`.

    Raises
    ------
    ValueError
        The bytes are not what was packed.
    """
    try:
        arrays = safetensors.numpy.load(data)
        values = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        if values["checksum"] != _checksum(values["values"], arrays):
            raise ValueError("its checksum does not hold")
        return _join(json.loads(values["values"]), arrays)
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from error


def _checksum(values: str, arrays: dict[str, Any]) -> str:
    """Return the digest of a state's values and arrays."""
    digest = hashlib.blake2b(values.encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.newbyteorder('<').str} {arrays[name].shape}".encode())
        digest.update(_bytes_of(np.ascontiguousarray(arrays[name])))
    return digest.hexdigest()


def _split(state: dict[str, Any], prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Move the arrays of a nested state into ``arrays`` by their path; return the rest."""
    values: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, np.ndarray):
            arrays[prefix + key] = value
        elif isinstance(value, dict):
            values[key] = _split(value, f"{prefix}{key}.", arrays)
        else:
            values[key] = value
    return values


def _join(values: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """Invert `_split`."""
    for path, array in arrays.items():
        *parents, key = path.split(".")
        place = values
        for parent in parents:
            place = place[parent]
        place[key] = array
    return values


def theta_hash(theta: NDArray[np.float32]) -> str:
    """Hex digest (16 characters, BLAKE2b) of theta's bytes as little-endian float32."""
    return hashlib.blake2b(_bytes_of(np.ascontiguousarray(theta, dtype="<f4")), digest_size=8).hexdigest()


def array_hash(array: NDArray[Any] | None) -> str | None:
    """Hex digest (16 characters, BLAKE2b) of an array's type, shape and little-endian bytes; None for None."""
    if array is None:
        return None
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digest = hashlib.blake2b(f"{little.dtype.str} {little.shape}".encode(), digest_size=8)
    digest.update(little.tobytes())
    return digest.hexdigest()
