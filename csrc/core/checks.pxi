# The checks of arguments: dtype, shape, layout, alignment, bounds, aliasing. Every pointer passed to a kernel comes
# from here. A message names the argument, its value and the expected one.

cdef object FLOAT32 = np.dtype(np.float32)
cdef object FLOAT64 = np.dtype(np.float64)
cdef object INT32 = np.dtype(np.int32)
cdef object INT64 = np.dtype(np.int64)
cdef object UINT8 = np.dtype(np.uint8)
cdef object UINT32 = np.dtype(np.uint32)
cdef dict TABLE_DTYPES = {FLOAT32: PYES_FLOAT32, np.dtype(np.uint16): PYES_BFLOAT16, np.dtype(np.int8): PYES_INT8}


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
    cdef Py_ssize_t size = view.itemsize, length = view.len
    PyBuffer_Release(&view)
    if length > 0 and <uintptr_t>address % <uintptr_t>size != 0:
        raise ValueError(
            f"{name}: got memory that begins {<uintptr_t>address % <uintptr_t>size} past a multiple of {size} bytes, "
            f"expected an aligned array (as a copy is)"
        )
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
    """Raise if contiguous arrays share memory, that is if their address ranges overlap."""
    if np.may_share_memory(array, other_array):
        raise ValueError(f"{name}: got an array that overlaps {other}, expected separate memory")
    return 0


cdef int _separate(dict arrays) except -1:
    """Check that the named arrays have the length of the first one and share no memory."""
    cdef list items = list(arrays.items())
    for k, (name, array) in enumerate(items):
        _same_length(name, array, len(items[0][1]), items[0][0])
        for other, other_array in items[:k]:
            _disjoint(name, array, other, other_array)
    return 0


cdef int _inside(object offsets, const int64_t *p_offsets, int64_t length, int64_t dim, str out) except -1:
    """Check that every slice is inside a table of this length."""
    cdef int64_t i, last = length - dim
    if last < 0 and len(offsets):
        raise ValueError(f"table: got {length} entries, expected at least the {dim} of {out}")
    for i in range(len(offsets)):
        if not 0 <= p_offsets[i] <= last:
            raise ValueError(
                f"offsets[{i}]: got {p_offsets[i]}, expected 0 <= offset <= {last} (table {length} - {out} {dim})"
            )
    return 0


cdef object _index(str name, object value):
    try:
        return value.__index__()
    except AttributeError:
        raise TypeError(f"{name}: got {type(value).__name__}, expected an integer") from None


cdef uint64_t _integer(str name, object value, object bound) except? 0xFFFFFFFFFFFFFFFF:
    number = _index(name, value)
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
