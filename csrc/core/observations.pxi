# Converts observations of any type to the float32 values that the policy uses.

cdef int _read_observation(object observation, int64_t size, float *out) except -1:
    """Read a contiguous, aligned float32, float64 or uint8 buffer directly, anything else via NumPy."""
    cdef Py_buffer view
    cdef bint done
    if PyObject_CheckBuffer(observation):
        try:
            PyObject_GetBuffer(observation, &view, PyBUF_FORMAT | PyBUF_ND)
        except (BufferError, ValueError):  # gaps between the values, or a type without a format
            pass
        else:
            done = _read_buffer(&view, size, out)
            PyBuffer_Release(&view)
            if done:
                return 0
    if observation is None:
        raise ValueError(f"observation: got None, expected {size} values")
    values = _readable(observation)
    if values.size != size:
        raise ValueError(f"observation: got {values.size} values, expected {size}")
    _read_values(ord(values.dtype.char), size, _array("observation", values, None, values.ndim, False), out)
    return 0


cdef int _check_numbers(int64_t size, const float *values) except -1:
    """Refuse NaN, whatever the network would make of it: argmax would choose an action all the same."""
    cdef int64_t i
    cdef int found = 0
    for i in range(size):  # no early end: compilers make wide instructions of it
        found |= values[i] != values[i]
    if not found:
        return 0
    for i in range(size):
        if values[i] != values[i]:
            break
    raise ValueError(f"the observation has NaN at index {i}, of {size} values")


cdef object _readable(object observations):
    """Return a contiguous, aligned array of a type that _read_values accepts."""
    values = np.ascontiguousarray(observations)
    if values.dtype.char not in "fdB" or not values.dtype.isnative:
        return values.astype(FLOAT32)
    return values if values.flags.aligned else values.copy()


cdef bint _read_buffer(Py_buffer *view, int64_t size, float *out) noexcept:
    """Return False if the buffer has another type or size, or is not aligned."""
    if view.format == NULL or view.itemsize < 1 or view.len != size * view.itemsize:
        return False
    if <uintptr_t>view.buf % <uintptr_t>view.itemsize != 0:
        return False
    if view.format[0] == 0 or view.format[1] != 0:  # not a single letter
        return False
    return _read_values(view.format[0], size, view.buf, out)


cdef bint _read_values(char letter, int64_t size, const void *values, float *out) noexcept:
    """Return False if the type with this letter cannot be read directly."""
    if letter == c"B":
        pyes_read_observation(size, PYES_BYTE, values, out)
    elif letter == c"f":
        pyes_read_observation(size, PYES_FLOAT, values, out)
    elif letter == c"d":
        pyes_read_observation(size, PYES_DOUBLE, values, out)
    else:
        return False
    return True
