"""Digests of parameters and batches: equal bytes, equal text, on every machine."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def theta_hash(theta: NDArray[np.float32]) -> str:
    """Hex digest (16 characters, BLAKE2b) of theta's bytes as little-endian float32.

    Parameters
    ----------
    theta : float32 (dim,)    flat parameters
    """
    return hashlib.blake2b(np.ascontiguousarray(theta, dtype="<f4").tobytes(), digest_size=8).hexdigest()


def array_hash(array: NDArray[Any] | None) -> str | None:
    """Hex digest (16 characters, BLAKE2b) of an array's type, shape and little-endian bytes; None of None."""
    if array is None:
        return None
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digest = hashlib.blake2b(f"{little.dtype.str} {little.shape}".encode(), digest_size=8)
    digest.update(little.tobytes())
    return digest.hexdigest()
