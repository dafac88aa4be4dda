"""Digests of parameters: equal bytes, equal text, on every machine."""

import hashlib

import numpy as np
from numpy.typing import NDArray


def theta_hash(theta: NDArray[np.float32]) -> str:
    """Hex digest (16 characters, BLAKE2b) of theta's bytes as little-endian float32.

    Parameters
    ----------
    theta : float32 (dim,)    flat parameters
    """
    return hashlib.blake2b(np.ascontiguousarray(theta, dtype="<f4").tobytes(), digest_size=8).hexdigest()
