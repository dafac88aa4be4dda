# The noise table, and perturbation of theta by one slice of it (kernels/noise.c, perturb.c).

def fill_noise(out, seed, start=0, *, level=None):  # OUT
    """Fill ``out`` with the standard normals of the table entries [start, start + len(out)).

    Parameters
    ----------
    out : float32, uint16 or int8 (n,)
        uint16 holds bfloat16; int8 counts steps of 1/32, clipped to +-127.
    seed : int
        0 <= seed < 2**64.
    start : int
        Index of the first entry.
    level : str, optional
        One of ``levels()``; the best by default.

    Raises
    ------
    TypeError, ValueError
        An argument of another type, shape or range, or ``out`` is read-only.

    Notes
    -----
    Equal bytes for every split of the range, machine and level. No temporary; releases the GIL.
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
    table : float32, uint16 or int8 (entries,)
        A noise table; may be read-only.
    offset : int
        0 <= offset <= entries - dim.
    scale : float
        Usually +-sigma.
    out : float32 (dim,)
        May be ``theta`` itself, but may not overlap it otherwise.
    deviation : float32 (dim,), optional
        The slice is multiplied by ``scale * deviation``, elementwise.
    level : str, optional
        One of ``levels()``; the best by default.

    Raises
    ------
    TypeError, ValueError
        The slice leaves the table, lengths or types differ, arrays overlap, ``out`` is read-only.

    Notes
    -----
    Each product and the sum are rounded once. O(dim), no temporary; releases the GIL.
    """
    cdef const float *p_theta = <const float *>_in("theta", theta, FLOAT32)
    cdef float *p_out = <float *>_out("out", out, FLOAT32)
    cdef int64_t dim = len(theta)
    cdef pyes_level build = _level(level)
    cdef pyes_perturbation by
    _perturbation(&by, dim, table, offset, scale, deviation)
    _same_length("out", out, dim, "theta")
    if <const float *>p_out != p_theta:
        _disjoint("out", out, "theta", theta)
    _disjoint("out", out, "table", table)
    if deviation is not None:
        _disjoint("out", out, "deviation", deviation)
    with nogil:
        pyes_perturb(build, dim, by.dtype, p_theta, by.slice, by.deviation, by.scale, p_out)


cdef int _perturbation(pyes_perturbation *out, int64_t dim, object table, object offset, double scale,
                       object deviation) except -1:
    """Describe what is added to theta, after checks; the arrays must outlive it."""
    out.dtype = _table_dtype("table", table)
    cdef const char *entries = <const char *>_in("table", table, None)
    cdef int64_t length = len(table), first, width = table.itemsize
    if length < dim:
        raise ValueError(f"table: got {length} entries, expected at least the {dim} of theta")
    if not 0 <= _index("offset", offset) <= length - dim:
        raise ValueError(f"offset: got {offset}, expected 0 <= offset <= {length - dim} (table {length} - theta {dim})")
    first = offset
    out.slice, out.scale, out.deviation = entries + first * width, scale, NULL
    if deviation is not None:
        out.deviation = <const float *>_in("deviation", deviation, FLOAT32)
        _same_length("deviation", deviation, dim, "theta")
    return 0
