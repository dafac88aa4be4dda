# PolicyRunner: reads an observation, runs a network, and chooses an action.

cdef int64_t SIGNALS_EVERY = 1_000  # timesteps without a look for Ctrl-C


cdef class PolicyRunner:
    """A policy network and its choice of action, one call per timestep.

    Parameters
    ----------
    network : int64 (n, 8 or 15)
        Instructions, one row per layer, see below; or an object with ``dim``, ``outputs``, ``load(theta)``, ``reset()``
        and ``forward(observation)``, which runs the network itself: float32 in, float32 out.
    observation_size : int
        Values in an observation.
    action : str
        argmax | identity | clip | tanh | bins, see ``pyes_box_action`` in the header; or mixed: each component has its own
        rule, see ``pyes_mixed_action``.
    low, high : float32 (a,)
        Ends of the action box; not used by argmax.
    bins : int
        Outputs per component, for bins.
    action_start : int
        Added to the argmax.
    action_shape : tuple of int
        Shape of a box action, of size a.
    action_noise : float
        Standard deviation of the normals added to identity, clip and tanh outputs.
    rules : sequence of str
        Rule of each mixed component: one of the other actions, or sign.
    widths : sequence of int
        Outputs of each mixed component.
    assemble : callable, optional
        Turns a mixed action, float32 (components,), into what ``act`` returns; it must copy. Choices count from 0, signs
        are 0 or 1.
    level : str, optional
        One of ``levels()``, for instructions; the best by default.
    reference_batch : uint8 or float32 (count, observation_size), optional
        For the statistics of normalised layers; stored. Required by such layers, and allowed only with them.

    Raises
    ------
    TypeError, ValueError
        The instructions are invalid, or the outputs do not fit the action.

    Notes
    -----
    Columns of the instructions: op, inputs, outputs, weight_offset, bias_offset, activation, recurrent_offset,
    recurrent_bias_offset; where there are images or normalised layers also channels, height, width, kernel, stride,
    divisor, scale_offset. Ops: 0 linear, 1 rnn, 2 gru, 3 lstm, 4 conv, 5 scale. Activations: 0 identity, 1 tanh,
    2 relu, 3 sigmoid, 4 elu, 5 leaky_relu, 6 silu, 7 gelu, 8 softsign. Weights and biases lie in theta in torch's
    layout, see the header; a bias offset of -1 stands for no bias, a scale offset of -1 for a layer that is not
    normalised.

    Instructions add their inputs in order: equal bits on every machine. Not for use by two threads at once.
    """
    cdef readonly Py_ssize_t dim
    cdef readonly Py_ssize_t observation_size
    cdef readonly Py_ssize_t outputs
    cdef _Network network
    cdef _ActionHead head
    # Arrays own the memory that the pointers below them address.
    cdef object observation_array, mean_array, inverse_std_array, sums_array
    cdef float *observation  # unchanged
    cdef float *input  # normalised, for the network
    cdef const float *mean
    cdef const float *inverse_std
    cdef double *sums
    cdef float observation_limit

    def __cinit__(self, network, Py_ssize_t observation_size, *, action, low=None, high=None, bins=0,
                  action_start=0, action_shape=(), action_noise=0.0, rules=(), widths=(), assemble=None, level=None,
                  reference_batch=None):
        if isinstance(network, np.ndarray):
            self.network = _Compiled(network, observation_size, level, reference_batch)
        else:
            self.network = _Foreign(network, observation_size)
        self.dim, self.outputs = self.network.dim, self.network.outputs
        self.observation_size = observation_size
        self.head = _ActionHead(action, low, high, bins, action_start, tuple(action_shape), action_noise, self.outputs,
                                rules, widths, assemble)
        self.observation_array = _aligned(2 * (observation_size + 16))
        self.observation = <float *>_out("observation", self.observation_array, FLOAT32)
        self.input = self.observation + (observation_size + 15) // 16 * 16

    def load(self, theta, table=None, offset=0, scale=0.0, deviation=None):  # IN, IN, IN
        """Copy the parameters: theta, float32 (dim,), or, with a table, what `perturb` makes of these arguments.

        A network of instructions without normalised layers is packed from theta and the slice in one pass.
        """
        cdef pyes_perturbation by
        _in("theta", theta, FLOAT32)
        if len(theta) != self.dim:
            raise ValueError(f"theta: got length {len(theta)}, expected {self.dim}")
        if table is None:
            self.network.load(theta, NULL)
            return
        _perturbation(&by, self.dim, table, offset, scale, deviation)
        self.network.load(theta, &by)

    def set_action_noise(self, bint enabled):
        """Switch the action noise on (the default) or off."""
        self.head.noise_enabled = enabled

    def normalize(self, mean, inverse_std, clip):  # IN, IN
        """Feed the network (observation - mean) * inverse_std, clipped to +-clip; None, None: the raw observation."""
        self.mean = NULL
        if mean is None and inverse_std is None:
            return
        for name, array in (("mean", mean), ("inverse_std", inverse_std)):
            _in(name, array, FLOAT32)
            if len(array) != self.observation_size:
                raise ValueError(f"{name}: got length {len(array)}, expected {self.observation_size}")
        self.observation_limit = _at_least("clip", clip, 0)
        self.mean_array, self.inverse_std_array = mean.copy(), inverse_std.copy()
        self.inverse_std = <const float *>_in("inverse_std", self.inverse_std_array, FLOAT32)
        self.mean = <const float *>_in("mean", self.mean_array, FLOAT32)

    def begin_episode(self, seed, generation, member, episode):
        """Reset the recurrent states, and begin the stream of action noise of an episode."""
        self.head.begin_episode(seed, generation, member, episode)
        self.network.reset()

    def collect(self, sums):  # OUT
        """Add each following observation of ``act`` to sums[0], its square to sums[1], float64; None stops this."""
        if sums is None:
            self.sums_array, self.sums = None, NULL
            return
        cdef double *p_sums = <double *>_array("sums", sums, FLOAT64, 2, True)
        if sums.shape != (2, self.observation_size):
            raise ValueError(f"sums: got shape {sums.shape}, expected {(2, self.observation_size)}")
        self.sums_array, self.sums = sums, p_sums

    @property
    def packed(self):
        """A copy of the network's weights as the kernels read them, see the header; None unless it is instructions."""
        return (<_Compiled>self.network).packed_array.copy() if isinstance(self.network, _Compiled) else None

    @property
    def state(self):
        """The states of all recurrent layers, for the instructions of this runner: a new float32 (n,), or None."""
        return self.network.state_array.copy() if self.network.state_array is not None else None

    @state.setter
    def state(self, state):  # IN
        _in("state", state, FLOAT32)
        if self.network.state_array is None or state.shape != self.network.state_array.shape:
            known = 0 if self.network.state_array is None else len(self.network.state_array)
            raise ValueError(f"state: got length {len(state)}, expected {known}")
        self.network.state_array[:] = state

    def act(self, observation):  # IN
        """Choose the action for an observation of observation_size values: an int, a new float32 array, or what
        ``assemble`` returns.

        Contiguous float32, float64 and uint8 arrays are fastest; anything else is converted by NumPy. Another size or
        NaN is a ValueError.
        """
        _read_observation(observation, self.observation_size, self.observation)
        cdef int64_t choice = self._choose()
        return choice if self.head.mode < 0 else self.head.copy()

    def forward(self, observation):  # IN
        """Return the network's outputs for an observation, before an action is chosen: a new float32 (outputs,).

        A recurrent network advances by one timestep, as with ``act``.
        """
        _read_observation(observation, self.observation_size, self.observation)
        cdef const float *outputs = self._outputs(False)
        out = np.empty(self.outputs, FLOAT32)
        memcpy(_out("out", out, FLOAT32), outputs, self.outputs * sizeof(float))
        return out

    def check(self, observation):  # IN
        """Refuse an observation with NaN in it, as ``act`` does, without acting: the last one of an episode.

        Raises
        ------
        ValueError    it has NaN, or another size
        """
        _read_observation(observation, self.observation_size, self.observation)
        _check_numbers(self.observation_size, self.observation)

    @property
    def compiled(self):
        """Whether `run` can run episodes: a network of instructions, and an action that is one choice or box."""
        return isinstance(self.network, _Compiled) and self.head.mode != MIXED

    def run(self, CompiledEnvironment environment not None, seed, limit, seen=None, double reward_min=-INFINITY):  # IN
        """Run the episode of a seed in an environment in C, without Python and without the GIL.

        Parameters
        ----------
        environment : CompiledEnvironment
        seed : int
            0 <= seed < 2**64.
        limit : int
            Timesteps after which the episode ends.
        seen : int64 (observation_size,), optional
            Which value of the environment's observation each value that the policy reads is, -1 for 0; all by default.
        reward_min : float, optional
            Smaller rewards of a timestep count as this one.

        Returns
        -------
        float, int, array
            Return, length and last observation, with the bits of as many calls of ``act`` and ``environment.step``.

        Raises
        ------
        ValueError
            An observation has NaN, sizes do not fit, or the environment broke its contract.
        """
        cdef pyes_episode episode
        cdef int64_t most = <int64_t>_integer("limit", limit, 1 << 63)
        cdef int64_t chunk
        cdef int flags
        cdef float choice
        self._prepare(&episode, environment, seen)
        episode.reward_min = reward_min
        if episode.chosen == NULL:
            episode.chosen = &choice
        environment._begin(seed)
        flags = pyes_episode_observe(&episode)
        while flags == 0 and episode.length < most:
            chunk = min(most - episode.length, SIGNALS_EVERY)
            with nogil:
                flags = pyes_episode_run(&episode, chunk)
            PyErr_CheckSignals()
        self.head.noise_word = episode.word
        environment._check_memory()
        environment._refuse(flags, episode.total)
        if flags == PYES_NAN_OBSERVED:
            _check_numbers(self.observation_size, self.observation)
        return episode.total, episode.length, environment._observation()

    cdef int _prepare(self, pyes_episode *episode, CompiledEnvironment environment, object seen) except -1:
        """Fill in all that is the same in every timestep."""
        if not self.compiled:
            raise ValueError("this policy has a network or an action that only Python runs, expected instructions")
        memset(episode, 0, sizeof(pyes_episode))
        cdef Py_ssize_t size = environment.environment.observation_size
        if seen is None and self.observation_size != size:
            raise ValueError(f"environment: got {size} values in an observation, expected {self.observation_size}")
        if seen is not None:
            episode.seen = <const int64_t *>_in("seen", seen, INT64)
            if len(seen) != self.observation_size or not ((seen >= -1) & (seen < size)).all():
                raise ValueError(f"seen: got {seen.tolist()}, expected {self.observation_size} indices below {size}, or -1")
        episode.world = &environment.world
        episode.observed, episode.observation, episode.input = self.observation_size, self.observation, self.input
        episode.mean, episode.inverse_std, episode.limit = self.mean, self.inverse_std, self.observation_limit
        episode.sums = self.sums
        cdef _Compiled network = <_Compiled>self.network
        episode.level, episode.layer_count, episode.layers = network.level, network.layer_count, network.layers
        episode.packed, episode.state, episode.scratch = network.packed, network.state, network.scratch
        episode.outputs = self.outputs
        return self.head.describe(episode, environment.environment.choices, environment.environment.action_size)

    cdef int64_t _choose(self) except? -1:
        """Act on the observation that was read; return the choice of argmax, or store the action and return 0."""
        _check_numbers(self.observation_size, self.observation)
        cdef const float *outputs = self._outputs(True)
        return self.head.choose(self.outputs, outputs)

    cdef const float *_outputs(self, bint collect) except NULL:
        if collect and self.sums != NULL:
            pyes_collect(self.observation_size, self.observation, self.sums)
        if self.mean == NULL:
            return self.network.forward(self.observation)
        pyes_normalize(self.observation_size, self.observation, self.mean, self.inverse_std, self.observation_limit,
                       self.input)
        return self.network.forward(self.input)
