# Random streams: words, slice offsets, environment seeds (kernels/philox.c).

def stream_bits(seed, purpose, generation, member, episode, out):  # OUT
    """Fill ``out`` with the first words of the stream (seed, purpose, generation, member, episode).

    Parameters
    ----------
    seed : int
        0 <= seed < 2**64, the key.
    purpose : int
        0 <= purpose < 256, see ``pyes.numerics.streams.Purpose``.
    generation, member : int
        Below 2**32.
    episode : int
        Below 2**24.
    out : uint32 (n,)
        Words of Philox4x32-10, any bits.

    Raises
    ------
    TypeError, ValueError
        An argument of another type, shape or range (message gives got and expected).
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
