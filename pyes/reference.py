"""NumPy twins of the compiled kernels: the same results, bit for bit, in plain vectorised Python.

Owns the readable definition of each kernel, against which tests compare ``pyes._core``. Must not import ``_core``, and
does not check its arguments. Every operation is on float32 and rounds once, as in C; float64 appears only where the C
kernel uses double.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[Any]  # float32, uint16 (bfloat16) or int8
Float32 = NDArray[np.float32]
UInt32 = NDArray[np.uint32]
UInt64 = NDArray[np.uint64]

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)

# Coefficients, ascending, from tools/fit_normal.py: -log2(1 + f), then x / t = P(L) / Q(L).
_FINE_LOG = (1.4520319e-06, -1.4427179, 0.72106105, -0.47920567, 0.36822116, -0.32330444, 0.20552976)
_FINE_TOP = (2.5066333, 0.6451214, 0.09050305, 0.008454753, 0.00051824696, 9.460766e-06)
_FINE_BOTTOM = (1.0, 0.07591265, 0.016048653, 0.00087754475, 4.1364798e-05, 1.5760489e-07)
_COARSE_LOG = (9.265852e-06, -1.4425493, 0.7199233, -0.487001, 0.39703816, -0.2538457)
_COARSE_TOP = (2.5068383, 0.45281592, 0.018384958, -0.003511877, 0.00020614831, -4.4579506e-06)
_COARSE_SPREAD = np.uint32(0x58158A70)  # bits of 4 q (1 - q) * 2**62 where |x| reaches 127.1 / 32


def philox(counter: UInt32, seed: int) -> UInt32:
    """Apply Philox4x32-10 (Salmon et al. 2011) to counters uint32 (n, 4) under a 64-bit key: uint32 (n, 4)."""
    x0, x1, x2, x3 = (counter[:, k].astype(np.uint64) for k in range(4))
    key0, key1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = x0 * np.uint64(0xD2511F53), x2 * np.uint64(0xCD9E8D57)
        x0, x1 = (p1 >> _SHIFT) ^ x1 ^ np.uint64(key0), p1 & _LOW
        x2, x3 = (p0 >> _SHIFT) ^ x3 ^ np.uint64(key1), p0 & _LOW
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3], axis=1).astype(np.uint32)


def stream_bits(seed: int, purpose: int, generation: int, member: int, episode: int, out: UInt32) -> None:
    """Fill ``out``, uint32 (n,), with the first words of a stream."""
    counter = np.zeros(((len(out) + 3) // 4, 4), np.uint32)
    counter[:, 0] = np.arange(len(counter))
    counter[:, 1:] = generation, member, purpose << 24 | episode
    out[:] = philox(counter, seed).reshape(-1)[: len(out)]


def _member_words(seed: int, purpose: int, generation: int, episode: int, count: int) -> UInt64:
    counter = np.zeros((count, 4), np.uint32)
    counter[:, 1] = generation
    counter[:, 2] = np.arange(count)
    counter[:, 3] = purpose << 24 | episode
    return philox(counter, seed).astype(np.uint64)


def draw_offsets(seed: int, purpose: int, generation: int, bound: int, out: NDArray[np.int64]) -> None:
    """Fill ``out``, int64 (n,), with one offset per member, uniform in [0, bound)."""
    words = _member_words(seed, purpose, generation, 0, len(out))
    uniform = ((words[:, 0] << _SHIFT | words[:, 1]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    out[:] = np.floor(uniform * float(bound)).astype(np.int64)


def draw_seeds(seed: int, purpose: int, generation: int, episode: int, out: NDArray[np.int64]) -> None:
    """Fill ``out``, int64 (n,), with one 31-bit environment seed per member."""
    out[:] = _member_words(seed, purpose, generation, episode, len(out))[:, 0] >> np.uint64(1)


def _center_and_spread(words: UInt32) -> tuple[Float32, Float32]:
    """Split words into t with the sign of x, in units of 2**-32, and 4 q (1 - q), in units of 2**-62."""
    negative = words >> np.uint32(31) == 1
    magnitude = np.where(negative, ~words, words)
    half = np.float32(0.5)
    t = magnitude.astype(np.float32) + half
    q = (magnitude ^ np.uint32(0x7FFFFFFF)).astype(np.float32) + half
    return np.where(negative, -t, t), q * (t + np.float32(2.0**31))


def _exponent_and_mantissa(spread: Float32) -> tuple[Float32, Float32]:
    """Split v * 2**62 into the exponent of v and f, with 1 + f in [sqrt(1/2), sqrt(2))."""
    sqrt_half = 0x3F3504F3
    above = spread.view(np.uint32) - np.uint32(sqrt_half + (62 << 23))
    mantissa = ((above & np.uint32(0x007FFFFF)) + np.uint32(sqrt_half)).view(np.float32)
    return (above.view(np.int32) >> 23).astype(np.float32), mantissa - np.float32(1)


def _halves(coefficients: tuple[float, ...], x: Float32, unit: float = 1.0) -> Float32:
    """Evaluate a polynomial of degree 5 as even(x**2) + x * odd(x**2)."""
    c: list[Any] = [np.float32(k) * np.float32(unit) for k in coefficients]
    square = x * x
    value: Float32 = (c[0] + square * (c[2] + square * c[4])) + x * (c[1] + square * (c[3] + square * c[5]))
    return value


def normal_of_bits(words: UInt32) -> Float32:
    """Turn words, uint32 (n,), into standard normals; absolute error below 2e-6, see csrc/kernels/normal.h."""
    center, spread = _center_and_spread(words)
    exponent, f = _exponent_and_mantissa(spread)
    c = [np.float32(k) for k in _FINE_LOG]
    square = f * f
    high = (c[4] + f * c[5]) + square * c[6]
    log = ((c[0] + f * c[1]) - exponent) + square * ((c[2] + f * c[3]) + square * high)
    normals: Float32 = center * _halves(_FINE_TOP, log, 2.0**-32) / _halves(_FINE_BOTTOM, log)
    return normals


def steps_of_bits(words: UInt32) -> NDArray[np.int8]:
    """Turn words, uint32 (n,), into normals in steps of 1/32, clipped to +-127; error below 1e-4 before rounding."""
    center, spread = _center_and_spread(words)
    exponent, f = _exponent_and_mantissa(np.maximum(spread, _COARSE_SPREAD.view(np.float32)))
    c = [np.float32(k) for k in _COARSE_LOG]
    square = f * f
    log = ((c[0] + f * c[1]) - exponent) + square * ((c[2] + f * c[3]) + square * (c[4] + f * c[5]))
    steps: NDArray[np.int8] = np.rint(center * _halves(_COARSE_TOP, log, 2.0**-27)).astype(np.int8)
    return steps


def _bfloat16(normals: Float32) -> NDArray[np.uint16]:
    """Round float32 to bfloat16, to nearest even."""
    bits = normals.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def fill_noise(out: Table, seed: int, start: int = 0) -> None:
    """Fill ``out``, float32, uint16 (bfloat16) or int8 (n,), with the table's entries from ``start`` on."""
    blocks = np.arange(start // 4, (start + len(out) + 3) // 4, dtype=np.uint64)
    counter = np.zeros((len(blocks), 4), np.uint32)
    counter[:, 0], counter[:, 1] = blocks & _LOW, blocks >> _SHIFT
    words = philox(counter, seed).reshape(-1)[start % 4 : start % 4 + len(out)]
    if out.dtype == np.int8:
        out[:] = steps_of_bits(words)
    else:
        normals = normal_of_bits(words)
        out[:] = normals if out.dtype == np.float32 else _bfloat16(normals)


def _stored(table: Table) -> tuple[Float32, np.float32]:
    """Return a table's stored values as float32, and the unit by which to multiply them."""
    if table.dtype == np.uint16:
        return (table.astype(np.uint32) << np.uint32(16)).view(np.float32), np.float32(1)
    return table.astype(np.float32), np.float32(1 / 32 if table.dtype == np.int8 else 1)


def perturb(
    theta: Float32, table: Table, offset: int, scale: float, out: Float32, *, deviation: Float32 | None = None
) -> None:
    """Compute ``out = theta + scale * slice``, or ``theta + scale * deviation * slice``."""
    entries, unit = _stored(table[offset : offset + len(theta)])
    factor = np.float32(scale) * unit
    out[:] = theta + (factor if deviation is None else factor * deviation) * entries


def weighted_sum(table: Table, offsets: NDArray[np.int64], weights: Float32, out: Float32) -> None:
    """Compute ``out[j] = sum_i weights[i] * table[offsets[i] + j]``, in the order given."""
    out[:] = 0
    add_slices(table, offsets, weights, out)


def add_slices(table: Table, offsets: NDArray[np.int64], weights: Float32, out: Float32) -> None:
    """Compute ``out[j] += sum_i weights[i] * table[offsets[i] + j]``, in the order given."""
    for offset, weight in zip(offsets.tolist(), weights, strict=True):
        entries, unit = _stored(table[offset : offset + len(out)])
        out += (weight * unit) * entries


def weighted_moments(
    table: Table,
    offsets: NDArray[np.int64],
    weights: Float32,
    spread_weights: Float32,
    mean: Float32,
    spread: Float32,
) -> None:
    """Compute ``mean[j] = sum_i weights[i] * e`` and ``spread[j] = sum_i spread_weights[i] * (e * e - 1)``.

    ``e`` is entry ``offsets[i] + j`` of the table as a normal number. Offsets and weights have shape (n,); mean and
    spread, float32 (dim,), are overwritten.
    """
    mean[:] = 0
    spread[:] = 0
    for offset, weight, spread_weight in zip(offsets.tolist(), weights, spread_weights, strict=True):
        stored, unit = _stored(table[offset : offset + len(mean)])
        entries = unit * stored
        mean += weight * entries
        spread += spread_weight * (entries * entries - np.float32(1))


def centered_ranks(returns: NDArray[np.float64], out: Float32) -> None:
    """Rank returns in [-0.5, 0.5]; ties share their mean rank, NaN ranks lowest."""
    n = len(returns)
    if n < 2:
        out[:] = 0
        return
    order = np.lexsort((returns, ~np.isnan(returns)))  # NaN first
    ordered = returns[order]
    starts = np.concatenate([[True], (ordered[1:] != ordered[:-1]) & ~np.isnan(ordered[1:])])
    first = np.flatnonzero(starts)
    last = np.concatenate([first[1:], [n]]) - 1
    mean_rank = 0.5 * (first + last)
    out[order] = (mean_rank / (n - 1) - 0.5)[np.cumsum(starts) - 1]


def adam_step(
    theta: Float32,
    gradient: Float32,
    m: Float32,
    v: Float32,
    step: int,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    """Take one step of Adam (Kingma & Ba 2015, algorithm 1), uphill, in place, with decoupled weight decay."""
    m[:] = np.float32(beta1) * m + np.float32(1 - beta1) * gradient
    v[:] = np.float32(beta2) * v + np.float32(1 - beta2) * (gradient * gradient)
    rate = np.float32(learning_rate / (1 - _power(beta1, step)))
    spread = np.float32(1 / np.sqrt(1 - _power(beta2, step)))
    move = rate * m / (np.sqrt(v) * spread + np.float32(epsilon))
    theta[:] = theta + (move - np.float32(learning_rate * weight_decay) * theta)


def _power(base: float, exponent: int) -> float:
    """Raise to an integer power by squaring, in the order of the C kernel."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def sgd_step(
    theta: Float32,
    gradient: Float32,
    velocity: Float32,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Take one step of gradient ascent with momentum, in place, with decoupled weight decay."""
    velocity[:] = np.float32(momentum) * velocity + gradient
    move = np.float32(learning_rate) * velocity
    theta[:] = theta + (move - np.float32(learning_rate * weight_decay) * theta)


def clipup_step(
    theta: Float32,
    gradient: Float32,
    velocity: Float32,
    learning_rate: float,
    momentum: float,
    max_speed: float,
    weight_decay: float,
) -> None:
    """Take one step of ClipUp (Toklu, Liskowski & Srivastava 2020, algorithm 1), uphill, in place."""
    length = _norm(gradient)
    exact = learning_rate / length if length > 0 else 0.0
    gain = np.float32(exact if exact <= float(np.finfo(np.float32).max) else 0)
    velocity[:] = np.float32(momentum) * velocity + gain * gradient
    speed = _norm(velocity)
    if speed > max_speed:
        velocity *= np.float32(max_speed / speed)
    theta[:] = theta + (velocity - np.float32(learning_rate * weight_decay) * theta)


def _norm(values: Float32) -> float:
    """Euclidean norm in float64: value j goes to partial sum j % 32, then the sums are added in order."""
    squares = values.astype(np.float64) ** 2
    sums = np.zeros(32)
    for first in range(0, len(squares), 32):
        part = squares[first : first + 32]
        sums[: len(part)] += part
    total = 0.0
    for value in sums.tolist():
        total += value
    return float(np.sqrt(total))


def deviation_step(deviation: Float32, gradient: Float32, learning_rate: float, max_change: float) -> None:
    """Change each parameter's sigma by the factor ``1 + learning_rate * gradient``, within ``max_change``, in place."""
    limit = np.float32(max_change)
    deviation += np.clip(np.float32(learning_rate) * gradient, -limit, limit) * deviation


def snes_step(
    theta: Float32,
    deviation: Float32,
    gradient: Float32,
    deviation_gradient: Float32,
    learning_rate: float,
    deviation_rate: float,
) -> None:
    """Take one step of SNES (Schaul, Glasmachers & Schmidhuber 2011, algorithm 1), uphill, in place."""
    theta += np.float32(learning_rate) * deviation * gradient
    deviation *= _exponential(np.float32(0.5 * deviation_rate) * deviation_gradient)


# Policies. A row is an instruction of ``PolicyRunner``; op 0 is linear, 1 rnn, 2 gru, 3 lstm, 4 conv, 5 scale.

_GATES = {0: 1, 1: 1, 2: 3, 3: 4}


class PolicyNetwork:
    """The forward pass of ``PolicyRunner``, one timestep per call, with recurrent states.

    Parameters
    ----------
    instructions : int64 (n, 8 or 15)
    theta : float32 (dim,)
    reference_batch : uint8 or float32 (count, inputs)
        For normalised layers.

    Attributes
    ----------
    folded : dict of int to (float32 (rows,), float32 (rows,))
        For the index of each normalised layer: the scale of its weights and the bias after them.
    """

    def __init__(
        self, instructions: NDArray[np.int64], theta: Float32, reference_batch: NDArray[Any] | None = None
    ) -> None:
        rows: list[list[int]] = instructions.tolist()
        self._rows = [row if len(row) > 8 else [*row, 0, 0, 0, 0, 0, 0, -1] for row in rows]
        self._packed = [_packed_layer(row, theta) for row in self._rows]
        self.reset()
        self.folded: dict[int, tuple[Float32, Float32]] = {}
        self._batch = [] if reference_batch is None else [each.astype(np.float32) for each in reference_batch]
        self._batch_at = 0  # index of the layer whose inputs are in _batch
        for k, row in enumerate(self._rows):
            if row[14] >= 0:
                self._normalize(k, theta)

    def reset(self) -> None:
        """Begin an episode: set hidden and cell states to zero."""
        self._states = [np.zeros((2, row[2] if _remembers(row[0]) else 0), np.float32) for row in self._rows]  # h and c

    def forward(self, values: Float32) -> Float32:
        """Return the outputs, float32 (outputs,), for an input, float32 (inputs,)."""
        for k in range(len(self._rows)):
            values = self._activated(k, self._mapped(k, values))
        return values

    def _mapped(self, k: int, values: Float32) -> Float32:
        """Return the results of layer ``k`` before activation: (outputs,), or all gates."""
        row, (bias, weights) = self._rows[k], self._packed[k]
        if row[0] == 5:
            return values * (np.float32(1) / np.float32(row[13]))
        if row[0] == 4:
            sums = np.empty((_pixels(row), len(bias)), np.float32)
            sums[:] = bias
            for x, column in zip(_windows(row, values).T, weights, strict=True):
                sums += x[:, None] * column
            return np.ascontiguousarray(sums.T).reshape(-1)
        joined = np.concatenate([values, self._states[k][0]])
        gates = bias.copy()
        for x, column in zip(joined, weights, strict=True):  # in order, one rounded product and sum each
            gates += x * column
        return gates

    def _activated(self, k: int, gates: Float32) -> Float32:
        row, state = self._rows[k], self._states[k]
        values = _cell(row[0], gates.reshape(4, -1), state) if row[0] in (2, 3) else activated(row[5], gates)
        if _remembers(row[0]):
            state[0] = values
        return values

    def _normalize(self, k: int, theta: Float32) -> None:
        """Compute the statistics of layer ``k`` over the batch and include them in its weights."""
        row, (bias, weights) = self._rows[k], self._packed[k]
        bias[:] = 0
        # As in C, the next layers get these results normalised, not those of the folded weights.
        raw = [self._mapped(k, values) for values in self._behind(k)]
        sums, squares = np.zeros(len(bias)), np.zeros(len(bias))
        for values in raw:
            for pixel in values.reshape(len(bias), -1).T.astype(np.float64):  # in order
                sums += pixel
                squares += pixel * pixel
        samples = len(raw) * raw[0].size // len(bias)
        mean = sums / samples
        variance = np.maximum(squares / samples - mean * mean, 0.0)
        gain = theta[row[14] : row[14] + len(bias)].astype(np.float64) / np.sqrt(variance + 1e-3)
        shift = theta[row[4] : row[4] + len(bias)].astype(np.float64) if row[4] >= 0 else np.zeros(len(bias))
        scale, offset = gain.astype(np.float32), (shift - mean * gain).astype(np.float32)
        pixels = _pixels(row)
        self._batch = [
            self._activated(k, values * np.repeat(scale, pixels) + np.repeat(offset, pixels)) for values in raw
        ]
        self._batch_at = k + 1
        self._packed[k] = (offset, weights * scale)
        self.folded[k] = (scale, offset)

    def _behind(self, k: int) -> list[Float32]:
        """Return the input of layer ``k`` for each observation of the batch."""
        inputs = self._batch
        for j in range(self._batch_at, k):
            inputs = [self._activated(j, self._mapped(j, values)) for values in inputs]
        return inputs


def _remembers(op: int) -> bool:
    return op in (1, 2, 3)


def _places(row: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a convolution's output."""
    height, width, kernel, stride = row[9:13]
    return (height - kernel) // stride + 1, (width - kernel) // stride + 1


def _pixels(row: Sequence[int]) -> int:
    down, across = _places(row) if row[0] == 4 else (1, 1)
    return down * across


def _windows(row: Sequence[int], values: Float32) -> Float32:
    """Return the window of each pixel, by row, column and channel: (pixels, kernel * kernel * channels)."""
    channels, height, width, kernel, stride = row[8:13]
    image = values.reshape(channels, height, width)
    down, across = _places(row)
    windows = [
        image[:, y * stride : y * stride + kernel, x * stride : x * stride + kernel].transpose(1, 2, 0).reshape(-1)
        for y in range(down)
        for x in range(across)
    ]
    return np.stack(windows)


def _packed_layer(row: Sequence[int], theta: Float32) -> tuple[Float32, Float32]:
    """Return the bias, (width,), and the weights of [x; h] or of a window, (inputs, width), of one linear map."""
    op, inputs, outputs, weight, bias, _, recurrent, second_bias = row[:8]
    if op == 5:
        return np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
    if op == 4:
        return _packed_filters(row, theta)
    rows = _GATES[op] * outputs
    ours = _gates(op, theta, weight, rows, inputs, last=2)
    total = _gates(op, theta, bias, rows, 1, last=2)
    if op:
        ours = np.concatenate([ours, _gates(op, theta, recurrent, rows, outputs, last=3)])
        total = total + _gates(op, theta, second_bias, rows, 1, last=3)
    return total[0], ours


def _packed_filters(row: Sequence[int], theta: Float32) -> tuple[Float32, Float32]:
    channels, kernel = row[8], row[11]
    filters, taps = row[2] // _pixels(row), kernel * kernel * channels
    weights = theta[row[3] : row[3] + filters * taps].reshape(filters, channels, kernel, kernel)
    bias = theta[row[4] : row[4] + filters].copy() if row[4] >= 0 else np.zeros(filters, np.float32)
    return bias, weights.transpose(2, 3, 1, 0).reshape(taps, filters)


def _gates(op: int, theta: Float32, offset: int, rows: int, columns: int, last: int) -> Float32:
    """Return an array of theta transposed; for a GRU, with four blocks: the third one at ``last``, zeros elsewhere."""
    array = np.zeros((rows, columns), np.float32)
    if offset >= 0:
        array += theta[offset : offset + rows * columns].reshape(rows, columns)
    if op != 2:
        return array.T
    blocks = np.zeros((4, rows // 3, columns), np.float32)
    blocks[[0, 1, last]] = array.reshape(3, rows // 3, columns)
    return blocks.reshape(-1, columns).T


def _cell(op: int, gates: Float32, state: Float32) -> Float32:
    """Return the new h of a GRU or an LSTM; an LSTM also updates c, ``state[1]``."""
    one = np.float32(1)
    if op == 2:
        reset, update = _logistic(gates[0]), _logistic(gates[1])
        hidden: Float32 = (one - update) * _tanh(gates[2] + reset * gates[3]) + update * state[0]
        return hidden
    state[1] = _logistic(gates[1]) * state[1] + _logistic(gates[0]) * _tanh(gates[2])
    hidden = _logistic(gates[3]) * _tanh(state[1])
    return hidden


def activated(activation: int, x: Float32) -> Float32:
    """Apply an activation, numbered as in ``PolicyRunner``."""
    one, zero = np.float32(1), np.float32(0)
    forms: dict[int, Any] = {
        0: lambda: x,
        1: lambda: _tanh(x),
        2: lambda: np.where(x < zero, zero, x),
        3: lambda: _logistic(x),
        4: lambda: np.where(x > zero, x, _exponential(x) - one),
        5: lambda: np.where(x < zero, np.float32(0.01) * x, x),
        6: lambda: x * _logistic(x),
        7: lambda: _gelu(x),
        8: lambda: x / (one + np.abs(x)),
    }
    values: Float32 = forms[activation]()
    return values


def _exponential(x: Float32) -> Float32:
    """Return e^x as csrc/kernels/activation.h does: relative error below 2.5e-7, x clipped to [-87, 88]."""
    low, high = np.float32(-87), np.float32(88)
    bounded = np.where(x < low, low, x)
    bounded = np.where(bounded > high, high, bounded)
    shifted = bounded * np.float32(1.44269504) + np.float32(12582912)
    k = shifted - np.float32(12582912)
    r = (bounded - k * np.float32(0.693359375)) + k * np.float32(2.12194440e-4)
    series: Float32 = np.full_like(x, np.float32(1) / np.float32(720))
    for term in (120, 24, 6, 2, 1, 1):
        series = series * r + np.float32(1) / np.float32(term)
    power = (shifted.view(np.uint32) - np.uint32(0x4B400000) + np.uint32(127)) << np.uint32(23)
    return series * power.view(np.float32)


def _tanh(x: Float32) -> Float32:
    one = np.float32(1)
    e = _exponential(np.float32(-2) * np.abs(x))
    return np.copysign((one - e) / (one + e), x)


def _logistic(x: Float32) -> Float32:
    one = np.float32(1)
    values: Float32 = one / (one + _exponential(-x))
    return values


def _gelu(x: Float32) -> Float32:
    """Return the tanh form of GELU (Hendrycks & Gimpel 2016, section 2)."""
    inner: Float32 = np.float32(0.797884561) * (x + np.float32(0.044715) * x * x * x)
    values: Float32 = np.float32(0.5) * x * (np.float32(1) + _tanh(inner))
    return values


def mixed_action(rules: Sequence[str], widths: Sequence[int], outputs: Float32, low: Float32, high: Float32) -> Float32:
    """Return an action of which each component has a rule and so many outputs of its own."""
    ends = np.cumsum(widths)
    groups = np.split(outputs, ends[:-1])
    return np.array([_component(*each) for each in zip(rules, groups, low, high, strict=True)], np.float32)


def _component(rule: str, outputs: Float32, low: np.float32, high: np.float32) -> np.float32:
    known = np.flatnonzero(~np.isnan(outputs))
    best = known[np.argmax(outputs[known])] if len(known) else 0
    match rule:
        case "argmax":
            return np.float32(best)
        case "sign":
            return np.float32(outputs[0] > 0)
        case "bins":
            share = np.float32(best) / np.float32(len(outputs) - 1)
            return _clipped(np.float32(low + (high - low) * share), low, high)
        case "scale":
            share = (_clipped(outputs[0], np.float32(-1), np.float32(1)) + np.float32(1)) * np.float32(0.5)
            return _clipped(np.float32(low + share * (high - low)), low, high)
        case "tanh":
            share = (_tanh(outputs) + np.float32(1))[0] * np.float32(0.5)
            return _clipped(np.float32(low + share * (high - low)), low, high)
        case "clip":
            return _clipped(outputs[0], low, high)
    return np.float32(outputs[0])


def _clipped(x: np.float32, low: np.float32, high: np.float32) -> np.float32:
    above = low if x < low else x  # NaN passes through
    return np.float32(high if above > high else above)
