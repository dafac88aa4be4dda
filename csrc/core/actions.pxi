# Turns the outputs of a network into an action (kernels/action.c).

cdef dict ACTIONS = {
    "argmax": -1,
    "identity": PYES_UNCHANGED,
    "clip": PYES_CLIP,
    "tanh": PYES_SQUASH,
    "bins": PYES_BINS,
}
cdef uint32_t ACTION_PURPOSE = 3  # pyes.numerics.streams.Purpose.ACTION


@final
cdef class _ActionHead:
    """The action mode, the bounds of the action, and the noise of the episode."""
    cdef int mode  # -1 for argmax, else pyes_action
    cdef int64_t components, bins, start
    # Arrays own the memory that the pointers below them address.
    cdef object array, low_array, high_array, noisy_array
    cdef object copy  # returns a copy of the action
    cdef float *action
    cdef const float *low
    cdef const float *high
    cdef float *noisy  # outputs with noise, then the noise itself
    cdef double deviation  # of the noise
    cdef bint noise_enabled
    cdef uint64_t seed, noise_word
    cdef uint32_t generation, member, episode

    def __cinit__(self, str action, low, high, bins, start, tuple shape, deviation, Py_ssize_t outputs):
        if action not in ACTIONS:
            raise ValueError(f"action: got {action!r}, expected one of {', '.join(ACTIONS)}")
        self.mode = ACTIONS[action]
        self.start, self.bins = start, bins
        self.deviation = _at_least("action_noise", deviation, 0)
        self.noise_enabled = True
        if self.mode >= 0:
            self._set_box(action, low, high, shape, outputs)

    cdef int _set_box(self, str action, object low, object high, tuple shape, Py_ssize_t outputs) except -1:
        self.array = np.zeros(shape, FLOAT32)
        self.components = self.array.size
        cdef int64_t expected = self.components
        if self.mode == PYES_BINS:
            if self.bins < 2:
                raise ValueError(f"bins: got {self.bins}, expected at least 2")
            expected *= self.bins
        if outputs != expected:
            raise ValueError(f"network: got {outputs} outputs, expected {expected} for action {action!r}")
        self.low_array = self._bound("low", low)
        self.high_array = self._bound("high", high)
        self.low = <const float *>_in("low", self.low_array, FLOAT32)
        self.high = <const float *>_in("high", self.high_array, FLOAT32)
        self.noisy_array = _aligned(2 * self.components)
        self.noisy = <float *>_out("noisy", self.noisy_array, FLOAT32)
        self.action = <float *>_array("action", self.array, FLOAT32, len(shape), True)
        self.copy = self.array.copy
        return 0

    cdef object _bound(self, str name, object bound):
        """Copy one bound of the box, which must be finite if the action is computed from it."""
        _in(name, bound, FLOAT32)
        if len(bound) != self.components:
            raise ValueError(f"{name}: got length {len(bound)}, expected {self.components} (the size of action_shape)")
        if self.mode in (PYES_SQUASH, PYES_BINS) and not np.isfinite(bound).all():
            raise ValueError(f"{name}: got {bound.tolist()}, expected finite bounds for action tanh or bins")
        return bound.copy()

    cdef int begin_episode(self, object seed, object generation, object member, object episode) except -1:
        """Begin the episode's stream of action noise."""
        self.seed = _seed(seed)
        self.generation = _word("generation", generation)
        self.member = _word("member", member)
        self.episode = _episode(episode)
        self.noise_word = 0
        return 0

    cdef int64_t choose(self, int64_t n, const float *outputs) noexcept:
        """Return the choice of argmax among n outputs, or store the action and return 0."""
        if self.mode < 0:
            return pyes_argmax(n, outputs) + self.start
        if self.noise_enabled and self.deviation > 0 and self.mode != PYES_BINS:
            outputs = self._with_noise(outputs)
        pyes_box_action(self.components, <pyes_action>self.mode, self.bins, outputs, self.low, self.high, self.action)
        return 0

    cdef const float *_with_noise(self, const float *outputs) noexcept:
        """Return the outputs plus the next normals of the episode's stream, one word per component."""
        cdef float *normals = self.noisy + self.components
        pyes_stream_normals(self.components, self.seed, ACTION_PURPOSE, self.generation, self.member, self.episode,
                            self.noise_word, normals)
        self.noise_word += self.components
        pyes_perturb(PYES_BASELINE, self.components, PYES_FLOAT32, outputs, normals, NULL, self.deviation, self.noisy)
        return self.noisy
