# The instruction sets that kernels are built for.

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
