# Turns the outputs of a network into an action (kernels/action.c).

cdef enum:
    MIXED = 100  # components with rules of their own: pyes_mixed_action

cdef dict ACTIONS = {
    "argmax": -1,
    "identity": PYES_UNCHANGED,
    "clip": PYES_CLIP,
    "scale": PYES_SPAN,
    "tanh": PYES_SQUASH,
    "bins": PYES_BINS,
    "mixed": MIXED,
}
cdef uint32_t ACTION_PURPOSE = 3  # pyes.numerics.streams.Purpose.ACTION


@final
cdef class _ActionHead:
    """The action mode, the bounds of the action, and the noise of the episode."""
    cdef int mode  # -1 for argmax, MIXED, else pyes_action
    cdef int64_t components, bins, start
    # Arrays own the memory that the pointers below them address.
    cdef object array, low_array, high_array, noisy_array
    cdef object copy  # returns a copy of the action, or what is assembled of it
    cdef object assemble  # makes the environment's action of a mixed one; None: it is left as it is
    cdef object rules_array, widths_array
    cdef const int64_t *rules  # of mixed components
    cdef const int64_t *widths
    cdef int64_t outputs
    cdef float *action
    cdef const float *low
    cdef const float *high
    cdef float *noisy  # outputs with noise, then the noise itself
    cdef double deviation  # of the noise
    cdef bint noise_enabled
    cdef uint64_t seed, noise_word
    cdef uint32_t generation, member, episode

    def __cinit__(self, str action, low, high, bins, start, tuple shape, deviation, Py_ssize_t outputs, rules, widths,
                  assemble):
        if action not in ACTIONS:
            raise ValueError(f"action: got {action!r}, expected one of {', '.join(ACTIONS)}")
        self.mode = ACTIONS[action]
        self.start, self.bins = start, bins
        self.deviation = _at_least("action_noise", deviation, 0)
        self.noise_enabled = True
        self.outputs = outputs
        self.assemble = assemble
        if self.mode == MIXED:
            self._set_rules(rules, widths)
            shape = (len(self.rules_array),)
        if self.mode >= 0:
            self._set_box(action, low, high, shape)

    cdef int _set_rules(self, object rules, object widths) except -1:
        """Take what mixed components are made by: names of other actions, argmax and sign; and their outputs."""
        known = {**ACTIONS, "argmax": PYES_CHOICE, "sign": PYES_SIGN}
        del known["mixed"]
        for i, (rule, width) in enumerate(zip(rules, widths, strict=True)):
            if rule not in known:
                raise ValueError(f"rules[{i}]: got {rule!r}, expected one of {', '.join(known)}")
            least, most = {"argmax": (1, self.outputs), "bins": (2, self.outputs)}.get(rule, (1, 1))
            if not least <= width <= most:
                raise ValueError(f"widths[{i}]: got {width}, expected {least} to {most} for action {rule!r}")
        self.rules_array = np.array([known[rule] for rule in rules], INT64)
        self.widths_array = np.array(widths, INT64)
        self.rules = <const int64_t *>_in("rules", self.rules_array, INT64)
        self.widths = <const int64_t *>_in("widths", self.widths_array, INT64)
        return 0

    cdef int _set_box(self, str action, object low, object high, tuple shape) except -1:
        self.array = np.zeros(shape, FLOAT32)
        self.components = self.array.size
        cdef int64_t expected = self.components
        if self.mode == PYES_BINS:
            if self.bins < 2:
                raise ValueError(f"bins: got {self.bins}, expected at least 2")
            if self.bins > self.outputs:  # before a product that could overflow
                raise ValueError(f"bins: got {self.bins}, expected at most the {self.outputs} outputs of the network")
            expected *= self.bins
        if self.mode == MIXED:
            expected = self.widths_array.sum()
        if self.outputs != expected:
            raise ValueError(f"network: got {self.outputs} outputs, expected {expected} for action {action!r}")
        self.low_array = self._bound("low", low)
        self.high_array = self._bound("high", high)
        self.low = <const float *>_in("low", self.low_array, FLOAT32)
        self.high = <const float *>_in("high", self.high_array, FLOAT32)
        self.noisy_array = _aligned(self.outputs + self.components)
        self.noisy = <float *>_out("noisy", self.noisy_array, FLOAT32)
        self.action = <float *>_array("action", self.array, FLOAT32, len(shape), True)
        self.copy = self.array.copy if self.assemble is None else functools.partial(self.assemble, self.array)
        return 0

    cdef object _bound(self, str name, object bound):
        """Copy one bound of the box, which must be finite if the action is computed from it."""
        _in(name, bound, FLOAT32)
        if len(bound) != self.components:
            raise ValueError(f"{name}: got length {len(bound)}, expected {self.components} (the size of action_shape)")
        rules = self.rules_array if self.mode == MIXED else np.array(self.mode)
        needed = np.isin(rules, (PYES_SPAN, PYES_SQUASH, PYES_BINS))
        if not np.isfinite(bound)[np.broadcast_to(needed, bound.shape)].all():
            raise ValueError(f"{name}: got {bound.tolist()}, expected finite bounds for action scale, tanh or bins")
        return bound.copy()

    cdef int begin_episode(self, object seed, object generation, object member, object episode) except -1:
        """Begin the episode's stream of action noise."""
        self.seed = _seed(seed)
        self.generation = _word("generation", generation)
        self.member = _word("member", member)
        self.episode = _episode(episode)
        self.noise_word = 0
        return 0

    cdef int describe(self, pyes_episode *episode, int64_t choices, int64_t size) except -1:
        """Fill in the action of an environment with so many choices, or a box of this size."""
        if (self.mode < 0) != (choices > 0) or (self.mode < 0 and (self.outputs != choices or self.start)):
            raise ValueError(f"environment: got {choices} choices, expected those of this policy")
        if self.mode >= 0 and self.components != size:
            raise ValueError(f"environment: got actions of {size} numbers, expected {self.components}")
        if self.mode < 0:  # a choice, for which the caller has a place
            return 0
        episode.noisy = self.noisy
        episode.components, episode.bins, episode.action = self.components, self.bins, <pyes_action>self.mode
        episode.low, episode.high, episode.chosen = self.low, self.high, self.action
        episode.deviation = self.deviation if self.noise_enabled and self.mode != PYES_BINS else 0
        episode.seed, episode.word, episode.purpose = self.seed, self.noise_word, ACTION_PURPOSE
        episode.generation, episode.member, episode.number = self.generation, self.member, self.episode
        return 0

    cdef int64_t choose(self, int64_t n, const float *outputs) noexcept:
        """Return the choice of argmax among n outputs, or store the action and return 0."""
        if self.mode < 0:
            return pyes_argmax(n, outputs) + self.start
        if self.noise_enabled and self.deviation > 0 and self.mode != PYES_BINS:
            outputs = self._with_mixed_noise(outputs) if self.mode == MIXED else self._with_noise(outputs)
        if self.mode == MIXED:
            pyes_mixed_action(self.components, self.rules, self.widths, outputs, self.low, self.high, self.action)
            return 0
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

    cdef const float *_with_mixed_noise(self, const float *outputs) noexcept:
        """The same for mixed components: those that are not chosen among outputs have a word each."""
        cdef float *normals = self.noisy + self.outputs
        cdef int64_t i, at = 0, drawn = 0
        memcpy(self.noisy, outputs, self.outputs * sizeof(float))
        pyes_stream_normals(self.components, self.seed, ACTION_PURPOSE, self.generation, self.member, self.episode,
                            self.noise_word, normals)
        for i in range(self.components):
            if self.rules[i] <= PYES_SQUASH:
                pyes_perturb(PYES_BASELINE, 1, PYES_FLOAT32, outputs + at, normals + drawn, NULL, self.deviation,
                             self.noisy + at)
                drawn += 1
            at += self.widths[i]
        self.noise_word += drawn
        return self.noisy
