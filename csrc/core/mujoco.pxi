# MujocoTimestep: the timestep of a MuJoCo task as an environment in C (environments/mujoco.c).

cdef extern from "environments/mujoco.h" nogil:
    ctypedef void (*pyes_mujoco_function)(const void *model, void *data)
    ctypedef double (*pyes_mujoco_clock)() noexcept
    ctypedef void (*pyes_numpy_loop)(char **arrays, const intptr_t *count, const intptr_t *strides, void *data)
    ctypedef double (*pyes_power)(double base, double exponent)
    ctypedef double (*pyes_fused)(double a, double b, double c)
    struct pyes_mujoco_part:
        int64_t count
        const double *values
        const double *minus
        pyes_numpy_loop function
        void *function_data
        double low, high
    struct pyes_mujoco_limit:
        int64_t count
        const double *values
        double low, high
        int closed
    enum pyes_mujoco_reward:
        PYES_MUJOCO_RUN
        PYES_MUJOCO_HEALTH
        PYES_MUJOCO_BALANCE
        PYES_MUJOCO_REACH
        PYES_MUJOCO_STAND
    struct pyes_mujoco_distance:
        const double *from_ "from"
        const double *to
        double weight
    struct pyes_mujoco:
        pyes_mujoco_function advance, forces
        pyes_mujoco_clock *clock
        pyes_mujoco_clock own_clock
        const void *model
        void *data
        int64_t frames, controls, part_count, limit_count, masses, contacts
        double *control
        const pyes_mujoco_part *parts
        const pyes_mujoco_limit *limits
        int falls, rewards_health, effort_of_control
        pyes_mujoco_reward reward
        pyes_power power
        pyes_fused fused
        const double *place
        const double *speeds
        const double *mass
        const double *centers
        const double *contact
        double seconds, whole_mass, speed_weight, health_reward, effort_weight
        double contact_weight, contact_low, contact_high, contact_cost_low, contact_cost_high
        pyes_mujoco_distance distances[2]
    int pyes_mujoco_step(void *state, const float *action, void *observation, double *reward, const void *user)
    void pyes_mujoco_reset(void *state, uint64_t seed, void *observation, const void *user)

cdef dict MUJOCO_REWARDS = {
    "run": PYES_MUJOCO_RUN, "health": PYES_MUJOCO_HEALTH, "balance": PYES_MUJOCO_BALANCE, "reach": PYES_MUJOCO_REACH,
    "stand": PYES_MUJOCO_STAND,
}


@final
cdef class MujocoTimestep:
    """The timestep of a MuJoCo task, as a struct pyes_environment at ``address``.

    Parameters
    ----------
    engine : tuple of int
        Addresses: of mj_step, of mj_rnePostConstraint or 0, of the model, of the data.
    clock : (int, int)
        Address of mjcb_time, and its value that is 0 instead while the engine steps; zeros: it stays as it is.
    frames : int
        Calls of mj_step for a timestep.
    control : float64 (controls,)
        The data's own, as are all arrays that follow; kept, read and never copied.
    observation : sequence of (values, minus, function, low, high)
        Consecutive parts: values - minus, clipped; ``minus`` may be None, and ``function`` None or the address of an
        inner loop of NumPy and of its data.
    limits : sequence of (values, low, high, closed)
        Of a healthy robot.
    falls : bool
        Whether the episode ends when it is not healthy.
    reward : str
        run | health | balance | reach | stand, see ``environments/mujoco.h``, which also has what follows.
    contact : tuple, optional
        (values, weight, (low, high) of a value, (low, high) of the cost).
    distances : sequence of (from, to, weight)
        One or two for reach.

    Raises
    ------
    TypeError, ValueError
        An array is not of the kind that MuJoCo has, or of another size.
    """
    cdef pyes_environment environment
    cdef pyes_mujoco task
    cdef pyes_mujoco_part *parts
    cdef pyes_mujoco_limit *limits
    cdef list arrays  # own the memory that the pointers address

    def __cinit__(self, *, engine, clock, frames, control, observation, limits, falls, reward, seconds=1.0, place=None,
                  speeds=None, mass=None, centers=None, whole_mass=1.0, speed_weight=0.0, health_reward=None,
                  effort_weight=0.0, effort_of_control=False, contact=None, distances=(), power=0, fused=0):
        self.arrays = []
        advance, forces, model, data = (_integer("engine", each, 1 << 64) for each in engine)
        if not (advance and model and data):
            raise ValueError("engine: got the address 0, expected those of mj_step, the model and the data")
        self.task.advance = <pyes_mujoco_function><uintptr_t>advance
        self.task.forces = <pyes_mujoco_function><uintptr_t>forces
        place_of_clock, own_clock = (_integer("clock", each, 1 << 64) for each in clock)
        self.task.clock = <pyes_mujoco_clock *><uintptr_t>place_of_clock
        self.task.own_clock = <pyes_mujoco_clock><uintptr_t>own_clock
        self.task.model, self.task.data = <const void *><uintptr_t>model, <void *><uintptr_t>data
        self.task.frames = _integer("frames", frames, 1 << 31)
        self.task.controls = control.size
        self.task.control = <double *>_array("control", control, FLOAT64, 1, True)
        self.arrays.append(control)
        self.environment.observation_size = self._observe(list(observation))
        self._limit(list(limits), falls)
        self._pay(reward, place, speeds, distances, power)
        self._weigh(mass, centers, whole_mass)
        self.task.fused = <pyes_fused><uintptr_t>_integer("fused", fused, 1 << 64)
        self.task.seconds, self.task.speed_weight = seconds, speed_weight
        self.task.rewards_health = health_reward is not None
        self.task.health_reward = health_reward or 0.0
        self.task.effort_weight, self.task.effort_of_control = effort_weight, effort_of_control
        if contact is not None:
            self._touch(contact)
        self._publish()

    def __dealloc__(self):
        PyMem_Free(self.parts)
        PyMem_Free(self.limits)

    cdef int _publish(self) except -1:
        """Fill in the struct of the public header."""
        self.environment.abi, self.environment.size = PYES_ENVIRONMENT_ABI, sizeof(pyes_environment)
        self.environment.name = b"MuJoCo"
        self.environment.reset, self.environment.step = pyes_mujoco_reset, pyes_mujoco_step
        self.environment.user = &self.task
        self.environment.observation_type = PYES_OBSERVE_FLOAT64
        self.environment.action_size = self.task.controls
        return 0

    cdef const double *_numbers(self, str name, object array, Py_ssize_t size=-1) except? NULL:
        """Return the address of an array of the data, which is kept."""
        cdef const double *address = <const double *>_array(name, array, FLOAT64, getattr(array, "ndim", 1), False)
        if size >= 0 and array.size != size:
            raise ValueError(f"{name}: got {array.size} numbers, expected {size}")
        self.arrays.append(array)
        return address

    cdef Py_ssize_t _observe(self, list observation) except -1:
        """Store the parts of an observation; return how many numbers they are."""
        cdef Py_ssize_t total = 0
        cdef pyes_mujoco_part *part
        self.parts = <pyes_mujoco_part *>PyMem_Calloc(max(1, len(observation)), sizeof(pyes_mujoco_part))
        if self.parts == NULL:
            raise MemoryError
        self.task.parts, self.task.part_count = self.parts, len(observation)
        for i, (values, minus, function, low, high) in enumerate(observation):
            part = &self.parts[i]
            part.values, part.count = self._numbers("observation", values), values.size
            if minus is not None:
                part.minus = self._numbers("observation", minus, values.size)
            part.low, part.high = low, high
            if function is not None:
                part.function = <pyes_numpy_loop><uintptr_t>_integer("function", function[0], 1 << 64)
                part.function_data = <void *><uintptr_t>_integer("function", function[1], 1 << 64)
            total += values.size
        return total

    cdef int _limit(self, list limits, bint falls) except -1:
        cdef pyes_mujoco_limit *limit
        self.limits = <pyes_mujoco_limit *>PyMem_Calloc(max(1, len(limits)), sizeof(pyes_mujoco_limit))
        if self.limits == NULL:
            raise MemoryError
        self.task.limits, self.task.limit_count, self.task.falls = self.limits, len(limits), falls
        for i, (values, low, high, closed) in enumerate(limits):
            limit = &self.limits[i]
            limit.values, limit.count = self._numbers("limits", values), values.size
            limit.low, limit.high, limit.closed = low, high, closed
        return 0

    cdef int _pay(self, str reward, object place, object speeds, object distances, object power) except -1:
        """Store what a kind of reward reads, all of it or none."""
        if reward not in MUJOCO_REWARDS:
            raise ValueError(f"reward: got {reward!r}, expected one of {', '.join(MUJOCO_REWARDS)}")
        self.task.reward = MUJOCO_REWARDS[reward]
        if reward in ("run", "stand", "balance"):
            self.task.place = self._numbers("place", place, 3 if reward == "balance" else 1)
        if reward == "balance":
            self.task.speeds = self._numbers("speeds", speeds, 2)
            self.task.power = <pyes_power><uintptr_t>_integer("power", power, 1 << 64)
            if self.task.power == NULL:
                raise ValueError("power: got the address 0, expected that of a function")
        if not (1 <= len(distances) <= 2 if reward == "reach" else len(distances) == 0):
            raise ValueError(f"distances: got {len(distances)} with the reward {reward!r}")
        for i, (start, end, weight) in enumerate(distances):
            self.task.distances[i].from_ = self._numbers("distances", start, 3)
            self.task.distances[i].to = self._numbers("distances", end, 3)
            self.task.distances[i].weight = weight
        return 0

    cdef int _weigh(self, object mass, object centers, double whole_mass) except -1:
        if mass is not None:
            self.task.masses, self.task.mass = mass.size, self._numbers("mass", mass)
            self.task.centers, self.task.whole_mass = self._numbers("centers", centers, 3 * mass.size), whole_mass
        return 0

    cdef int _touch(self, tuple contact) except -1:
        values, weight, ends, costs = contact
        self.task.contacts, self.task.contact = values.size, self._numbers("contact", values)
        self.task.contact_weight = weight
        self.task.contact_low, self.task.contact_high = ends
        self.task.contact_cost_low, self.task.contact_cost_high = costs
        return 0

    @property
    def address(self):
        """Of the struct pyes_environment, which lives as long as this object."""
        return <uintptr_t>&self.environment
