"""Functions to try an algorithm on: of theta alone, to be maximised.

Owns their formulas; knows nothing of who maximises them.
"""

import numpy as np
from numpy.typing import NDArray


def quadratic(theta: NDArray[np.float32]) -> float:
    """Return minus the squared distance of float32 (3,) from (0.5, 0.1, -0.3); at most 0.

    The example that OpenAI's article "Evolution Strategies as a Scalable Alternative to Reinforcement Learning" begins
    with.
    """
    return -float(np.sum((theta - np.array([0.5, 0.1, -0.3])) ** 2))
