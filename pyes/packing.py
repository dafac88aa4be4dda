"""Nested states as bytes: safetensors for the arrays, JSON for the rest, a checksum over both. No code, no pickle."""

import hashlib
import json
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError


def pack(state: dict[str, Any]) -> bytes:
    """Return a state as bytes.

    Parameters
    ----------
    state : dict    of arrays, JSON values and such dicts, whose keys have no dots
    """
    arrays: dict[str, Any] = {}
    values = json.dumps(_split(state, "", arrays))
    return safetensors.numpy.save(arrays, {"values": values, "checksum": _checksum(values, arrays)})


def unpack(data: bytes) -> dict[str, Any]:
    """Return the state that `pack` was given.

    Raises
    ------
    ValueError    the bytes are not what was packed
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
    """Digest of everything that a snapshot holds."""
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
    """Put the arrays back to where `_split` took them from."""
    for path, array in arrays.items():
        *parents, key = path.split(".")
        place = values
        for parent in parents:
            place = place[parent]
        place[key] = array
    return values
