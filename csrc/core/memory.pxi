# Working memory of the policies.

cdef object _aligned(Py_ssize_t size):
    """Zeroed float32 array that begins at a cache line: vectors of 16 then never straddle two."""
    block = np.zeros(size + 16, FLOAT32)
    cdef uintptr_t address = <uintptr_t>_in("block", block, FLOAT32)
    cdef Py_ssize_t skip = (64 - address % 64) % 64 // 4
    return block[skip : skip + size]
