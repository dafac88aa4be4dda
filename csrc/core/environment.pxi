# CompiledEnvironment: an environment behind pyes_environment.h (kernels/episode.c, environments/*.c).

cdef extern from "environments/environments.h" nogil:
    const pyes_environment pyes_acrobot
    const pyes_environment pyes_cart_pole
    const pyes_environment pyes_cart_pole_swing_up
    const pyes_environment pyes_maze
    const pyes_environment pyes_mountain_car
    const pyes_environment pyes_mountain_car_continuous
    const pyes_environment pyes_pendulum
    const pyes_environment pyes_slime_volley

cdef uint64_t MOST_STATE = 1 << 32  # bytes of a state; more is a size that was never set
cdef uint64_t MOST_VALUES = 1 << 24  # values of an observation or action; integers below are floats exactly


def own_environments():
    """Return the addresses of the environments that come with pyes, by name."""
    cdef list found = [
        <uintptr_t>&pyes_acrobot, <uintptr_t>&pyes_cart_pole, <uintptr_t>&pyes_cart_pole_swing_up, <uintptr_t>&pyes_maze,
        <uintptr_t>&pyes_mountain_car, <uintptr_t>&pyes_mountain_car_continuous, <uintptr_t>&pyes_pendulum,
        <uintptr_t>&pyes_slime_volley,
    ]
    return {(<bytes>(<const pyes_environment *><uintptr_t>each).name).decode(): each for each in found}


@final
cdef class CompiledEnvironment:
    """An environment in C, with the memory of one episode.

    Parameters
    ----------
    address : int
        Of a ``struct pyes_environment``, see ``pyes_environment.h``; it stays where it is as long as this object lives.
    frame_skip : int
        Steps that an action is held for.
    simulator : object, optional
        With ``begin(seed)``, which is called before each reset of the environment, for what Python must do; and, if it
        knows, ``error``, why a step has failed, to be raised. Kept as long as this object lives.

    Raises
    ------
    ValueError
        The struct is of another version, or has values that cannot be.
    """
    cdef const pyes_environment *environment
    cdef pyes_world world
    cdef object state_array, values_array  # own the memory of the world
    cdef object simulator
    cdef readonly str name

    def __cinit__(self, address, frame_skip=1, simulator=None):
        self.simulator = simulator
        self.environment = <const pyes_environment *><uintptr_t>_integer("address", address, 1 << 64)
        if self.environment == NULL:
            raise ValueError("its address is 0, expected that of a struct pyes_environment")
        self._check()
        self.world.environment = self.environment
        self.world.frame_skip = _integer("frame_skip", frame_skip, 1 << 31)
        if not self.world.frame_skip:
            raise ValueError("frame_skip: got 0, expected at least 1")
        self.state_array = _guarded(self.environment.state_bytes)
        self.values_array = _guarded(self.environment.observation_size * self.dtype.itemsize)
        self.world.state = _out("state", self.state_array, UINT8)
        self.world.values = _out("values", self.values_array, UINT8)

    cdef int _check(self) except -1:
        """Refuse what another version wrote, what is missing, and sizes that cannot be."""
        cdef const pyes_environment *given = self.environment
        if given.abi != PYES_ENVIRONMENT_ABI:
            raise ValueError(f"its ABI is {given.abi}, expected {PYES_ENVIRONMENT_ABI}; "
                             "compile it against the pyes_environment.h in pyes.include_dir()")
        if given.size != sizeof(pyes_environment):
            raise ValueError(f"its size is {given.size}, expected sizeof(struct pyes_environment), which is "
                             f"{sizeof(pyes_environment)}")
        for name, missing in (("name", given.name == NULL), ("reset", given.reset == NULL), ("step", given.step == NULL)):
            if missing:
                raise ValueError(f"its {name} is NULL, expected {'a text' if name == 'name' else 'a function'}")
        self.name = (<bytes>given.name).decode("utf-8", "replace")
        for name, value, low, high in (
            ("state_bytes", given.state_bytes, 0, MOST_STATE),
            ("observation_type", given.observation_type, 0, 1),
            ("observation_size", given.observation_size, 1, MOST_VALUES),
            ("choices", given.choices, 0, MOST_VALUES),
            ("action_size", given.action_size, 0 if given.choices else 1, 0 if given.choices else MOST_VALUES),
            ("time_limit", given.time_limit, 0, 2**63 - 1),
        ):
            if not low <= value <= high:
                rest = f" with {given.choices} choices" if name == "action_size" and given.choices else ""
                raise ValueError(f"its {name} is {value}, expected {low} to {high}{rest}")
        if not given.reward_low <= given.reward_high:
            raise ValueError(f"its reward_low is {given.reward_low}, expected at most reward_high, {given.reward_high}")
        for name, (low, high) in (("observation", self.observation_bounds), ("action", self.action_bounds)):
            if not (low <= high).all():
                raise ValueError(f"its {name}_low[{(low <= high).argmin()}] is above {name}_high, or one of them is NaN")
        return 0

    @property
    def dtype(self):
        """Type of observations."""
        return FLOAT64 if self.environment.observation_type == PYES_OBSERVE_FLOAT64 else FLOAT32

    @property
    def observation_size(self):
        """Values in an observation."""
        return self.environment.observation_size

    @property
    def choices(self):
        """Number of discrete actions; 0 for a box."""
        return self.environment.choices

    @property
    def time_limit(self):
        """Timesteps of an episode in the environment's own steps; 0 for none."""
        return self.environment.time_limit

    @property
    def state(self):
        """The state of the episode: uint8 (state_bytes,), the memory itself."""
        return self.state_array[:-PYES_GUARD]

    @property
    def observation_bounds(self):
        """Ends of the observations, float64 (observation_size,) each; infinite where there are none."""
        return _bounds(FLOAT64, self.environment.observation_size, self.environment.observation_low,
                       self.environment.observation_high)

    @property
    def action_bounds(self):
        """Ends of the actions, float32 (action_size,) each; infinite where there are none."""
        return _bounds(FLOAT32, self.environment.action_size, self.environment.action_low,
                       self.environment.action_high)

    def reset(self, seed):
        """Begin the episode of a seed; return the first observation, newly allocated."""
        self._begin(seed)
        return self._observation()

    cdef int _begin(self, object seed) except -1:
        cdef uint64_t number = _seed(seed)
        if self.simulator is not None:
            self.simulator.begin(seed)
        pyes_world_reset(&self.world, number)
        return self._check_memory()

    def step(self, action):  # IN
        """Apply one action, a choice or numbers, ``frame_skip`` times.

        Returns
        -------
        observation, reward, terminated, truncated
            The observation is newly allocated.

        Raises
        ------
        ValueError
            The action has another size, or the environment broke its contract.
        """
        values = np.ascontiguousarray(action, FLOAT32).ravel()
        cdef const float *given = <const float *>_in("action", values, FLOAT32)
        cdef Py_ssize_t expected = max(1, self.environment.action_size)
        if len(values) != expected:
            raise ValueError(f"action: got {len(values)} values, expected {expected}")
        if self.environment.choices and not 0 <= values[0] < self.environment.choices:
            raise ValueError(f"action: got {action}, expected 0 to {self.environment.choices - 1}")
        if self.environment.choices and values[0] != int(values[0]):
            raise ValueError(f"action: got {action}, expected an integer")
        cdef double reward
        cdef int flags = pyes_world_step(&self.world, given, &reward)
        self._refuse(flags, reward)
        observation = self._observation()
        return observation, reward, bool(flags & PYES_TERMINATED), bool(flags & PYES_TRUNCATED)

    cdef object _observation(self):
        """Copy the observation, after a check of the memory behind it."""
        self._check_memory()
        return self.values_array[:-PYES_GUARD].view(self.dtype).copy()

    cdef int _check_memory(self) except -1:
        cdef int damage = pyes_world_damage(&self.world)
        if damage == 1:
            raise ValueError(f"{self.name} wrote behind its state: state_bytes is {self.environment.state_bytes}, "
                             "expected the size of all that it keeps")
        if damage == 2:
            raise ValueError(f"{self.name} wrote behind its observation: observation_size is {self.observation_size} "
                             f"values of {self.dtype}, expected as many as it observes")
        return 0

    cdef int _refuse(self, int flags, double reward) except -1:
        """Raise for what a step must not return."""
        if flags == PYES_WRONG_FLAGS:
            raise ValueError(f"{self.name}: step returned a wrong number, expected 0, PYES_TERMINATED, PYES_TRUNCATED "
                             "or both")
        if flags == PYES_STEP_FAILED:
            if (raised := getattr(self.simulator, "error", None)) is not None:
                raise raised
            raise ValueError(f"{self.name} failed: its step returned PYES_FAILED, as a function compiled by Numba does "
                             "that has raised an exception; to see it: pyes check-environment")
        if flags == PYES_WRONG_REWARD:
            raise ValueError(f"{self.name}: got the reward {reward}, expected {self.environment.reward_low} to "
                             f"{self.environment.reward_high}, as its reward_low and reward_high say")
        return 0


cdef object _guarded(uint64_t size):
    """Return zeroed memory aligned to a cache line, with a guard behind it."""
    block = np.zeros(size + PYES_GUARD + 63, UINT8)
    cdef uintptr_t address = <uintptr_t>_in("block", block, UINT8)
    cdef Py_ssize_t skip = (64 - address % 64) % 64
    memory = block[skip : skip + size + PYES_GUARD]
    memory[size:] = PYES_GUARD_BYTE
    return memory


cdef object _bounds(object dtype, int64_t size, const void *low, const void *high):
    """Copy bounds, with infinity for those that are left out."""
    both = np.full((2, size), np.inf, dtype)
    both[0] = -np.inf
    cdef char *to = <char *>_array("bounds", both, dtype, 2, True)
    cdef size_t width = size * both.itemsize
    if low != NULL:
        memcpy(to, low, width)
    if high != NULL:
        memcpy(to + width, high, width)
    return both[0], both[1]
