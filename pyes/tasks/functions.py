"""Test functions of theta, to be maximised.

Owns their formulas; must not know algorithms. Except for `quadratic` they accept any length; they are the usual test
functions of minimisation with the opposite sign: the maximum is 0.
"""

import numpy as np
from numpy.typing import NDArray


def quadratic(theta: NDArray[np.float32]) -> float:
    """Return minus the squared distance of float32 (3,) from (0.5, 0.1, -0.3).

    This is the first example of OpenAI's article "Evolution Strategies as a Scalable Alternative to Reinforcement
    Learning".
    """
    return -float(np.sum((theta - np.array([0.5, 0.1, -0.3])) ** 2))


def sphere(theta: NDArray[np.float32]) -> float:
    """Return minus the squared length; the maximum is at 0."""
    return -float(np.sum(theta.astype(np.float64) ** 2))


def ellipsoid(theta: NDArray[np.float32], condition: float = 100.0) -> float:
    """Return minus a rotated quadratic; the maximum is at 0.

    Curvatures form a geometric sequence from 1 to ``condition``. The rotation is fixed: a reflection at the hyperplane
    normal to (1, 2, ..., dim), then at that normal to (1, ..., 1), so that no axis is parallel to a parameter.
    """
    dim = len(theta)
    rotated = _reflected(_reflected(theta.astype(np.float64), np.arange(1.0, dim + 1)), np.ones(dim))
    return -float(np.sum(condition ** (np.arange(dim) / max(dim - 1, 1)) * rotated**2))


def rosenbrock(theta: NDArray[np.float32]) -> float:
    """Return minus Rosenbrock's valley (1960), chained over two or more parameters; the maximum is at (1, ..., 1)."""
    x = theta.astype(np.float64)
    return -float(np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2))


def rastrigin(theta: NDArray[np.float32]) -> float:
    """Return minus Rastrigin's function (1974), with a local maximum near every integer; the maximum is at 0."""
    x = theta.astype(np.float64)
    return -float(np.sum(x**2 + 10.0 * (1.0 - np.cos(2.0 * np.pi * x))))


def _reflected(x: NDArray[np.float64], normal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reflect x at the hyperplane with a given normal."""
    return x - 2.0 * np.sum(normal * x) / np.sum(normal * normal) * normal
