"""Misaligned arrays, as a view into a buffer of bytes may be: refused by kernels, read by policies as observations."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from strategies import normals

from pyes import _core

DIM = 5


def misaligned(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy that begins one byte behind a multiple of the item size."""
    block = np.zeros(values.nbytes + 1, np.uint8)
    copy = block[1:].view(values.dtype).reshape(values.shape)
    copy[...] = values
    assert not copy.flags.aligned
    return copy


def linear(**options: Any) -> _core.PolicyRunner:
    """Return a policy of DIM inputs and one output, which is their sum."""
    settings: dict[str, Any] = {"action": "identity", "action_shape": (1,)}
    settings |= {"low": np.zeros(1, np.float32), "high": np.ones(1, np.float32)} | options
    made = _core.PolicyRunner(np.array([[0, DIM, 1, 0, -1, 0, -1, -1]]), DIM, **settings)
    made.load(np.ones(DIM, np.float32))
    return made


FLOATS, INTS = np.ones(DIM, np.float32), np.zeros(DIM, np.int64)
BAD = misaligned(FLOATS)
#: What is refused, and the name of the argument in the message.
CALLS: dict[str, Callable[[], object]] = {
    "out": lambda: _core.fill_noise(misaligned(np.zeros(DIM, np.uint16)), 0),
    "theta": lambda: _core.perturb(BAD, FLOATS, 0, 1.0, np.empty(DIM, np.float32)),
    "table": lambda: _core.weighted_sum(misaligned(np.zeros(99, np.uint16)), INTS, FLOATS, np.empty(2, np.float32)),
    "offsets": lambda: _core.weighted_sum(FLOATS, misaligned(INTS), FLOATS, np.empty(1, np.float32)),
    "returns": lambda: _core.centered_ranks(misaligned(np.zeros(DIM)), np.empty(DIM, np.float32)),
    "gradient": lambda: _core.sgd_step(np.ones(DIM, np.float32), BAD, np.zeros(DIM, np.float32), 0.1, 0.9, 0.0),
    "states": lambda: _core.board_remaining(misaligned(np.zeros(DIM, np.int32)), DIM),
    "cursor": lambda: _core.board_offer(misaligned(INTS[:1]), np.zeros(DIM, np.int32), 0, DIM),
    "instructions": lambda: _core.PolicyRunner(misaligned(np.zeros((1, 8), np.int64)), 1, action="argmax"),
    "low": lambda: linear(low=misaligned(np.zeros(1, np.float32))),
    "mean": lambda: linear().normalize(BAD, FLOATS, 5.0),
    "sums": lambda: linear().collect(misaligned(np.zeros((2, DIM)))),
    "slots": lambda: _core.PolicyBatch([linear()]).act(FLOATS[None], misaligned(np.zeros(1, np.int64))),
}


@pytest.mark.parametrize("name", CALLS)
def test_misaligned_array_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: got memory that begins 1 past a multiple of \d bytes, expected"):
        CALLS[name]()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16])
def test_misaligned_observation_is_read_as_any_other(dtype: Any) -> None:
    observation = (10 * normals(DIM)).astype(dtype)
    expected = linear().act(observation)
    np.testing.assert_array_equal(linear().act(misaligned(observation)), expected)
    rows = misaligned(observation[None])
    np.testing.assert_array_equal(_core.PolicyBatch([linear()]).act(rows, INTS[:1]), expected[None])


def test_bytes_and_empty_arrays_are_never_misaligned() -> None:
    _core.fill_noise(np.zeros(4, np.int8)[1:], 0)
    _core.fill_noise(np.frombuffer(bytearray(b""), np.float32), 0)
