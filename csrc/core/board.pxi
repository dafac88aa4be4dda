# The board: which worker holds which member (kernels/board.c).

cdef int32_t *_states(object states, object count, bint writable) except? NULL:
    cdef int32_t *address = <int32_t *>_array("states", states, INT32, 1, writable)
    if not 0 <= _index("count", count) <= len(states):
        raise ValueError(f"count: got {count}, expected 0 <= count <= {len(states)} (the length of states)")
    return address


cdef int64_t *_cursor(object cursor) except? NULL:
    cdef int64_t *address = <int64_t *>_out("cursor", cursor, INT64)
    if len(cursor) != 1:
        raise ValueError(f"cursor: got length {len(cursor)}, expected 1")
    return address


cdef int32_t _worker(object worker) except -1:
    return <int32_t>_integer("worker", worker, 0x7FFFFFFF)


def board_withhold(states, count):  # OUT
    """Make members 0..count-1 withheld; no worker may hold any.

    Parameters
    ----------
    states : int32 (capacity,)
        0 free, worker + 1 claimed, -1 done, -2 withheld (cannot be claimed now).

    Notes
    -----
    States and the cursor, int64 (1,), are in shared memory. Every change is one atomic instruction on one word, so a
    process that is killed at any point loses only its own claim.
    """
    pyes_board_withhold(count, _states(states, count, True))


def board_claim(cursor, states, count, worker):  # IN and OUT, IN and OUT
    """Claim a free member for a worker; return it, or -1 if none is free."""
    return pyes_board_claim(count, _worker(worker), _cursor(cursor), _states(states, count, True))


def board_finish(states, member, worker):  # IN and OUT
    """Mark a member done, after all writes of this worker; return False if the worker did not hold it."""
    cdef int32_t *p_states = _states(states, len(states), True)
    cdef int64_t m = <int64_t>_integer("member", member, len(states))
    return pyes_board_finish(m, _worker(worker), p_states) != 0


def board_release(states, count, worker):  # IN and OUT
    """Free the members that a dead worker holds."""
    pyes_board_release(count, _worker(worker), _states(states, count, True))


def board_remaining(states, count):  # IN
    """Count the members 0..count-1 that are free or claimed."""
    return pyes_board_remaining(count, _states(states, count, False))


def board_offer(cursor, states, begin, end):  # IN and OUT, IN and OUT
    """Make the withheld ones of members begin..end-1 free; workers may be claiming."""
    cdef int32_t *p_states = _states(states, end, True)
    pyes_board_offer(_integer("begin", begin, end + 1), end, _cursor(cursor), p_states)


def board_withdraw(states, begin, end):  # IN and OUT
    """Make the free ones of members begin..end-1 withheld."""
    cdef int32_t *p_states = _states(states, end, True)
    pyes_board_withdraw(_integer("begin", begin, end + 1), end, p_states)


def board_collect(states, count):  # IN and OUT
    """Return the members 0..count-1 that are done, in order, and make them withheld."""
    cdef int32_t *p_states = _states(states, count, True)
    members = np.empty(count, INT64)
    return members[: pyes_board_collect(count, p_states, <int64_t *>_out("members", members, INT64))]
