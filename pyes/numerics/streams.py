"""Counter-based random streams: their purposes, and how a run draws from them.

Every random number of a run is a word of Philox4x32-10 (Salmon et al. 2011) at the counter
``(block, generation, member, purpose << 24 | episode)`` with the key ``seed``. So every process can draw any number in
any order, without a state that could be lost or shared by mistake.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pyes import _core


class Purpose(IntEnum):
    """Purpose of a stream; no two purposes share a word."""

    NOISE = 0
    OFFSET = 1
    ENVIRONMENT = 2
    ACTION = 3
    EVALUATION = 4
    REFERENCE_BATCH = 5
    LIBRARY = 6
    PARENT = 7
    START = 8
    THETA = 9


def offsets(seed: int, generation: int, count: int, bound: int) -> NDArray[np.int64]:
    """Slice offsets of one generation: int64 (count,), uniform in [0, bound)."""
    return _below(bound, seed, Purpose.OFFSET, generation, count)


def parents(seed: int, generation: int, count: int, bound: int) -> NDArray[np.int64]:
    """Parents of the members of one generation: int64 (count,), uniform in [0, bound)."""
    return _below(bound, seed, Purpose.PARENT, generation, count)


def starts(seed: int, count: int, bound: int) -> NDArray[np.int64]:
    """Slice offsets of the initial centers of a run: int64 (count,), uniform in [0, bound)."""
    return _below(bound, seed, Purpose.START, 0, count)


def environment_seeds(seed: int, generation: int, episode: int, count: int) -> NDArray[np.int64]:
    """Environment seeds of members 0..count-1 for one episode of a generation: int64 (count,), 31 bits."""
    return _seeds(seed, Purpose.ENVIRONMENT, generation, episode, count)


def evaluation_seeds(seed: int, count: int) -> NDArray[np.int64]:
    """Environment seeds of the first ``count`` evaluation episodes, equal for all evaluations of a run."""
    return _seeds(seed, Purpose.EVALUATION, 0, 0, count)


def confirmation_seeds(seed: int, count: int) -> NDArray[np.int64]:
    """Environment seeds of episodes that no evaluation of a run has, for a center that was chosen by evaluations."""
    return _seeds(seed, Purpose.EVALUATION, 1, 0, count)


def reference_batch_seeds(seed: int, episode: int) -> tuple[int, int]:
    """Environment and action seed, 31 bits each, of an episode for the reference batch."""
    environment, action = _seeds(seed, Purpose.REFERENCE_BATCH, 0, episode, 2).tolist()
    return environment, action


def reference_batch_places(seed: int, count: int, bound: int) -> NDArray[np.int64]:
    """Index of the reference batch's timestep in each sequence of ``bound``: int64 (count,), uniform in [0, bound)."""
    return _below(bound, seed, Purpose.REFERENCE_BATCH, 1, count)


def library_seed(seed: int, generation: int) -> int:
    """Seed, 31 bits, for the generators of another library's algorithm, whose attempt begins with a generation."""
    return int(_seeds(seed, Purpose.LIBRARY, generation, 0, 1)[0])


def initial_parameters(seed: int, count: int, generation: int = 0) -> NDArray[np.float32]:
    """Draw the parameters with which a run, or an attempt in a later generation, begins: float32 (count,).

    They are uniform in (-1, 1), before scaling.

    Number j is (2 k + 1) / 2**24, where the signed integer k is the upper 24 bits of word j: exact, symmetric, never 0.
    """
    words = np.empty(count, np.uint32)
    _core.stream_bits(seed, Purpose.THETA, generation, 0, 0, words)
    odd: NDArray[np.int32] = (words.view(np.int32) >> 8 << 1) + np.int32(1)
    return odd.astype(np.float32) * np.float32(2.0**-24)


def _below(bound: int, seed: int, purpose: Purpose, generation: int, count: int) -> NDArray[np.int64]:
    out = np.empty(count, np.int64)
    _core.draw_offsets(seed, purpose, generation, bound, out)
    return out


def _seeds(seed: int, purpose: Purpose, generation: int, episode: int, count: int) -> NDArray[np.int64]:
    out = np.empty(count, np.int64)
    _core.draw_seeds(seed, purpose, generation, episode, out)
    return out
