"""A digest of the kernels' results: builds with equal digests give equal numbers.

Owns the inputs, which come only from the kernels' own streams. Invariant: the digest is equal for all machines,
instruction sets and compilers; a build with another one is wrong (csrc/pyes_kernels.h, DETERMINISM RULE). A change
that changes it changes users' results.
"""

import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.networks.action import MODES
from pyes.networks.program import Activation, Instruction, Op
from pyes.numerics.streams import Purpose

Float32Array = NDArray[np.float32]

_SEED = 0x9E3779B97F4A7C15  # any number with bits in both halves
_DIM = 1037  # not a multiple of a vector, a tile or a batch
_START = 2**34 - 2048  # the numbers of the table's blocks exceed 32 bits soon after it
_SLICES = 37


@functools.cache
def digest() -> str:
    """Return the digest of the kernels, 16 hex characters; computed once per process in milliseconds."""
    return digest_of(None)


def digest_of(level: str | None) -> str:
    """Return the digest of the kernels of a level in ``_core.levels()`` (default: the best)."""
    hashed = hashlib.blake2b(digest_size=8)
    for array in _outputs(level):
        hashed.update(array.tobytes())
    return hashed.hexdigest()


def _outputs(level: str | None) -> Iterator[NDArray[Any]]:
    yield from _streams()
    for dtype in (np.float32, np.uint16, np.int8):
        table = np.empty(8192, dtype)
        _core.fill_noise(table, _SEED, _START, level=level)
        yield table
        yield from _slices(table, level)
    yield from _updates(level)
    yield from _policies(level)
    yield from _episodes(level)
    yield _rays()


def _normals(size: int, start: int = 0) -> Float32Array:
    out = np.empty(size, np.float32)
    _core.fill_noise(out, _SEED, start)
    return out


def _streams() -> Iterator[NDArray[Any]]:
    bits, offsets, seeds = np.empty(101, np.uint32), np.empty(101, np.int64), np.empty(101, np.int64)
    _core.stream_bits(_SEED, Purpose.ACTION, 3, 5, 7, bits)
    _core.draw_offsets(_SEED, Purpose.OFFSET, 3, 2**40 + 1, offsets)
    _core.draw_seeds(_SEED, Purpose.ENVIRONMENT, 3, 7, seeds)
    yield from (bits, offsets, seeds)


def _slices(table: NDArray[Any], level: str | None) -> Iterator[Float32Array]:
    """Yield perturbations and sums over slices of a table."""
    theta, deviation = _normals(_DIM), np.abs(_normals(_DIM, 5000)) + np.float32(0.5)
    offsets = np.empty(_SLICES, np.int64)
    _core.draw_offsets(_SEED, Purpose.OFFSET, 0, len(table) - _DIM + 1, offsets)
    weights, spread_weights = _normals(_SLICES, 7000), _normals(_SLICES, 8000)
    out = np.empty((6, _DIM), np.float32)
    _core.perturb(theta, table, int(offsets[0]), 0.02, out[0], level=level)
    _core.perturb(theta, table, int(offsets[1]), -0.3, out[1], deviation=deviation, level=level)
    _core.weighted_sum(table, offsets, weights, out[2], level=level)
    out[3] = theta
    _core.add_slices(table, offsets, weights, out[3], level=level)
    _core.weighted_moments(table, offsets, weights, spread_weights, out[4], out[5], level=level)
    yield out


def _updates(level: str | None) -> Iterator[Float32Array]:
    """Yield ranks, and parameters after some steps of every optimiser."""
    returns = np.round(4 * _normals(301, 9000)).astype(np.float64)  # with ties
    returns[:3] = np.inf, -np.inf, np.nan
    ranks = np.empty(301, np.float32)
    _core.centered_ranks(returns, ranks)
    yield ranks
    theta, deviation = np.tile(_normals(_DIM), (4, 1)), np.tile(np.abs(_normals(_DIM, 2000)) + np.float32(0.5), (2, 1))
    first, second = np.zeros((3, _DIM), np.float32), np.zeros(_DIM, np.float32)
    for step in range(1, 4):
        gradient, spread = _normals(_DIM, 4096 * step), _normals(_DIM, 65536 * step)
        _core.adam_step(theta[0], gradient, first[0], second, step, 0.01, 0.9, 0.999, 1e-8, 0.005, level=level)
        _core.sgd_step(theta[1], gradient, first[1], 0.01, 0.9, 0.005, level=level)
        _core.clipup_step(theta[2], gradient, first[2], 0.075, 0.9, 0.15, 0.005, level=level)
        _core.deviation_step(deviation[0], spread, 0.1, 0.2, level=level)
        _core.snes_step(theta[3], deviation[1], gradient, spread, 1.0, 0.1, level=level)
    yield from (theta, deviation, first, second)


def _policies(level: str | None) -> Iterator[NDArray[Any]]:
    """Yield outputs of networks with every operation and activation, and actions of every mode."""
    for activation in Activation:
        yield _forward([Instruction(Op.LINEAR, 9, 19, 0, 9 * 19, activation)], 9, level)
    for op in (Op.RNN, Op.GRU, Op.LSTM):
        yield _forward(_recurrent(op), 9, level)
    yield _forward(_image(scale=-1), 2 * 9 * 8, level)
    reference = _normals(5 * 2 * 9 * 8, 30_000).reshape(5, -1)
    yield _forward(_image(scale=1000), 2 * 9 * 8, level, reference)
    for action in MODES:
        yield _actions(action, level)


def _recurrent(op: Op) -> list[Instruction]:
    """Return a recurrent layer of 11 units, and a linear one."""
    weights, memory = op.blocks * 11 * 9, op.blocks * 11 * 11
    bias = weights + memory
    end = bias + 2 * op.blocks * 11
    activation = Activation.TANH if op is Op.RNN else Activation.IDENTITY
    first = Instruction(op, 9, 11, 0, bias, activation, weights, bias + op.blocks * 11)
    return [first, Instruction(Op.LINEAR, 11, 3, end, end + 33, Activation.TANH)]


def _image(scale: int) -> list[Instruction]:
    """Return a convolution of 6 filters over an image of (2, 9, 8), and a linear layer."""
    values = 2 * 9 * 8
    places = 4 * 3  # positions of a kernel of 3 with a stride of 2
    first = Instruction(Op.SCALE, values, values, -1, -1, Activation.IDENTITY, divisor=255)
    image = {"channels": 2, "height": 9, "width": 8, "kernel": 3, "stride": 2, "scale_offset": scale}
    second = Instruction(Op.CONV, values, 6 * places, 0, 108, Activation.GELU, **image)
    return [first, second, Instruction(Op.LINEAR, 6 * places, 4, 114, 114 + 24 * places, Activation.IDENTITY)]


def _forward(
    rows: list[Instruction], observation_size: int, level: str | None, reference: Float32Array | None = None
) -> Float32Array:
    runner = _core.PolicyRunner(
        np.array(rows, np.int64), observation_size, action="argmax", level=level, reference_batch=reference
    )
    runner.load(_normals(runner.dim), _normals(runner.dim, 40_000), 0, 0.1)
    runner.begin_episode(_SEED, 1, 2, 3)
    observations = 3 * _normals(6 * observation_size, 20_000).reshape(6, observation_size)
    return np.array([runner.forward(each) for each in observations])


def _actions(action: str, level: str | None) -> NDArray[Any]:
    """Return actions, with noise where the mode allows it, and sums of normalised observations."""
    rules, widths = (("argmax", "tanh", "sign"), (4, 1, 1)) if action == "mixed" else ((), ())
    shape = (3,) if action not in ("argmax", "mixed") else ()
    bins, outputs = {"bins": (5, 15), "mixed": (0, 6)}.get(action, (0, 3))
    runner = _core.PolicyRunner(
        np.array([Instruction(Op.LINEAR, 9, outputs, 0, 9 * outputs, Activation.TANH)], np.int64),
        9,
        action=action,
        low=None if action == "argmax" else np.full(3, -0.5, np.float32),
        high=None if action == "argmax" else np.full(3, 1.5, np.float32),
        bins=bins,
        action_shape=shape,
        action_noise=0.0 if action in ("argmax", "bins") else 0.1,
        rules=rules,
        widths=widths,
        level=level,
    )
    runner.load(_normals(runner.dim))
    runner.normalize(_normals(9, 100), np.abs(_normals(9, 200)), 5.0)
    runner.begin_episode(_SEED, 1, 2, 3)
    sums = np.zeros((2, 9))
    runner.collect(sums)
    actions = [runner.act(each) for each in _normals(54, 300).reshape(6, 9)]
    return np.concatenate([np.asarray(actions, np.float64).ravel(), sums.ravel()])


def _episodes(level: str | None) -> Iterator[NDArray[Any]]:
    """Yield return, length and last observation of an episode of every environment in C."""
    for _, address in sorted(_core.own_environments().items()):
        environment = _core.CompiledEnvironment(address)
        low, high = environment.action_bounds
        size, outputs = environment.observation_size, environment.choices or len(low)
        runner = _core.PolicyRunner(
            np.array([Instruction(Op.LINEAR, size, outputs, 0, size * outputs, Activation.IDENTITY)], np.int64),
            size,
            action="argmax" if environment.choices else "clip",
            low=None if environment.choices else low,
            high=None if environment.choices else high,
            action_shape=() if environment.choices else (outputs,),
            level=level,
        )
        runner.load(_normals(runner.dim))
        runner.begin_episode(_SEED, 1, 2, 3)
        total, length, observation = runner.run(environment, _SEED, 100)
        yield np.array([total, length, *observation], np.float64)


def _rays() -> Float32Array:
    """Return where rays meet segments and squares that stand on their corners."""
    square = np.array([(0, -1, 0.6, -0.8), (1, 0, 0.6, 0.8), (0, 1, -0.6, 0.8), (-1, 0, -0.6, -0.8)], np.float32)
    squares = np.tile(square, (7, 1, 1))
    squares[:, :, :2] += 5 * _normals(14, 600).reshape(7, 1, 2)
    rays = _core.Rays(_normals(202, 400).reshape(101, 2).astype(np.float64), 5 * _normals(84).reshape(21, 4), squares)
    out = np.empty(101, np.float32)
    rays.cast(0.25, -0.5, out)
    return out
