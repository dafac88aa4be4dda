# cython: language_level=3, cdivision=True
"""The compiled kernels of pyes, as functions of NumPy arrays.

Owns the checks: dtype, shape, contiguity, bounds, aliasing, read-only outputs. A kernel runs only on arguments that
meet its contract in ``csrc/pyes_kernels.h``, which also says what it computes. Large arrays are never copied silently,
and kernels over them release the GIL. Must not compute anything itself. Comments mark each array IN, OUT or both.
"""

from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset
from pyes_kernels cimport *

import math

import numpy as np

cdef object FLOAT32 = np.dtype(np.float32)
cdef object FLOAT64 = np.dtype(np.float64)
cdef object INT32 = np.dtype(np.int32)
cdef object INT64 = np.dtype(np.int64)
cdef object UINT8 = np.dtype(np.uint8)
cdef object UINT32 = np.dtype(np.uint32)
cdef dict TABLE_DTYPES = {FLOAT32: PYES_FLOAT32, np.dtype(np.uint16): PYES_BFLOAT16, np.dtype(np.int8): PYES_INT8}
cdef dict ACTIONS = {
    "argmax": -1,
    "identity": PYES_UNCHANGED,
    "clip": PYES_CLIP,
    "tanh": PYES_SQUASH,
    "bins": PYES_BINS,
}
cdef int COLUMNS = 8  # of an instruction, images apart
cdef list IMAGELESS = [0, 0, 0, 0, 0, 0, -1]  # the columns after those, where there is no image
cdef uint32_t ACTION_PURPOSE = 3  # pyes.streams.Purpose.ACTION


# ---- Checks ----------------------------------------------------------------------------------------------------------

cdef void *_array(str name, object array, object dtype, Py_ssize_t ndim, bint writable) except? NULL:
    """Address of a C-contiguous array's first entry; `dtype` None accepts any."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name}: got {type(array).__name__}, expected a NumPy array")
    if dtype is not None and array.dtype != dtype:
        raise TypeError(f"{name}: got dtype {array.dtype}, expected {dtype}")
    if array.ndim != ndim:
        raise ValueError(f"{name}: got {array.ndim} dimensions (shape {array.shape}), expected {ndim}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: got strides {array.strides}, expected a C-contiguous array")
    if writable and not array.flags.writeable:
        raise ValueError(f"{name}: got a read-only array, expected one that can be written")
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
    cdef void *address = view.buf
    PyBuffer_Release(&view)
    return address


cdef const void *_in(str name, object array, object dtype) except? NULL:
    return _array(name, array, dtype, 1, False)


cdef void *_out(str name, object array, object dtype) except? NULL:
    return _array(name, array, dtype, 1, True)


cdef pyes_dtype _table_dtype(str name, object array) except *:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name}: got {type(array).__name__}, expected a NumPy array")
    if array.dtype not in TABLE_DTYPES:
        raise TypeError(f"{name}: got dtype {array.dtype}, expected float32, uint16 (bfloat16) or int8")
    return TABLE_DTYPES[array.dtype]


cdef int _same_length(str name, object array, Py_ssize_t expected, str other) except -1:
    if len(array) != expected:
        raise ValueError(f"{name}: got length {len(array)}, expected {expected} (the length of {other})")
    return 0


cdef int _disjoint(str name, object array, str other, object other_array) except -1:
    """Contiguous arrays share memory if and only if their address ranges meet."""
    if np.may_share_memory(array, other_array):
        raise ValueError(f"{name}: got an array that overlaps {other}, expected separate memory")
    return 0


cdef uint64_t _integer(str name, object value, object bound) except? 0xFFFFFFFFFFFFFFFF:
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"{name}: got {type(value).__name__}, expected an integer") from None
    if not 0 <= number < bound:
        raise ValueError(f"{name}: got {number}, expected 0 <= {name} < {bound}")
    return number


cdef uint64_t _seed(object seed) except? 0xFFFFFFFFFFFFFFFF:
    return _integer("seed", seed, 1 << 64)


cdef uint32_t _word(str name, object value) except? 0xFFFFFFFF:
    return <uint32_t>_integer(name, value, 1 << 32)


cdef uint32_t _purpose(object value) except? 0xFFFFFFFF:
    return <uint32_t>_integer("purpose", value, 1 << 8)


cdef uint32_t _episode(object value) except? 0xFFFFFFFF:
    return <uint32_t>_integer("episode", value, 1 << 24)


cdef double _at_least(str name, double value, double low) except? -1:
    if not value >= low:
        raise ValueError(f"{name}: got {value}, expected {name} >= {low:g}")
    return value


cdef double _share(str name, double value) except? -1:
    if not 0 <= value < 1:
        raise ValueError(f"{name}: got {value}, expected 0 <= {name} < 1")
    return value


# ---- Levels ----------------------------------------------------------------------------------------------------------

cdef tuple LEVELS = tuple(
    pyes_level_name(<pyes_level>level).decode()
    for level in range(PYES_LEVELS)
    if pyes_level_available(<pyes_level>level)
)
cdef dict LEVEL_NUMBERS = {pyes_level_name(<pyes_level>level).decode(): level for level in range(PYES_LEVELS)}


def levels():
    """Names of the instruction sets that this CPU and build can run, weakest first; all give equal bits."""
    return LEVELS


cdef pyes_level _level(object level) except *:
    cdef object name = LEVELS[-1] if level is None else level
    if name not in LEVELS:
        raise ValueError(f"level: got {level!r}, expected one of {', '.join(LEVELS)} (what this CPU and build can run)")
    cdef int number = LEVEL_NUMBERS[name]
    return <pyes_level>number


# ---- Streams ---------------------------------------------------------------------------------------------------------

def stream_bits(seed, purpose, generation, member, episode, out):  # OUT
    """Fill ``out`` with the first words of the stream (seed, purpose, generation, member, episode).

    Parameters
    ----------
    seed : int              0 <= seed < 2**64, the key
    purpose : int           0 <= purpose < 256, see ``pyes.streams.Purpose``
    generation, member : int    below 2**32
    episode : int           below 2**24
    out : uint32 (n,)       words of Philox4x32-10, any bits

    Raises
    ------
    TypeError, ValueError    an argument of another type, shape or range (message gives got and expected)
    """
    cdef uint32_t *p_out = <uint32_t *>_out("out", out, UINT32)
    cdef int64_t n = len(out)
    cdef uint64_t key = _seed(seed)
    cdef uint32_t c3 = _purpose(purpose), c1 = _word("generation", generation), c2 = _word("member", member)
    cdef uint32_t e = _episode(episode)
    with nogil:
        pyes_stream_bits(n, key, c3, c1, c2, e, p_out)


def draw_offsets(seed, purpose, generation, bound, out):  # OUT
    """Fill ``out``, int64 (n,), with one slice offset for each member 0..n-1: uniform, 0 <= offset < bound <= 2**53."""
    cdef int64_t *p_out = <int64_t *>_out("out", out, INT64)
    cdef int64_t n = len(out), limit = <int64_t>_integer("bound", bound, (1 << 53) + 1)
    cdef uint64_t key = _seed(seed)
    cdef uint32_t c3 = _purpose(purpose), c1 = _word("generation", generation)
    if limit == 0:
        raise ValueError("bound: got 0, expected at least 1")
    with nogil:
        pyes_draw_offsets(n, key, c3, c1, limit, p_out)


def draw_seeds(seed, purpose, generation, episode, out):  # OUT
    """Fill ``out``, int64 (n,), with one environment seed for each member 0..n-1: 0 <= seed < 2**31."""
    cdef int64_t *p_out = <int64_t *>_out("out", out, INT64)
    cdef int64_t n = len(out)
    cdef uint64_t key = _seed(seed)
    cdef uint32_t c3 = _purpose(purpose), c1 = _word("generation", generation), e = _episode(episode)
    with nogil:
        pyes_draw_seeds(n, key, c3, c1, e, p_out)


# ---- Noise table -----------------------------------------------------------------------------------------------------

def fill_noise(out, seed, start=0, *, level=None):  # OUT
    """Fill ``out`` with the standard normals of the table entries [start, start + len(out)).

    Parameters
    ----------
    out : float32, uint16 or int8 (n,)    uint16 holds bfloat16; int8 counts steps of 1/32, held at +-127
    seed : int                            0 <= seed < 2**64
    start : int                           index of the first entry
    level : str, optional                 one of ``levels()``; the best by default

    Raises
    ------
    TypeError, ValueError    an argument of another type, shape or range, or ``out`` is read-only

    Notes
    -----
    Equal bytes whatever way the range is split, on every machine and level. No temporary; releases the GIL.
    """
    cdef pyes_dtype dtype = _table_dtype("out", out)
    cdef void *p_out = _out("out", out, None)
    cdef int64_t n = len(out)
    cdef uint64_t key = _seed(seed), first = _integer("start", start, 1 << 63)
    cdef pyes_level build = _level(level)
    with nogil:
        pyes_fill_noise(build, n, dtype, key, first, p_out)


def perturb(theta, table, offset, scale, out, *, deviation=None, level=None):  # IN, IN, OUT (may be theta), IN
    """Compute ``out = theta + scale * slice``, the slice being ``table[offset : offset + dim]``.

    Parameters
    ----------
    theta : float32 (dim,)
    table : float32, uint16 or int8 (entries,)    a noise table; may be read-only
    offset : int                                  0 <= offset <= entries - dim
    scale : float                                 usually +-sigma
    out : float32 (dim,)                          may be ``theta`` itself, but may not overlap it otherwise
    deviation : float32 (dim,), optional          then the slice counts ``scale * deviation``, parameter by parameter
    level : str, optional                         one of ``levels()``; the best by default

    Raises
    ------
    TypeError, ValueError    the slice leaves the table, lengths or types differ, arrays overlap, ``out`` is read-only

    Notes
    -----
    Each product and the sum are rounded once. O(dim), no temporary; releases the GIL.
    """
    cdef const float *p_theta = <const float *>_in("theta", theta, FLOAT32)
    cdef pyes_dtype dtype = _table_dtype("table", table)
    cdef const char *p_table = <const char *>_in("table", table, None)
    cdef const float *p_deviation = NULL
    cdef float *p_out = <float *>_out("out", out, FLOAT32)
    cdef int64_t dim = len(theta), length = len(table), first = offset, width = table.itemsize
    cdef float factor = scale
    cdef pyes_level build = _level(level)
    _same_length("out", out, dim, "theta")
    if not 0 <= first <= length - dim:
        raise ValueError(f"offset: got {first}, expected 0 <= offset <= {length - dim} (table {length} - theta {dim})")
    if <const float *>p_out != p_theta:
        _disjoint("out", out, "theta", theta)
    _disjoint("out", out, "table", table)
    if deviation is not None:
        p_deviation = <const float *>_in("deviation", deviation, FLOAT32)
        _same_length("deviation", deviation, dim, "theta")
        _disjoint("out", out, "deviation", deviation)
    with nogil:
        pyes_perturb(build, dim, dtype, p_theta, p_table + first * width, p_deviation, factor, p_out)


def weighted_sum(table, offsets, weights, out, *, level=None):  # IN, IN, IN, OUT
    """Compute ``out[j] = sum_i weights[i] * table[offsets[i] + j]``.

    Parameters
    ----------
    table : float32, uint16 or int8 (entries,)    a noise table; may be read-only
    offsets : int64 (n,)                          start of each slice; 0 <= offset <= entries - dim
    weights : float32 (n,)
    out : float32 (dim,)
    level : str, optional                         one of ``levels()``; the best by default

    Raises
    ------
    TypeError, ValueError    a slice leaves the table, lengths or types differ, arrays overlap, ``out`` is read-only

    Notes
    -----
    Slices are added in the order given, in float32, so equal input gives equal bits on every machine. A thread may
    compute ``out[a:b]`` alone with ``offsets + a``: the same bits. O(n dim), no temporary; releases the GIL.
    See Salimans et al. 2017, algorithm 2.
    """
    _add_slices(table, offsets, weights, out, True, level)


def add_slices(table, offsets, weights, out, *, level=None):  # IN, IN, IN, IN and OUT
    """Compute ``out[j] += sum_i weights[i] * table[offsets[i] + j]``: the individual that a lineage leads to.

    Parameters
    ----------
    table, offsets, weights, level    as for `weighted_sum`
    out : float32 (dim,)              changed

    Raises
    ------
    TypeError, ValueError    as for `weighted_sum`

    Notes
    -----
    The same bits as one `perturb` in place for each slice, in the order given, in one pass; and the same for any part
    ``out[a:b]`` alone with ``offsets + a``. O(n dim), no temporary; releases the GIL. See Such et al. 2017, section 3.1.
    """
    _add_slices(table, offsets, weights, out, False, level)


cdef int _add_slices(table, offsets, weights, out, bint from_zero, level) except -1:
    cdef pyes_dtype dtype = _table_dtype("table", table)
    cdef const void *p_table = _in("table", table, None)
    cdef const int64_t *p_offsets = <const int64_t *>_in("offsets", offsets, INT64)
    cdef const float *p_weights = <const float *>_in("weights", weights, FLOAT32)
    cdef float *p_out = <float *>_out("out", out, FLOAT32)
    cdef int64_t n = len(offsets), dim = len(out)
    cdef pyes_level build = _level(level)
    _same_length("weights", weights, n, "offsets")
    _inside(offsets, p_offsets, len(table), dim, "out")
    _disjoint("out", out, "table", table)
    _disjoint("out", out, "weights", weights)
    _disjoint("out", out, "offsets", offsets)
    with nogil:
        if from_zero:
            pyes_weighted_sum(build, n, dim, dtype, p_table, p_offsets, p_weights, p_out)
        else:
            pyes_add_slices(build, n, dim, dtype, p_table, p_offsets, p_weights, p_out)
    return 0


cdef int _inside(object offsets, const int64_t *p_offsets, int64_t length, int64_t dim, str out) except -1:
    """Every slice lies in a table of that length."""
    cdef int64_t i, last = length - dim
    for i in range(len(offsets)):
        if not 0 <= p_offsets[i] <= last:
            raise ValueError(
                f"offsets[{i}]: got {p_offsets[i]}, expected 0 <= offset <= {last} (table {length} - {out} {dim})"
            )
    return 0


def weighted_moments(table, offsets, weights, spread_weights, mean, spread, *, level=None):  # IN x 4, OUT, OUT
    """Compute ``mean[j] = sum_i weights[i] * e`` and ``spread[j] = sum_i spread_weights[i] * (e * e - 1)``.

    ``e`` is ``table[offsets[i] + j]``; the slices are read once.

    Parameters
    ----------
    table : float32, uint16 or int8 (entries,)    a noise table; may be read-only
    offsets : int64 (n,)                          start of each slice; 0 <= offset <= entries - dim
    weights, spread_weights : float32 (n,)
    mean, spread : float32 (dim,)
    level : str, optional                         one of ``levels()``; the best by default

    Raises
    ------
    TypeError, ValueError    a slice leaves the table, lengths or types differ, arrays overlap, one is read-only

    Notes
    -----
    Order, bits, threads and cost as for ``weighted_sum``, whose result ``mean`` is. See Wierstra et al. 2014.
    """
    cdef pyes_dtype dtype = _table_dtype("table", table)
    cdef const void *p_table = _in("table", table, None)
    cdef const int64_t *p_offsets = <const int64_t *>_in("offsets", offsets, INT64)
    cdef const float *p_weights = <const float *>_in("weights", weights, FLOAT32)
    cdef const float *p_spread_weights = <const float *>_in("spread_weights", spread_weights, FLOAT32)
    cdef float *p_mean = <float *>_out("mean", mean, FLOAT32)
    cdef float *p_spread = <float *>_out("spread", spread, FLOAT32)
    cdef int64_t n = len(offsets), dim = len(mean)
    cdef pyes_level build = _level(level)
    _same_length("weights", weights, n, "offsets")
    _same_length("spread_weights", spread_weights, n, "offsets")
    _same_length("spread", spread, dim, "mean")
    _inside(offsets, p_offsets, len(table), dim, "mean")
    _disjoint("spread", spread, "mean", mean)
    for name, out in (("mean", mean), ("spread", spread)):
        _disjoint(name, out, "table", table)
        _disjoint(name, out, "weights", weights)
        _disjoint(name, out, "spread_weights", spread_weights)
        _disjoint(name, out, "offsets", offsets)
    with nogil:
        pyes_weighted_moments(build, n, dim, dtype, p_table, p_offsets, p_weights, p_spread_weights, p_mean, p_spread)


# ---- Shaping and optimisers ------------------------------------------------------------------------------------------

def centered_ranks(returns, out):  # IN, OUT
    """Rank returns, scaled to [-0.5, 0.5]; ties share their mean rank, NaN ranks lowest.

    Parameters
    ----------
    returns : float64 or float32 (n,)
    out : float32 (n,)    sums to 0; one return alone has rank 0

    Raises
    ------
    TypeError, ValueError    another type, lengths that differ, ``out`` is read-only
    """
    if isinstance(returns, np.ndarray) and returns.dtype == FLOAT32:
        returns = returns.astype(FLOAT64)  # exact, so that one kernel serves both
    cdef const double *p_returns = <const double *>_in("returns", returns, FLOAT64)
    cdef float *p_out = <float *>_out("out", out, FLOAT32)
    cdef int64_t n = len(returns)
    _same_length("out", out, n, "returns")
    _disjoint("out", out, "returns", returns)
    workspace = np.empty(2 * n, INT64)
    cdef int64_t *p_workspace = <int64_t *>_out("workspace", workspace, INT64)
    with nogil:
        pyes_centered_ranks(n, p_returns, p_workspace, p_out)


cdef int _separate(dict arrays) except -1:
    """Equal lengths and no shared memory among the named arrays; the first one sets the length."""
    cdef list items = list(arrays.items())
    for k, (name, array) in enumerate(items):
        _same_length(name, array, len(items[0][1]), items[0][0])
        for other, other_array in items[:k]:
            _disjoint(name, array, other, other_array)
    return 0


def adam_step(theta, gradient, m, v, step, learning_rate, beta1, beta2, epsilon, weight_decay, *, level=None):
    """Take one step of Adam uphill, in place, with decoupled weight decay.

    ``theta += learning_rate * m_hat / (sqrt(v_hat) + epsilon) - learning_rate * weight_decay * theta``

    Parameters
    ----------
    theta, m, v : float32 (dim,)    changed; m and v begin as zeros
    gradient : float32 (dim,)       ascent direction
    step : int                      number of this step, from 1

    Raises
    ------
    TypeError, ValueError    types or lengths differ, arrays overlap or are read-only, 0 <= beta < 1 does not hold

    Notes
    -----
    Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019. Equal bits on every machine; releases the GIL.
    """
    cdef float *p_theta = <float *>_out("theta", theta, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    cdef float *p_m = <float *>_out("m", m, FLOAT32)  # IN, OUT
    cdef float *p_v = <float *>_out("v", v, FLOAT32)  # IN, OUT
    _separate({"theta": theta, "gradient": gradient, "m": m, "v": v})
    cdef int64_t dim = len(theta), t = step
    cdef double rate = learning_rate, b1 = _share("beta1", beta1), b2 = _share("beta2", beta2)
    cdef double eps = _at_least("epsilon", epsilon, 0), decay = weight_decay
    cdef pyes_level build = _level(level)
    if t < 1:
        raise ValueError(f"step: got {t}, expected step >= 1 (the number of this step)")
    with nogil:
        pyes_adam_step(build, dim, p_gradient, t, rate, b1, b2, eps, decay, p_theta, p_m, p_v)


def sgd_step(theta, gradient, velocity, learning_rate, momentum, weight_decay, *, level=None):
    """Take one step of gradient ascent with momentum, in place, with decoupled weight decay.

    ``velocity = momentum * velocity + gradient``;
    ``theta += learning_rate * velocity - learning_rate * weight_decay * theta``; arrays float32 (dim,).
    """
    cdef float *p_theta = <float *>_out("theta", theta, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    cdef float *p_velocity = <float *>_out("velocity", velocity, FLOAT32)  # IN, OUT
    _separate({"theta": theta, "gradient": gradient, "velocity": velocity})
    cdef int64_t dim = len(theta)
    cdef double rate = learning_rate, inertia = momentum, decay = weight_decay
    cdef pyes_level build = _level(level)
    with nogil:
        pyes_sgd_step(build, dim, p_gradient, rate, inertia, decay, p_theta, p_velocity)


def clipup_step(theta, gradient, velocity, learning_rate, momentum, max_speed, weight_decay, *, level=None):
    """Take one step of ClipUp (Toklu et al. 2020, algorithm 1) uphill, in place, with decoupled weight decay.

    ``velocity = momentum * velocity + learning_rate * gradient / |gradient|``, shortened to ``max_speed``;
    ``theta += velocity - learning_rate * weight_decay * theta``; arrays float32 (dim,).
    """
    cdef float *p_theta = <float *>_out("theta", theta, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    cdef float *p_velocity = <float *>_out("velocity", velocity, FLOAT32)  # IN, OUT
    _separate({"theta": theta, "gradient": gradient, "velocity": velocity})
    cdef int64_t dim = len(theta)
    cdef double rate = learning_rate, inertia = momentum, decay = weight_decay
    cdef double limit = _at_least("max_speed", max_speed, 0)
    cdef pyes_level build = _level(level)
    with nogil:
        pyes_clipup_step(build, dim, p_gradient, rate, inertia, limit, decay, p_theta, p_velocity)


def deviation_step(deviation, gradient, learning_rate, max_change, *, level=None):
    """Move a sigma of each parameter, in place: by ``learning_rate * gradient`` of itself, at most by ``max_change``.

    ``deviation += clip(learning_rate * gradient, -max_change, max_change) * deviation``; arrays float32 (dim,).
    """
    cdef float *p_deviation = <float *>_out("deviation", deviation, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    _separate({"deviation": deviation, "gradient": gradient})
    cdef int64_t dim = len(deviation)
    cdef double rate = learning_rate, limit = _at_least("max_change", max_change, 0)
    cdef pyes_level build = _level(level)
    with nogil:
        pyes_deviation_step(build, dim, p_gradient, rate, limit, p_deviation)


def snes_step(theta, deviation, gradient, deviation_gradient, learning_rate, deviation_rate, *, level=None):
    """Take one step of SNES (Schaul, Glasmachers & Schmidhuber 2011, algorithm 1) uphill, in place.

    ``theta += learning_rate * deviation * gradient``; ``deviation *= exp(deviation_rate / 2 * deviation_gradient)``;
    arrays float32 (dim,). The exponential has a relative error below 2e-7, and equal bits on every machine.
    """
    cdef float *p_theta = <float *>_out("theta", theta, FLOAT32)  # IN, OUT
    cdef float *p_deviation = <float *>_out("deviation", deviation, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    cdef const float *p_second = <const float *>_in("deviation_gradient", deviation_gradient, FLOAT32)  # IN
    _separate(
        {"theta": theta, "deviation": deviation, "gradient": gradient, "deviation_gradient": deviation_gradient}
    )
    cdef int64_t dim = len(theta)
    cdef double rate = learning_rate, second_rate = deviation_rate
    cdef pyes_level build = _level(level)
    with nogil:
        pyes_snes_step(build, dim, p_gradient, p_second, rate, second_rate, p_theta, p_deviation)


# ---- Board -----------------------------------------------------------------------------------------------------------

cdef int32_t *_states(object states, object count, bint writable) except? NULL:
    cdef int32_t *address = <int32_t *>_array("states", states, INT32, 1, writable)
    if not 0 <= count <= len(states):
        raise ValueError(f"count: got {count}, expected 0 <= count <= {len(states)} (the length of states)")
    return address


cdef int64_t *_cursor(object cursor) except? NULL:
    cdef int64_t *address = <int64_t *>_out("cursor", cursor, INT64)
    if len(cursor) != 1:
        raise ValueError(f"cursor: got length {len(cursor)}, expected 1")
    return address


cdef int32_t _worker(object worker) except -1:
    return <int32_t>_integer("worker", worker, 0x7FFFFFFF)


def board_open(cursor, states, count):  # OUT, OUT
    """Make members 0..count-1 free; no worker may be claiming.

    Parameters
    ----------
    cursor : int64 (1,)          members handed out so far
    states : int32 (capacity,)   0 free, worker + 1 claimed, -1 done, -2 withheld: not to be claimed, for now

    Notes
    -----
    Both arrays lie in memory that processes share. Every change is one atomic instruction on one word: a process killed
    at any point loses nothing but its own claim.
    """
    pyes_board_open(count, _cursor(cursor), _states(states, count, True))


def board_claim(cursor, states, count, worker):  # IN and OUT, IN and OUT
    """Claim a free member for a worker; return it, or -1 if none is free."""
    return pyes_board_claim(count, _worker(worker), _cursor(cursor), _states(states, count, True))


def board_finish(states, member, worker):  # IN and OUT
    """Mark a member done; return False if the worker did not hold it. What it wrote before is visible with the mark."""
    cdef int32_t *p_states = _states(states, len(states), True)
    cdef int64_t m = <int64_t>_integer("member", member, len(states))
    return pyes_board_finish(m, _worker(worker), p_states) != 0


def board_release(states, count, worker):  # IN and OUT
    """Free one member that a dead worker holds; return it, or -1 if it holds none."""
    return pyes_board_release(count, _worker(worker), _states(states, count, True))


def board_remaining(states, count):  # IN
    """Count the members 0..count-1 that are free or claimed."""
    return pyes_board_remaining(count, _states(states, count, False))


def board_withhold(states, count):  # OUT
    """Make members 0..count-1 withheld; no worker may hold any."""
    pyes_board_withhold(count, _states(states, count, True))


def board_offer(cursor, states, begin, end):  # IN and OUT, IN and OUT
    """Make those of members begin..end-1 free that are withheld; workers may be claiming."""
    cdef int32_t *p_states = _states(states, end, True)
    pyes_board_offer(_integer("begin", begin, end + 1), end, _cursor(cursor), p_states)


def board_withdraw(states, begin, end):  # IN and OUT
    """Make those of members begin..end-1 withheld that are free; return how many these were."""
    cdef int32_t *p_states = _states(states, end, True)
    return pyes_board_withdraw(_integer("begin", begin, end + 1), end, p_states)


def board_collect(states, count):  # IN and OUT
    """Return the members 0..count-1 that are done, in order, and make them withheld."""
    cdef int32_t *p_states = _states(states, count, True)
    members = np.empty(count, INT64)
    return members[: pyes_board_collect(count, p_states, <int64_t *>_out("members", members, INT64))]


# ---- Policy ----------------------------------------------------------------------------------------------------------

cdef object _aligned(Py_ssize_t size):
    """Zeroed float32 array that begins at a cache line: vectors of 16 then never straddle two."""
    block = np.zeros(size + 16, FLOAT32)
    cdef uintptr_t address = <uintptr_t>_in("block", block, FLOAT32)
    cdef Py_ssize_t skip = (64 - address % 64) % 64 // 4
    return block[skip : skip + size]


cdef int _check_layer(Py_ssize_t k, pyes_layer *layer, Py_ssize_t expected_inputs) except -1:
    where = f"instructions[{k}]"
    if not PYES_LINEAR <= layer.op <= PYES_SCALE:
        raise ValueError(
            f"{where}: got op {<int>layer.op}, expected 0 (linear), 1 (rnn), 2 (gru), 3 (lstm), 4 (conv) or 5 (scale)"
        )
    if layer.inputs != expected_inputs:
        raise ValueError(f"{where}: got {layer.inputs} inputs, expected {expected_inputs} (what comes before it)")
    if layer.outputs < 1:
        raise ValueError(f"{where}: got {layer.outputs} outputs, expected at least 1")
    cdef bint weightless = layer.op == PYES_SCALE
    if layer.weight_offset < -<int>weightless or layer.bias_offset < -1:
        raise ValueError(
            f"{where}: got offsets {layer.weight_offset} and {layer.bias_offset}, expected >= 0 and >= -1"
        )
    cdef int lowest = 0 if PYES_RNN <= layer.op <= PYES_LSTM else -1
    if layer.recurrent_offset < lowest or layer.recurrent_bias_offset < -1:
        raise ValueError(
            f"{where}: got recurrent offsets {layer.recurrent_offset} and {layer.recurrent_bias_offset}, "
            f"expected >= {lowest} and >= -1"
        )
    cdef int last = PYES_SOFTSIGN if layer.op in (PYES_LINEAR, PYES_RNN, PYES_CONV) else PYES_IDENTITY
    if not 0 <= <int>layer.activation <= last:
        raise ValueError(f"{where}: got activation {<int>layer.activation}, expected 0 to {last}")
    _check_image(where, layer)
    return 0


cdef int _check_image(str where, pyes_layer *layer) except -1:
    """What only convolutions, scales and normalised layers have."""
    if layer.op == PYES_SCALE and (layer.outputs != layer.inputs or layer.divisor < 1):
        raise ValueError(
            f"{where}: got {layer.outputs} outputs and the divisor {layer.divisor}, "
            f"expected {layer.inputs} and at least 1"
        )
    if layer.scale_offset < -1 or (layer.scale_offset >= 0 and layer.op not in (PYES_LINEAR, PYES_CONV)):
        raise ValueError(f"{where}: got scale offset {layer.scale_offset}, expected -1, or more for linear and conv")
    if layer.op != PYES_CONV:
        return 0
    shape = [layer.channels, layer.height, layer.width]
    image = f"an image of {' x '.join(map(str, shape))}"
    if min(shape) < 1 or math.prod(shape) != layer.inputs:
        raise ValueError(f"{where}: got {image}, expected {layer.inputs} values")
    if layer.stride < 1 or not 1 <= layer.kernel <= min(layer.height, layer.width):
        raise ValueError(f"{where}: got kernel {layer.kernel} and stride {layer.stride} over {image}")
    if layer.outputs % pyes_conv_pixels(layer):
        raise ValueError(f"{where}: got {layer.outputs} outputs, expected a multiple of {pyes_conv_pixels(layer)}")
    return 0


cdef class _Network:
    """What a runner asks of its network, whoever runs it."""
    cdef Py_ssize_t dim, outputs

    cdef int load(self, object theta) except -1:
        raise NotImplementedError

    cdef int reset(self) except -1:
        raise NotImplementedError

    cdef const float *forward(self, const float *input) except NULL:
        raise NotImplementedError


cdef class _Foreign(_Network):
    """A network that is a Python object; the runner's normalisation and choice of the action stay around it."""
    cdef object network, input_array, outputs_array
    cdef float *input
    cdef Py_ssize_t observation_size

    def __cinit__(self, network, Py_ssize_t observation_size):
        self.network = network
        self.dim, self.outputs, self.observation_size = network.dim, network.outputs, observation_size
        self.input_array = _aligned(observation_size)
        self.input = <float *>_out("input", self.input_array, FLOAT32)

    cdef int load(self, object theta) except -1:
        self.network.load(theta)
        return 0

    cdef int reset(self) except -1:
        self.network.reset()
        return 0

    cdef const float *forward(self, const float *input) except NULL:
        memcpy(self.input, input, self.observation_size * sizeof(float))
        self.outputs_array = self.network.forward(self.input_array)
        cdef const float *outputs = <const float *>_in("outputs of the network", self.outputs_array, FLOAT32)
        if len(self.outputs_array) != self.outputs:
            raise ValueError(f"outputs of the network: got {len(self.outputs_array)}, expected {self.outputs}")
        return outputs


cdef class _Compiled(_Network):
    """A network as instructions, with its parameters, its memory and its reference batch."""
    cdef pyes_level level
    cdef int64_t layer_count, state_size
    cdef pyes_layer *layers
    # Arrays own the memory that the pointers below them address.
    cdef object packed_array, state_array, scratch_array, reference_array, values_array, sums_array
    cdef float *packed
    cdef float *state
    cdef float *scratch
    cdef const void *reference
    cdef float *values
    cdef double *sums

    def __cinit__(self, instructions, Py_ssize_t observation_size, level, reference):
        self.level = _level(level)
        _array("instructions", instructions, INT64, 2, False)
        if instructions.shape[0] < 1 or instructions.shape[1] not in (COLUMNS, len(IMAGELESS) + COLUMNS):
            raise ValueError(
                f"instructions: got shape {instructions.shape}, expected (n, {COLUMNS}) or "
                f"(n, {COLUMNS + len(IMAGELESS)}) with n >= 1"
            )
        self.layer_count = instructions.shape[0]
        self.layers = <pyes_layer *>PyMem_Calloc(self.layer_count, sizeof(pyes_layer))
        if self.layers == NULL:
            raise MemoryError
        self.outputs = observation_size
        for k, row in enumerate(instructions.tolist()):
            self._set_layer(&self.layers[k], row if len(row) > COLUMNS else row + IMAGELESS)
            _check_layer(k, &self.layers[k], self.outputs)
            self.outputs = self.layers[k].outputs
            self.dim = max(self.dim, pyes_layer_dim(&self.layers[k]))
        self._allocate()
        self._set_reference(reference, observation_size)

    def __dealloc__(self):
        PyMem_Free(self.layers)

    cdef int _set_layer(self, pyes_layer *layer, list row) except -1:
        cdef int op, activation
        op, layer.inputs, layer.outputs, layer.weight_offset, layer.bias_offset, activation = row[:6]
        layer.recurrent_offset, layer.recurrent_bias_offset = row[6:8]
        layer.channels, layer.height, layer.width, layer.kernel, layer.stride = row[8:13]
        layer.divisor, layer.scale_offset = row[13:]
        layer.op, layer.activation = <pyes_op>op, <pyes_activation>activation
        return 0

    cdef int _allocate(self) except -1:
        cdef int64_t packed_size
        pyes_policy_place(self.layer_count, self.layers, &packed_size, &self.state_size)
        self.packed_array = _aligned(packed_size)
        self.packed = <float *>_out("packed", self.packed_array, FLOAT32)
        self.state_array = _aligned(self.state_size)
        self.state = <float *>_out("state", self.state_array, FLOAT32)
        self.scratch_array = _aligned(2 * self.layers[0].widest)
        self.scratch = <float *>_out("scratch", self.scratch_array, FLOAT32)
        return 0

    cdef int _set_reference(self, object reference, Py_ssize_t observation_size) except -1:
        cdef int64_t width = pyes_policy_reference_width(self.layer_count, self.layers)
        if width == 0 or reference is None:
            if width or reference is not None:
                raise ValueError(f"reference: got {'one' if width == 0 else 'none'}, expected the other way round")
            return 0
        cdef bint remembers = False
        for k in range(self.layer_count):
            remembers |= PYES_RNN <= self.layers[k].op <= PYES_LSTM
            if remembers and self.layers[k].scale_offset >= 0:
                raise ValueError(f"instructions[{k}]: got a normalised layer behind one with a memory")
        dtype = UINT8 if isinstance(reference, np.ndarray) and reference.dtype == UINT8 else FLOAT32
        self.reference = _array("reference", reference, dtype, 2, False)
        if reference.shape[0] < 1 or reference.shape[1] != observation_size:
            raise ValueError(f"reference: got shape {reference.shape}, expected (n, {observation_size}) with n >= 1")
        self.reference_array = reference
        self.values_array = np.empty(len(reference) * width, FLOAT32)
        self.values = <float *>_out("values", self.values_array, FLOAT32)
        self.sums_array = np.empty(2 * width, FLOAT64)
        self.sums = <double *>_array("sums", self.sums_array, FLOAT64, 1, True)
        return 0

    cdef int load(self, object theta) except -1:
        cdef const float *parameters = <const float *>_in("theta", theta, FLOAT32)
        pyes_policy_pack(self.layer_count, self.layers, parameters, self.packed)
        if self.reference == NULL:
            return 0
        cdef pyes_value type = PYES_BYTE if self.reference_array.dtype == UINT8 else PYES_FLOAT
        pyes_policy_normalize(self.level, self.layer_count, self.layers, parameters, len(self.reference_array), type,
                              self.reference, self.packed, self.scratch, self.values, self.sums)
        return 0

    cdef int reset(self) except -1:
        memset(self.state, 0, self.state_size * sizeof(float))
        return 0

    cdef const float *forward(self, const float *input) except NULL:
        return pyes_policy_forward(self.level, self.layer_count, self.layers, self.packed, input, self.state,
                                   self.scratch)


cdef class PolicyRunner:
    """A policy network and its choice of action, one call a timestep.

    Parameters
    ----------
    network : int64 (n, 8 or 15)   instructions: rows [op, inputs, outputs, weight_offset, bias_offset, activation,
                                   recurrent_offset, recurrent_bias_offset], and where there are images or normalised
                                   layers also [channels, height, width, kernel, stride, divisor, scale_offset]; op
                                   0 linear 1 rnn 2 gru 3 lstm 4 conv 5 scale; weights
                                   and biases in theta in torch's layout, see the header; a bias offset of -1: no bias,
                                   a scale offset of -1: not normalised;
                                   activation 0 identity 1 tanh 2 relu 3 sigmoid 4 elu 5 leaky_relu 6 silu 7 gelu
                                   8 softsign. Or an object with ``dim``, ``outputs``, ``load(theta)``, ``reset()`` and
                                   ``forward(observation)``, which runs the network itself: float32 in, float32 out
    observation_size : int         values in an observation
    action : str                   argmax | identity | clip | tanh | bins, see ``pyes_box_action`` in the header
    low, high : float32 (a,)       ends of the action box; not used by argmax
    bins : int                     outputs a component, for bins
    action_start : int             added to the argmax
    action_shape : tuple of int    shape of a box action, of size a
    action_noise : float           standard deviation of the normals added to identity, clip and tanh outputs
    level : str, optional          one of ``levels()``, for instructions; the best by default
    reference : uint8 or float32 (count, observation_size), optional    the reference batch of normalised layers; kept

    Raises
    ------
    TypeError, ValueError    damaged instructions, or outputs that do not fit the action

    Notes
    -----
    Instructions add their inputs in order: equal bits on every machine. Not for use by two threads at once.
    """
    cdef readonly Py_ssize_t dim
    cdef readonly Py_ssize_t observation_size
    cdef readonly Py_ssize_t outputs
    cdef _Network network
    # Arrays own the memory that the pointers below them address.
    cdef object observation_array, action_array, low_array, high_array
    cdef object mean_array, inverse_std_array, sums_array, noisy_array
    cdef object copy_action
    cdef float *observation  # as it came, then the input of the network
    cdef float *input
    cdef float *noisy  # outputs with action noise, then the noise itself
    cdef float *action
    cdef const float *low
    cdef const float *high
    cdef const float *mean
    cdef const float *inverse_std
    cdef double *sums
    cdef float observation_limit
    cdef int mode  # -1 for argmax, else pyes_action
    cdef int64_t components, bins, action_start
    cdef float action_noise
    cdef bint noise_enabled
    cdef uint64_t seed, noise_word
    cdef uint32_t generation, member, episode

    def __cinit__(self, network, Py_ssize_t observation_size, *, action, low=None, high=None, bins=0,
                  action_start=0, action_shape=(), action_noise=0.0, level=None, reference=None):
        if isinstance(network, np.ndarray):
            self.network = _Compiled(network, observation_size, level, reference)
        else:
            self.network = _Foreign(network, observation_size)
        self.dim, self.outputs = self.network.dim, self.network.outputs
        self.observation_size = observation_size
        self._set_action(action, low, high, bins, action_start, tuple(action_shape), action_noise)
        self.observation_array = _aligned(2 * (observation_size + 16))
        self.observation = <float *>_out("observation", self.observation_array, FLOAT32)
        self.input = self.observation + (observation_size + 15) // 16 * 16

    cdef int _set_action(self, str action, object low, object high, object bins, object start, tuple shape,
                         object noise) except -1:
        if action not in ACTIONS:
            raise ValueError(f"action: got {action!r}, expected one of {', '.join(ACTIONS)}")
        self.mode = ACTIONS[action]
        self.action_start = start
        self.bins = bins
        self.action_noise = _at_least("action_noise", noise, 0)
        self.noise_enabled = True
        if self.mode < 0:
            return 0
        self.action_array = np.zeros(shape, FLOAT32)
        self.components = self.action_array.size
        cdef int64_t expected = self.components
        if self.mode == PYES_BINS:
            if self.bins < 2:
                raise ValueError(f"bins: got {bins}, expected at least 2")
            expected *= self.bins
        if self.outputs != expected:
            raise ValueError(f"network: got {self.outputs} outputs, expected {expected} for action {action!r}")
        self.low_array = self._bound("low", low)
        self.high_array = self._bound("high", high)
        self.low = <const float *>_in("low", self.low_array, FLOAT32)
        self.high = <const float *>_in("high", self.high_array, FLOAT32)
        self.noisy_array = _aligned(2 * self.components)
        self.noisy = <float *>_out("noisy", self.noisy_array, FLOAT32)
        self.action = <float *>_array("action", self.action_array, FLOAT32, len(shape), True)
        self.copy_action = self.action_array.copy
        return 0

    cdef object _bound(self, str name, object bound):
        """A copy of one end of the box, which must be finite where the action is computed from it."""
        _in(name, bound, FLOAT32)
        if len(bound) != self.components:
            raise ValueError(f"{name}: got length {len(bound)}, expected {self.components} (the size of action_shape)")
        if self.mode in (PYES_SQUASH, PYES_BINS) and not np.isfinite(bound).all():
            raise ValueError(f"{name}: got {bound.tolist()}, expected finite bounds for action tanh or bins")
        return bound.copy()

    def load(self, theta):  # IN
        """Take the parameters, float32 (dim,); they are copied."""
        _in("theta", theta, FLOAT32)
        if len(theta) != self.dim:
            raise ValueError(f"theta: got length {len(theta)}, expected {self.dim}")
        self.network.load(theta)

    def set_action_noise(self, bint enabled):
        """Switch the action noise on (as it is at first) or off."""
        self.noise_enabled = enabled

    def normalize(self, mean, inverse_std, clip):  # IN, IN
        """Feed the network (observation - mean) * inverse_std, clipped to +-clip; with None, None as it comes."""
        self.mean = NULL
        if mean is None and inverse_std is None:
            return
        for name, array in (("mean", mean), ("inverse_std", inverse_std)):
            _in(name, array, FLOAT32)
            if len(array) != self.observation_size:
                raise ValueError(f"{name}: got length {len(array)}, expected {self.observation_size}")
        self.observation_limit = _at_least("clip", clip, 0)
        self.mean_array, self.inverse_std_array = mean.copy(), inverse_std.copy()
        self.inverse_std = <const float *>_in("inverse_std", self.inverse_std_array, FLOAT32)
        self.mean = <const float *>_in("mean", self.mean_array, FLOAT32)

    def begin_episode(self, seed, generation, member, episode):
        """Clear the network's memory and begin the stream of action noise of an episode."""
        self.seed = _seed(seed)
        self.generation = _word("generation", generation)
        self.member = _word("member", member)
        self.episode = _episode(episode)
        self.noise_word = 0
        self.network.reset()

    def collect(self, sums):  # OUT
        """Add each observation that ``act`` sees to sums[0], its square to sums[1], float64; None: no more."""
        if sums is None:
            self.sums_array, self.sums = None, NULL
            return
        cdef double *p_sums = <double *>_array("sums", sums, FLOAT64, 2, True)
        if sums.shape != (2, self.observation_size):
            raise ValueError(f"sums: got shape {sums.shape}, expected {(2, self.observation_size)}")
        self.sums_array, self.sums = sums, p_sums

    def act(self, observation):  # IN
        """Choose the action for an observation of observation_size values: an int, or a new float32 array.

        float32, float64 and uint8 arrays without gaps are fastest; anything else goes by way of NumPy. Another size is
        a ValueError.
        """
        self._read(observation)
        cdef int64_t choice = self._choose()
        return choice if self.mode < 0 else self.copy_action()

    cdef int64_t _choose(self) except? -1:
        """Act on the observation that was read: the choice of argmax, else 0 and the action in its place."""
        cdef const float *outputs = self._outputs(True)
        if self.mode < 0:
            return pyes_argmax(self.outputs, outputs) + self.action_start
        if self.noise_enabled and self.action_noise > 0 and self.mode != PYES_BINS:
            outputs = self._with_noise(outputs)
        pyes_box_action(self.components, <pyes_action>self.mode, self.bins, outputs, self.low, self.high, self.action)
        return 0

    def forward(self, observation):  # IN
        """Return the network's outputs for an observation, before an action is chosen: a new float32 (outputs,).

        A network with memory goes on by one timestep, as with ``act``.
        """
        self._read(observation)
        cdef const float *outputs = self._outputs(False)
        out = np.empty(self.outputs, FLOAT32)
        memcpy(_out("out", out, FLOAT32), outputs, self.outputs * sizeof(float))
        return out

    cdef const float *_outputs(self, bint collect) except NULL:
        if collect and self.sums != NULL:
            pyes_collect(self.observation_size, self.observation, self.sums)
        cdef const float *start = self.observation
        if self.mean != NULL:
            start = self.input
            pyes_normalize(self.observation_size, self.observation, self.mean, self.inverse_std,
                           self.observation_limit, self.input)
        return self.network.forward(start)

    cdef const float *_with_noise(self, const float *outputs) noexcept:
        """Outputs plus the next normals of the episode's stream, one word a component."""
        cdef float *normals = self.noisy + self.components
        pyes_stream_normals(self.components, self.seed, ACTION_PURPOSE, self.generation, self.member, self.episode,
                            self.noise_word, normals)
        self.noise_word += self.components
        cdef int64_t i
        for i in range(self.components):
            self.noisy[i] = outputs[i] + self.action_noise * normals[i]
        return self.noisy

    cdef int _read(self, object observation) except -1:
        """Copy an observation: float32, float64, uint8 without gaps at once, anything else by way of NumPy."""
        cdef Py_buffer view
        cdef bint done
        if PyObject_CheckBuffer(observation):
            try:
                PyObject_GetBuffer(observation, &view, PyBUF_FORMAT | PyBUF_ND)
            except (BufferError, ValueError):  # gaps between the values, or a type without a format
                pass
            else:
                done = self._copy(&view)
                PyBuffer_Release(&view)
                if done:
                    return 0
        converted = np.ascontiguousarray(observation, FLOAT32)
        if converted.size != self.observation_size:
            raise ValueError(f"observation: got {converted.size} values, expected {self.observation_size}")
        PyObject_GetBuffer(converted, &view, PyBUF_FORMAT | PyBUF_ND)
        self._copy(&view)
        PyBuffer_Release(&view)
        return 0

    cdef bint _copy(self, Py_buffer *view) noexcept:
        """False if the buffer is of another type or size."""
        if view.format == NULL or view.len != self.observation_size * view.itemsize:
            return False
        if view.format[0] == 0 or view.format[1] != 0:  # not a single letter
            return False
        return self._copy_values(view.format[0], view.buf)

    cdef bint _copy_values(self, char letter, const void *values) noexcept:
        """False if the type with this letter is not one of those that are copied at once."""
        cdef int64_t i
        if letter == c"B":
            for i in range(self.observation_size):
                self.observation[i] = <float>(<const unsigned char *>values)[i]
            return True
        if letter == c"f":
            memcpy(self.observation, values, self.observation_size * sizeof(float))
            return True
        if letter == c"d":
            for i in range(self.observation_size):
                self.observation[i] = <float>(<const double *>values)[i]
            return True
        return False


cdef class PolicyBatch:
    """Runners that act on a vector of observations in one call, each with its own parameters, memory and noise.

    Parameters
    ----------
    runners : list of PolicyRunner    of one policy; loaded and begun one by one, as if each were alone

    Raises
    ------
    TypeError, ValueError    there is none, one is no PolicyRunner, or they differ in observation or action

    Notes
    -----
    Every slot runs the code of its runner, so its actions have the bits that the runner alone would give.
    """
    cdef readonly tuple runners
    cdef PolicyRunner first
    cdef tuple action_shape

    def __cinit__(self, runners):
        self.runners = tuple(runners)
        if not self.runners:
            raise ValueError("runners: got none, expected at least one")
        for runner in self.runners:
            if not isinstance(runner, PolicyRunner):
                raise TypeError(f"runners: got {type(runner).__name__}, expected PolicyRunner")
        self.first = self.runners[0]
        self.action_shape = () if self.first.mode < 0 else self.first.action_array.shape
        for runner in self.runners:
            self._check_like_first(runner)

    cdef int _check_like_first(self, PolicyRunner runner) except -1:
        cdef PolicyRunner first = self.first
        if (runner.observation_size, runner.mode, runner.components) != (
            first.observation_size, first.mode, first.components
        ):
            raise ValueError("runners: got some of different policies, expected runners of one")
        return 0

    def act(self, observations, slots):  # IN, IN
        """Choose one action for each observation.

        Parameters
        ----------
        observations : (n, ...)    observation_size values a row; float32, float64 and uint8 without gaps are fastest
        slots : int64 (n,)         which runner each row is for; no two the same

        Returns
        -------
        int64 (n,) for argmax, else float32 (n, *action_shape)    newly allocated

        Raises
        ------
        TypeError, ValueError    an observation of another size, or a slot that is none
        """
        cdef PolicyRunner runner = self.first
        cdef const int64_t *p_slots = <const int64_t *>_in("slots", slots, INT64)
        cdef int64_t n = len(slots), count = len(self.runners), i
        rows = np.ascontiguousarray(observations)
        if rows.dtype not in (FLOAT32, FLOAT64, UINT8):
            rows = rows.astype(FLOAT32)
        if rows.size != n * runner.observation_size or len(rows) != n:
            raise ValueError(f"observations: got shape {rows.shape}, expected {n} of {runner.observation_size} values")
        cdef const char *p_rows = <const char *>_array("observations", rows, None, rows.ndim, False)
        cdef int64_t stride = runner.observation_size * rows.itemsize, width = runner.components * sizeof(float)
        cdef char letter = ord(rows.dtype.char)
        actions = np.empty((n, *self.action_shape), INT64 if runner.mode < 0 else FLOAT32)
        cdef char *p_actions = <char *>_array("actions", actions, None, actions.ndim, True)
        cdef int64_t choice
        for i in range(n):
            if not 0 <= p_slots[i] < count:
                raise ValueError(f"slots[{i}]: got {p_slots[i]}, expected 0 <= slot < {count}")
            runner = <PolicyRunner>self.runners[p_slots[i]]
            runner._copy_values(letter, p_rows + i * stride)
            choice = runner._choose()
            if runner.mode < 0:
                (<int64_t *>p_actions)[i] = choice
            else:
                memcpy(p_actions + i * width, runner.action, width)
        return actions
