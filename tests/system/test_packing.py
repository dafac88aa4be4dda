"""States as bytes: what comes back, in which pieces they are packed, and that others can read them."""

import numpy as np
import pytest
import safetensors.numpy

from pyes.system import packing

STATE = {
    "theta": np.arange(5, dtype=np.float32),
    "inner": {"sums": np.ones((2, 3)), "turned": np.arange(6).reshape(2, 3).T, "none": np.empty(0, np.int64)},
    "flags": np.array([True, False, True]),
    "scalar": np.array(3, np.uint16),
    "number": 7,
    "list": [1, None, "text"],
}


def test_a_state_comes_back_as_it_was():
    found = packing.unpack(packing.pack(STATE))
    assert (found["number"], found["list"]) == (7, [1, None, "text"])
    for got, expected in [(found[name], STATE[name]) for name in ("theta", "flags", "scalar")] + [
        (found["inner"][name], STATE["inner"][name]) for name in STATE["inner"]
    ]:
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert np.array_equal(got, expected)


def test_a_packed_state_is_a_file_of_safetensors():
    arrays = safetensors.numpy.load(packing.pack(STATE))
    assert np.array_equal(arrays["inner.sums"], STATE["inner"]["sums"])


@pytest.mark.parametrize("dtype", [">f4", ">i8", "<f8"])
def test_arrays_of_any_byte_order_are_packed_alike(dtype):
    array = np.arange(3, dtype=dtype)
    data = packing.pack({"array": array})
    assert data == packing.pack({"array": array.astype(array.dtype.newbyteorder("="))})
    assert np.array_equal(packing.unpack(data)["array"], array)


def test_large_arrays_are_packed_without_a_copy():
    theta = np.zeros(1000, np.float32)
    piece = packing.packed({"theta": theta})[1]
    assert np.shares_memory(np.frombuffer(piece, np.uint8), theta)


@pytest.mark.parametrize("place", [3, 40, -1])
def test_a_changed_byte_is_refused(place):
    data = bytearray(packing.pack(STATE))
    data[place] ^= 1
    with pytest.raises(ValueError):  # noqa: PT011 - any: what is wrong depends on the place
        packing.unpack(bytes(data))
