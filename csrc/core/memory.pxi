# Working memory of the policies.

cdef object _aligned(Py_ssize_t size):
    """Return a zeroed float32 array aligned to a cache line, so that vectors of 16 do not cross two."""
    block = np.zeros(size + 16, FLOAT32)
    cdef uintptr_t address = <uintptr_t>_in("block", block, FLOAT32)
    cdef Py_ssize_t skip = (64 - address % 64) % 64 // 4
    return block[skip : skip + size]
