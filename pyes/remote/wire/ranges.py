"""Members as ranges: int64 (k, 2), each row ``[begin, end)``.

Owns the form in which head and nodes send indices of members. Invariant: ranges that pass `check` are ascending,
disjoint and not empty, and their members can be counted without listing them.
"""

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

#: All indices of members are below this.
BOUND = 2**31

#: Maximum number of ranges in one message.
_RANGES = 2**16


def check(ranges: Int64Array) -> None:
    """Raise ValueError unless int64 (k, 2) are valid ranges."""
    if ranges.shape[1] != 2 or len(ranges) > _RANGES:
        raise ValueError(f"got shape {ranges.shape}, expected (k, 2) with k <= {_RANGES}")
    before = 0
    for begin, end in ranges.tolist():  # for a few ranges, a loop is faster than NumPy
        if not before <= begin < end <= BOUND:
            raise ValueError(f"got [{begin}, {end}), expected ranges in [{before}, {BOUND}), ascending and not empty")
        before = end


def count(ranges: Int64Array) -> int:
    """Return the number of members in the ranges."""
    return sum(end - begin for begin, end in ranges.tolist())


def ranges_of(members: Int64Array) -> Int64Array:
    """Return the fewest ranges that hold exactly these members.

    Parameters
    ----------
    members : int64 (n,)
        Ascending, each once.

    Raises
    ------
    ValueError
        They are not ascending.
    """
    steps = np.diff(members)
    if (steps < 1).any():
        raise ValueError("members: got numbers that do not ascend, expected each once and in order")
    if not len(members):
        return np.empty((0, 2), np.int64)
    cuts = np.flatnonzero(steps > 1)
    begins = members[np.concatenate(([0], cuts + 1))]
    ends = members[np.concatenate((cuts, [len(members) - 1]))] + 1
    return np.stack((begins, ends), axis=1)


def members_of(ranges: Int64Array) -> Int64Array:
    """Return the members of ranges in ascending order: a new int64 (n,).

    Check `count` first for received ranges: a few bytes may describe two billion members.
    """
    if len(ranges) == 1:
        return np.arange(ranges.item(0), ranges.item(1))
    lengths = ranges[:, 1] - ranges[:, 0]
    before = np.cumsum(lengths) - lengths
    members: Int64Array = np.repeat(ranges[:, 0] - before, lengths)
    members += np.arange(len(members))
    return members
