"""Functions of theta; ``task.factory`` is "user_functions:NAME", with this folder on the path."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LENGTH = 5


def sphere(theta: NDArray[np.float32], center: float = 0.0) -> float:
    assert (theta.dtype, theta.shape) == (np.float32, (LENGTH,))
    value = -float(np.sum((theta - center) ** 2))
    theta[:] = 7  # what a function does to its argument is its own affair
    return value


def half(theta: NDArray[np.float32]) -> float:
    """Raise for a third of all arguments, return NaN for another."""
    if theta[0] > 0.1:
        raise ValueError("too far\nto the right")
    return -float(theta @ theta) if theta[0] > -0.1 else float("nan")


def broken(theta: NDArray[np.float32]) -> float:
    raise ValueError("no value,\nnot even one")


def silent(theta: NDArray[np.float32]) -> Any:
    return None


NUMBER = 3
