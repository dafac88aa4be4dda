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


def constant(theta: NDArray[np.float32]) -> float:
    return 3.0


def half(theta: NDArray[np.float32]) -> float:
    """Raise for a third of all arguments, return NaN for another."""
    if theta[0] > 0.1:
        raise ValueError("too far\nto the right")
    return -float(theta @ theta) if theta[0] > -0.1 else float("nan")


def unlucky(theta: NDArray[np.float32]) -> float:
    """Raise for about one argument in ten, in two places, with another message each time."""
    luck = int(theta.view(np.uint32).sum()) % 20
    if luck == 0:
        raise RuntimeError(f"no luck with {theta[0]}")
    return float(-(theta @ theta)) / (luck != 1)


def hollow(theta: NDArray[np.float32]) -> float:
    """Return NaN near the optimum, where the center of a run starts if all its parameters are zero."""
    distance = float(theta @ theta)
    return -distance if distance > 1e-3 else float("nan")


def broken(theta: NDArray[np.float32]) -> float:
    raise ValueError("no value,\nnot even one")


def silent(theta: NDArray[np.float32]) -> Any:
    return None


NUMBER = 3
