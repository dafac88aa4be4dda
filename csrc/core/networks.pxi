# Networks: as instructions that a kernel runs, or as a Python object (kernels/program.c, policy.c,
# virtual_batch_norm.c).

cdef class _Network:
    """Interface of networks for a runner."""
    cdef Py_ssize_t dim, outputs
    cdef object state_array  # owns the states of recurrent layers; None where a Python object has them
    cdef object perturbed_array  # theta as it was perturbed last, for what cannot be packed from its parts

    cdef int load(self, object theta, const pyes_perturbation *by) except -1:
        """Take parameters, perturbed unless ``by`` is NULL."""
        raise NotImplementedError

    cdef object _perturbed(self, object theta, const pyes_perturbation *by):
        """Return the parameters as an array, valid until the next call."""
        if by == NULL:
            return theta
        if self.perturbed_array is None:
            self.perturbed_array = np.empty(self.dim, FLOAT32)
        cdef const float *parameters = <const float *>_in("theta", theta, FLOAT32)
        cdef float *perturbed = <float *>_out("perturbed", self.perturbed_array, FLOAT32)
        cdef pyes_level level = _level(None)
        with nogil:
            pyes_perturb(level, self.dim, by.dtype, parameters, by.slice, by.deviation, by.scale, perturbed)
        return self.perturbed_array

    cdef int reset(self) except -1:
        raise NotImplementedError

    cdef const float *forward(self, const float *input) except NULL:
        raise NotImplementedError


@final
cdef class _Foreign(_Network):
    """A network that runs as a Python object. The runner normalises its observations and chooses the action."""
    cdef object network, input_array, outputs_array
    cdef float *input
    cdef Py_ssize_t observation_size

    def __cinit__(self, network, Py_ssize_t observation_size):
        self.network = network
        self.dim, self.outputs, self.observation_size = network.dim, network.outputs, observation_size
        self.input_array = _aligned(observation_size)
        self.input = <float *>_out("input", self.input_array, FLOAT32)

    cdef int load(self, object theta, const pyes_perturbation *by) except -1:
        self.network.load(self._perturbed(theta, by))
        return 0

    cdef int reset(self) except -1:
        self.network.reset()
        return 0

    cdef const float *forward(self, const float *input) except NULL:
        memcpy(self.input, input, self.observation_size * sizeof(float))
        self.outputs_array = self.network.forward(self.input_array)
        cdef const float *outputs = <const float *>_in("outputs of the network", self.outputs_array, FLOAT32)
        if len(self.outputs_array) != self.outputs:
            raise ValueError(f"outputs of the network: got {len(self.outputs_array)}, expected {self.outputs}")
        return outputs


@final
cdef class _Compiled(_Network):
    """A network as instructions, with its parameters, states and reference batch."""
    cdef pyes_level level
    cdef int64_t layer_count, state_size
    cdef pyes_layer *layers
    # Arrays own the memory that the pointers below them address.
    cdef object packed_array, scratch_array, batch_array, values_array, sums_array
    cdef float *packed
    cdef float *state
    cdef float *scratch
    cdef const void *batch  # the reference batch
    cdef float *values  # of the normalised layers, for the whole batch
    cdef double *sums

    def __cinit__(self, instructions, Py_ssize_t observation_size, level, reference_batch):
        self.level = _level(level)
        _check_shape(instructions)
        self.layer_count = instructions.shape[0]
        self.layers = <pyes_layer *>PyMem_Calloc(self.layer_count, sizeof(pyes_layer))
        if self.layers == NULL:
            raise MemoryError
        self.outputs, weights = observation_size, 0  # a Python integer, which does not overflow
        for k, row in enumerate(instructions.tolist()):
            _read_layer(row, &self.layers[k])
            _check_layer(k, &self.layers[k], self.outputs)
            self.outputs = self.layers[k].outputs
            self.dim = max(self.dim, pyes_layer_dim(&self.layers[k]))
            weights += 4 * (row[1] + row[2] + 1) * (row[2] + 16)
        if weights > FARTHEST:
            raise ValueError(f"instructions: got layers of about {weights} weights, expected at most {FARTHEST}")
        self._allocate()
        self._set_reference_batch(reference_batch, observation_size)

    def __dealloc__(self):
        PyMem_Free(self.layers)

    cdef int _allocate(self) except -1:
        cdef int64_t packed_size
        pyes_policy_place(self.layer_count, self.layers, &packed_size, &self.state_size)
        self.packed_array = _aligned(packed_size)
        self.packed = <float *>_out("packed", self.packed_array, FLOAT32)
        self.state_array = _aligned(self.state_size)
        self.state = <float *>_out("state", self.state_array, FLOAT32)
        self.scratch_array = _aligned(2 * self.layers[0].widest)
        self.scratch = <float *>_out("scratch", self.scratch_array, FLOAT32)
        return 0

    cdef int _set_reference_batch(self, object batch, Py_ssize_t observation_size) except -1:
        """Store the batch for the statistics of normalised layers, and allocate their working memory."""
        cdef int64_t width = pyes_policy_batch_norm_width(self.layer_count, self.layers)
        if width == 0 and batch is not None:
            raise ValueError("reference_batch: got one, expected none (this network has no normalised layers)")
        if width == 0:
            return 0
        if batch is None:
            raise ValueError("reference_batch: got none, expected an array (this network has normalised layers)")
        self._check_memory()
        dtype = UINT8 if isinstance(batch, np.ndarray) and batch.dtype == UINT8 else FLOAT32
        self.batch = _array("reference_batch", batch, dtype, 2, False)
        if batch.shape[0] < 1 or batch.shape[1] != observation_size:
            raise ValueError(f"reference_batch: got shape {batch.shape}, expected (n, {observation_size}) with n >= 1")
        self.batch_array = batch
        self.values_array = np.empty(len(batch) * width, FLOAT32)
        self.values = <float *>_out("values", self.values_array, FLOAT32)
        self.sums_array = np.empty(2 * width, FLOAT64)
        self.sums = <double *>_out("sums", self.sums_array, FLOAT64)
        return 0

    cdef int _check_memory(self) except -1:
        """Reject a normalised layer after a recurrent one, whose outputs depend on more than one observation."""
        cdef bint remembers = False
        for k in range(self.layer_count):
            remembers |= _is_recurrent(&self.layers[k])
            if remembers and self.layers[k].scale_offset >= 0:
                raise ValueError(
                    f"instructions[{k}]: got a normalised layer behind one with a memory, expected none "
                    "(its statistics come from single observations)"
                )
        return 0

    cdef int load(self, object theta, const pyes_perturbation *by) except -1:
        cdef const float *parameters = <const float *>_in("theta", theta, FLOAT32)
        if self.batch == NULL:
            with nogil:
                pyes_policy_pack(self.level, self.layer_count, self.layers, parameters, by, self.packed)
            return 0
        parameters = <const float *>_in("theta", self._perturbed(theta, by), FLOAT32)
        cdef pyes_value type = PYES_BYTE if self.batch_array.dtype == UINT8 else PYES_FLOAT
        cdef int64_t count = len(self.batch_array)
        with nogil:
            pyes_policy_pack(self.level, self.layer_count, self.layers, parameters, NULL, self.packed)
            pyes_policy_batch_norm(self.level, self.layer_count, self.layers, parameters, count, type, self.batch,
                                   self.packed, self.scratch, self.values, self.sums)
        return 0

    cdef int reset(self) except -1:
        memset(self.state, 0, self.state_size * sizeof(float))
        return 0

    cdef const float *forward(self, const float *input) except NULL:
        return pyes_policy_forward(self.level, self.layer_count, self.layers, self.packed, input, self.state,
                                   self.scratch)
