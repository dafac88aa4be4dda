# Weighted sums over slices of the noise table (kernels/gradient.c).

def weighted_sum(table, offsets, weights, out, *, level=None):  # IN, IN, IN, OUT
    """Compute ``out[j] = sum_i weights[i] * table[offsets[i] + j]``.

    Parameters
    ----------
    table : float32, uint16 or int8 (entries,)
        A noise table; may be read-only.
    offsets : int64 (n,)
        Start of each slice; 0 <= offset <= entries - dim.
    weights : float32 (n,)
    out : float32 (dim,)
    level : str, optional
        One of ``levels()``; the best by default.

    Raises
    ------
    TypeError, ValueError
        A slice leaves the table, lengths or types differ, arrays overlap, ``out`` is read-only.

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
    table, offsets, weights, level
        As for `weighted_sum`.
    out : float32 (dim,)
        Changed.

    Raises
    ------
    TypeError, ValueError
        As for `weighted_sum`.

    Notes
    -----
    The same bits as one `perturb` in place for each slice, in the order given, in one pass; and the same for any part
    ``out[a:b]`` alone with ``offsets + a``. O(n dim), no temporary; releases the GIL. See Such et al. 2017,
    section 3.1.
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


def weighted_moments(table, offsets, weights, spread_weights, mean, spread, *, level=None):  # IN x 4, OUT, OUT
    """Compute ``mean[j] = sum_i weights[i] * e`` and ``spread[j] = sum_i spread_weights[i] * (e * e - 1)``.

    ``e`` is ``table[offsets[i] + j]``; the slices are read once.

    Parameters
    ----------
    table : float32, uint16 or int8 (entries,)
        A noise table; may be read-only.
    offsets : int64 (n,)
        Start of each slice; 0 <= offset <= entries - dim.
    weights, spread_weights : float32 (n,)
    mean, spread : float32 (dim,)
    level : str, optional
        One of ``levels()``; the best by default.

    Raises
    ------
    TypeError, ValueError
        A slice leaves the table, lengths or types differ, arrays overlap, one is read-only.

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
