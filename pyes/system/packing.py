"""Arrays and nested states as bytes, and digests of arrays.

A state is packed as safetensors for its arrays and JSON for the rest, with a checksum over both: no code, no pickle.
Equal arrays give equal bytes and equal digests on every machine.
"""

import hashlib
import json
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError


def pack(state: dict[str, Any]) -> bytes:
    """Return a state as bytes.

    Parameters
    ----------
    state : dict
        Arrays, JSON values and nested dicts of these; keys contain no dots.
    """
    arrays: dict[str, Any] = {}
    values = json.dumps(_split(state, "", arrays))
    return safetensors.numpy.save(arrays, {"values": values, "checksum": _checksum(values, arrays)})


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
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
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
    return hashlib.blake2b(np.ascontiguousarray(theta, dtype="<f4").tobytes(), digest_size=8).hexdigest()


def array_hash(array: NDArray[Any] | None) -> str | None:
    """Hex digest (16 characters, BLAKE2b) of an array's type, shape and little-endian bytes; None for None."""
    if array is None:
        return None
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digest = hashlib.blake2b(f"{little.dtype.str} {little.shape}".encode(), digest_size=8)
    digest.update(little.tobytes())
    return digest.hexdigest()
