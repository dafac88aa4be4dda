"""Kernels give equal bits even if a library has changed the processor's arithmetic, and leave it unchanged.

A library linked with -ffast-math makes the processor take subnormal numbers for zero, in the thread that loads it and
in all that this one starts; others change the rounding.
"""

import contextlib
import ctypes
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from strategies import each_level, normals

from pyes import _core

#: Where fenv_t has the control word, which bits of it change results, and settings of these.
WORDS = {
    "x86_64": (28, 0xE040, {"subnormals are zero": 0x8040, "rounding up": 0x4000, "rounding to zero": 0x6000}),
    "aarch64": (0, 7 << 22, {"subnormals are zero": 1 << 24, "rounding up": 1 << 22, "rounding to zero": 3 << 22}),
}
PLACE, MASK, SWITCHES = WORDS.get(platform.machine(), (0, 0, {}))
DIM = 1037

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not SWITCHES, reason="where fenv_t has the control word is known for Linux alone"
)


def control_word() -> int:
    """Return the bits of the control word that change results."""
    environment = ctypes.create_string_buffer(64)
    assert ctypes.CDLL(None).fegetenv(environment) == 0
    return int.from_bytes(environment.raw[PLACE : PLACE + 4], "little") & MASK


@contextlib.contextmanager
def arithmetic(switch: int) -> Iterator[None]:
    """Set bits of the control word of this thread."""
    library = ctypes.CDLL(None)
    before = ctypes.create_string_buffer(64)
    assert library.fegetenv(before) == 0
    word = int.from_bytes(before.raw[PLACE : PLACE + 4], "little") | switch
    changed = before.raw[:PLACE] + word.to_bytes(4, "little") + before.raw[PLACE + 4 :]
    assert library.fesetenv(changed) == 0
    try:
        yield
    finally:
        library.fesetenv(before)


def small(shape: int | tuple[int, ...], seed: int = 0) -> NDArray[np.float32]:
    """Return numbers of any size from subnormal to 1, every tenth a subnormal."""
    exponents = np.random.default_rng(seed).uniform(-45, 0, shape)
    values = normals(shape, seed).astype(np.float64) * 10**exponents
    values.flat[::10] = 1e-40 * np.sign(values.flat[::10])
    return values.astype(np.float32)


def table_jobs(level: str) -> Iterator[Callable[[], list[NDArray[Any]]]]:
    """Yield what fills and reads the noise table; a job makes nothing but its outputs, from inputs made before."""
    offsets, weights, theta, deviation = np.arange(0, 190, 10), small(19), small(DIM, 1), small(DIM, 2)
    for dtype in (np.float32, np.uint16, np.int8):
        table = np.empty(3000, dtype)
        _core.fill_noise(table, 5)
        if dtype == np.float32:
            table[:DIM] = small(DIM, 3)

        def job(table: NDArray[Any] = table) -> list[NDArray[Any]]:
            out = np.empty((6, DIM), np.float32)
            filled = np.empty_like(table)
            _core.fill_noise(filled, 7, level=level)
            _core.perturb(theta, table, 0, 1e-40, out[0], level=level)
            _core.perturb(theta, table, 1, 0.1, out[1], deviation=deviation, level=level)
            _core.weighted_sum(table, offsets, weights, out[2], level=level)
            out[3] = theta
            _core.add_slices(table, offsets, weights, out[3], level=level)
            _core.weighted_moments(table, offsets, weights, weights, out[4], out[5], level=level)
            return [filled, out]

        yield job


def update_jobs(level: str) -> Iterator[Callable[[], list[NDArray[Any]]]]:
    gradient, spread = small(DIM, 4), small(DIM, 5)
    returns = np.array([1e-310, -1e-310, 0, 2e-310, 1, np.nan])

    def steps() -> list[NDArray[Any]]:
        theta = [gradient.copy() for _ in range(8)]
        _core.adam_step(theta[0], gradient, theta[1], np.abs(spread), 3, 1e-3, 0.9, 0.999, 1e-8, 1e-3, level=level)
        _core.sgd_step(theta[2], gradient, theta[3], 1e-3, 0.9, 1e-3, level=level)
        _core.clipup_step(theta[4], gradient, theta[5], 1e-3, 0.9, 0.1, 1e-3, level=level)
        _core.deviation_step(theta[6], spread, 0.1, 0.2, level=level)
        _core.snes_step(theta[7], theta[6], gradient, spread, 0.1, 0.1, level=level)
        return theta

    def ranks() -> list[NDArray[Any]]:
        out = np.empty(6, np.float32)
        _core.centered_ranks(returns, out)
        return [out]

    def streams() -> list[NDArray[Any]]:
        words, offsets, seeds = np.empty(9, np.uint32), np.empty(9, np.int64), np.empty(9, np.int64)
        _core.stream_bits(1, 2, 3, 4, 5, words)
        _core.draw_offsets(1, 2, 3, 2**53 - 1, offsets)
        _core.draw_seeds(1, 2, 3, 4, seeds)
        return [words, offsets, seeds]

    yield from (steps, ranks, streams)


def policy_jobs(level: str) -> Iterator[Callable[[], list[NDArray[Any]]]]:
    """Yield policies of every activation, memory and action, and one with a convolution and a reference batch."""
    end = np.ones(3, np.float32)
    heads: dict[str, dict[str, Any]] = {"argmax": {}, "bins": {"bins": 4}}
    heads |= {name: {"action_noise": 0.1} for name in ("identity", "clip", "scale", "tanh")}
    for activation in range(9):
        for action in heads if activation == 1 else ("identity",):
            outputs = 12 if action == "bins" else 3
            box = {"low": -end, "high": end, "action_shape": (3,)} if action != "argmax" else {}
            rows = np.array([[0, 20, outputs, 0, 20 * outputs, activation, -1, -1]])
            yield policy_job(_core.PolicyRunner(rows, 20, action=action, level=level, **box, **heads[action]))
    for op, blocks in ((1, 1), (2, 3), (3, 4)):
        units = 11
        second = blocks * units * 20
        bias = second + blocks * units * units
        row = [op, 20, units, 0, bias, int(op == 1), second, bias + blocks * units]
        yield policy_job(_core.PolicyRunner(np.array([row]), 20, action="argmax", level=level))
    row = [4, 20, 6 * 6, 0, 24, 1, -1, -1, 1, 4, 5, 2, 1, 0, 30]  # 6 filters of 2 x 2 over 4 x 5 give 12 pixels
    row[2] = 6 * 12
    yield policy_job(
        _core.PolicyRunner(np.array([row]), 20, action="argmax", level=level, reference_batch=small((7, 20), 6))
    )


def policy_job(runner: _core.PolicyRunner) -> Callable[[], list[NDArray[Any]]]:
    theta, mean, inverse_std = small(runner.dim, 7), small(20, 8), np.full(20, 0.5, np.float32)
    doubles = small(20, 10).astype(np.float64)
    observations = [small(20, 9), doubles, small(20, 11).tolist(), small(40, 12)[::2], doubles.astype(np.float16)]
    batch = _core.PolicyBatch([runner])
    slots = np.zeros(1, np.int64)

    def job() -> list[NDArray[Any]]:
        runner.load(theta)
        runner.begin_episode(1, 2, 3, 4)
        sums = np.zeros((2, 20))
        runner.collect(sums)
        runner.normalize(mean, inverse_std, 5.0)
        out = [np.asarray(runner.act(each)) for each in observations]
        runner.normalize(None, None, 0.0)
        out += [runner.forward(each) for each in observations]
        out += [batch.act(doubles[None], slots), batch.act(observations[0][None], slots)]
        return [*out, sums]

    return job


@each_level
@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("jobs", [table_jobs, update_jobs, policy_jobs])
def test_kernels_do_not_depend_on_the_control_word(switch: str, level: str, jobs: Any) -> None:
    for job in jobs(level):
        expected = [each.tobytes() for each in job()]
        with arithmetic(SWITCHES[switch]):
            changed = job()
        assert [each.tobytes() for each in changed] == expected


@pytest.mark.parametrize("switch", SWITCHES)
def test_kernels_leave_the_control_word_as_it_is(switch: str) -> None:
    x, out = np.ones(5, np.float32), np.empty(5, np.float32)
    assert control_word() == 0
    with arithmetic(SWITCHES[switch]):
        before = control_word()
        _core.perturb(x, x, 0, 1.0, out)
        _core.centered_ranks(x.astype(np.float64), out)
        assert control_word() == before != 0


def test_the_switches_are_the_right_ones() -> None:
    tiny, third = np.float32(1e-40), np.float32(3)
    with arithmetic(SWITCHES["subnormals are zero"]):
        flushed = tiny * np.float32(1)
    with arithmetic(SWITCHES["rounding up"]):
        up = np.float32(1) / third
    with arithmetic(SWITCHES["rounding to zero"]):
        down = np.float32(1) / third
    assert (flushed, tiny * np.float32(1)) == (0, tiny)
    assert down < up
