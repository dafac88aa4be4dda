# PolicyBatch: many runners, one call.

cdef class PolicyBatch:
    """Runners that act on a vector of observations in one call, each with its own parameters, states and noise.

    Parameters
    ----------
    runners : list of PolicyRunner
        Runners of one policy; each is loaded and begins its episodes separately.

    Raises
    ------
    TypeError, ValueError
        The list is empty, an item is not a PolicyRunner, or they differ in observation or action.

    Notes
    -----
    Every slot runs the code of its runner, so its actions have the bits that the runner alone would give.
    """
    cdef tuple runners
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
        self.action_shape = () if self.first.head.mode < 0 else self.first.head.array.shape
        for runner in self.runners:
            self._check_like_first(runner)

    cdef int _check_like_first(self, PolicyRunner runner) except -1:
        cdef PolicyRunner first = self.first
        if (runner.observation_size, runner.head.mode, runner.head.components) != (
            first.observation_size, first.head.mode, first.head.components
        ):
            raise ValueError("runners: got some of different policies, expected runners of one")
        return 0

    def act(self, observations, slots):  # IN, IN
        """Choose one action for each observation.

        Parameters
        ----------
        observations : (n, ...)
            Rows of observation_size values; contiguous float32, float64 and uint8 are fastest.
        slots : int64 (n,)
            Index of the runner for each row, without duplicates.

        Returns
        -------
        int64 (n,) for argmax, else float32 (n, *action_shape)
            Newly allocated; a list of what ``assemble`` returns, for mixed actions that have it.

        Raises
        ------
        TypeError, ValueError
            An observation has another size or contains NaN, or a slot is invalid.
        """
        cdef PolicyRunner runner = self.first
        cdef const int64_t *p_slots = <const int64_t *>_in("slots", slots, INT64)
        cdef int64_t n = len(slots), count = len(self.runners), i
        rows = _readable(observations)
        if rows.size != n * runner.observation_size or len(rows) != n:
            raise ValueError(f"observations: got shape {rows.shape}, expected {n} of {runner.observation_size} values")
        cdef const char *p_rows = <const char *>_array("observations", rows, None, rows.ndim, False)
        cdef int64_t stride = runner.observation_size * rows.itemsize, width = runner.head.components * sizeof(float)
        cdef char letter = ord(rows.dtype.char)
        actions = np.empty((n, *self.action_shape), INT64 if runner.head.mode < 0 else FLOAT32)
        cdef char *p_actions = <char *>_array("actions", actions, None, actions.ndim, True)
        cdef int64_t choice
        for i in range(n):
            if not 0 <= p_slots[i] < count:
                raise ValueError(f"slots[{i}]: got {p_slots[i]}, expected 0 <= slot < {count}")
            runner = <PolicyRunner>self.runners[p_slots[i]]
            _read_values(letter, runner.observation_size, p_rows + i * stride, runner.observation)
            choice = runner._choose()
            if runner.head.mode < 0:
                (<int64_t *>p_actions)[i] = choice
            else:
                memcpy(p_actions + i * width, runner.head.action, width)
        if self.first.head.assemble is not None:
            return [self.first.head.assemble(row) for row in actions]
        return actions
