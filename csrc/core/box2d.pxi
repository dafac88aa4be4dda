# Box2DTimestep: the timesteps of the lander and the walker as environments in C (environments/box2d.c).

cdef extern from "environments/box2d.h" nogil:
    struct pyes_body:
        float position[2]
    ctypedef double (*pyes_of_angle)(double angle)
    ctypedef void (*pyes_set_motor)(void *joint, float value)
    struct pyes_lander:
        pyes_body *body
        pyes_of_angle sine, cosine
        int discrete
        double ground, shaping
    struct pyes_walker_joint:
        void *joint
        const pyes_body *first
        const pyes_body *second
        float reference
    struct pyes_walker:
        const pyes_body *hull
        pyes_walker_joint joints[4]
        pyes_set_motor set_speed, set_most_torque
        double shaping
    void pyes_lander_fire(pyes_lander *task, const float *action, double first, double second)
    int pyes_lander_outcome(pyes_lander *task, int left, int right, int over, float *observation, double *reward)
    void pyes_walker_drive(pyes_walker *task, const float *action)
    int pyes_walker_outcome(pyes_walker *task, int left, int right, int over, float *observation, double *reward)


cdef class Box2DTimestep:
    """The timestep of a Box2D environment of Gymnasium, as a struct pyes_environment at ``address``.

    Box2D's own step stays a call of Python, for it calls Python back with each contact. Between `attach`, after each reset
    of the environment, and `detach`, before the next, the bodies of the environment are read where Box2D keeps them.

    Attributes
    ----------
    error : BaseException or None
        What Python has raised in a step that failed.
    """
    cdef pyes_environment environment
    cdef object env, advance, times, left, right
    cdef object first  # observation of the episode
    cdef readonly object error

    def __cinit__(self, *arguments, **named):
        self.environment.abi, self.environment.size = PYES_ENVIRONMENT_ABI, sizeof(pyes_environment)
        self.environment.name = b"Box2D"
        self.environment.reset, self.environment.step = _box2d_reset, _box2d_step
        self.environment.user = <void *>self
        self.environment.observation_type = PYES_OBSERVE_FLOAT32

    @property
    def address(self):
        """Of the struct pyes_environment, which lives as long as this object."""
        return <uintptr_t>&self.environment

    cdef int _attach(self, object env, object times, object legs, object first) except -1:
        """Take over after a reset."""
        self.times, (self.left, self.right) = times, legs
        self.error, self.first = None, np.array(first, FLOAT32, order="C")
        if len(self.first) != self.environment.observation_size:
            raise ValueError(f"first: got {len(self.first)} numbers, expected {self.environment.observation_size}")
        self.advance, self.env = env.world.Step, env
        return 0

    def detach(self):
        """Touch nothing of the environment until the next `attach`."""
        self.env = self.advance = self.left = self.right = None

    cdef int _check_begun(self) except -1:
        """Refuse to touch bodies that may be gone."""
        if self.env is None:
            raise RuntimeError("no episode has begun: the last reset of the environment failed; reset it again")
        return 0

    cdef int _advance(self) except -1:
        self.advance(*self.times)
        return self._check_begun()  # a callback may have reset the environment

    cdef int _begin(self, float *observation) except -1:
        cdef const float *first = <const float *>_in("first", self.first, FLOAT32)
        memcpy(observation, first, self.environment.observation_size * sizeof(float))
        return 0

    cdef int _step(self, const float *action, float *observation, double *reward) except -1:
        raise NotImplementedError


cdef void _box2d_reset(void *state, uint64_t seed, void *observation, const void *user) noexcept nogil:
    with gil:
        (<Box2DTimestep><object>user)._begin(<float *>observation)


cdef int _box2d_step(void *state, const float *action, void *observation, double *reward, const void *user) noexcept nogil:
    with gil:
        return _box2d_stepped(<Box2DTimestep><object>user, action, <float *>observation, reward)


cdef int _box2d_stepped(Box2DTimestep timestep, const float *action, float *observation, double *reward) noexcept:
    try:
        timestep._check_begun()
        return timestep._step(action, observation, reward)
    except BaseException as error:  # also an interrupt, in a callback of Box2D's step
        timestep.error = error
        return PYES_FAILED


cdef enum:
    DRAWN = 128  # random numbers at once


@final
cdef class LanderTimestep(Box2DTimestep):
    """The timestep of LunarLander without wind.

    Parameters
    ----------
    discrete : bool
        Whether actions are one of four choices.
    sine, cosine : int
        Addresses of libm's functions.
    """
    cdef pyes_lander task
    cdef object random, drawn
    cdef const double *numbers
    cdef Py_ssize_t used

    def __cinit__(self, *, discrete, sine, cosine):
        self.task.discrete = discrete
        self.task.sine = <pyes_of_angle><uintptr_t>_integer("sine", sine, 1 << 64)
        self.task.cosine = <pyes_of_angle><uintptr_t>_integer("cosine", cosine, 1 << 64)
        self.environment.observation_size = 8
        self.environment.choices, self.environment.action_size = (4, 0) if discrete else (0, 2)

    def attach(self, env, times, legs, first, *, body, ground):
        """Take over after a reset.

        Parameters
        ----------
        env : LunarLander
        times : tuple
            Arguments of Box2D's step.
        legs : (object, object)
            Those which ``ground_contact`` is of, left and right.
        first : float32 (8,)
            The observation.
        body : int
            Address of the lander's b2Body.
        ground : float
            Height of the lander when it stands.
        """
        self.detach()
        self.task.body = <pyes_body *><uintptr_t>_integer("body", body, 1 << 64)
        self.task.ground, self.task.shaping = ground, env.prev_shaping
        self.random, self.used = env.np_random.random, DRAWN
        self._attach(env, times, legs, first)

    cdef int _step(self, const float *action, float *observation, double *reward) except -1:
        if self.used == DRAWN:
            self.drawn = self.random(DRAWN)
            self.numbers, self.used = <const double *>_in("random", self.drawn, FLOAT64), 0
        pyes_lander_fire(&self.task, action, self.numbers[self.used], self.numbers[self.used + 1])
        self.used += 2
        self._advance()
        return pyes_lander_outcome(
            &self.task, self.left.ground_contact, self.right.ground_contact, self.env.game_over, observation, reward
        )


@final
cdef class WalkerTimestep(Box2DTimestep):
    """The timestep of BipedalWalker.

    Parameters
    ----------
    set_speed, set_most_torque : int
        Addresses of b2RevoluteJoint's functions.
    """
    cdef pyes_walker task
    cdef Rays rays

    def __cinit__(self, *, set_speed, set_most_torque):
        self.task.set_speed = <pyes_set_motor><uintptr_t>_integer("set_speed", set_speed, 1 << 64)
        self.task.set_most_torque = <pyes_set_motor><uintptr_t>_integer("set_most_torque", set_most_torque, 1 << 64)
        self.environment.observation_size, self.environment.action_size = 24, 4

    def attach(self, env, times, legs, first, *, hull, joints, Rays rays not None):
        """Take over after a reset.

        Parameters
        ----------
        env : BipedalWalker
        times : tuple
            Arguments of Box2D's step.
        legs : (object, object)
            Those which ``ground_contact`` is of, left and right.
        first : float32 (24,)
            The observation.
        hull : int
            Address of its b2Body.
        joints : sequence of (int, int, int, float)
            Of the four joints: addresses of the b2RevoluteJoint and of its two bodies, and the reference angle.
        rays : Rays
            Ten, over the terrain of the episode.
        """
        self.detach()
        self.task.hull = <const pyes_body *><uintptr_t>_integer("hull", hull, 1 << 64)
        if len(joints) != 4 or rays.rays != 10:
            raise ValueError(f"got {len(joints)} joints and {rays.rays} rays, expected 4 and 10")
        for i, (joint, first_body, second_body, reference) in enumerate(joints):
            self.task.joints[i].joint = <void *><uintptr_t>_integer("joints", joint, 1 << 64)
            self.task.joints[i].first = <const pyes_body *><uintptr_t>_integer("joints", first_body, 1 << 64)
            self.task.joints[i].second = <const pyes_body *><uintptr_t>_integer("joints", second_body, 1 << 64)
            self.task.joints[i].reference = reference
        self.task.shaping, self.rays = env.prev_shaping, rays
        self._attach(env, times, legs, first)

    cdef int _step(self, const float *action, float *observation, double *reward) except -1:
        cdef Rays rays = self.rays
        if not (action[0] == action[0] and action[1] == action[1] and action[2] == action[2] and action[3] == action[3]):
            raise ValueError("action: got NaN, expected numbers; Box2D cannot go on with it")
        pyes_walker_drive(&self.task, action)
        self._advance()
        pyes_ray_fractions(rays.rays, rays.offsets, self.task.hull.position[0], self.task.hull.position[1],
                           rays.segment_count, rays.segments, rays.quad_count, rays.quads, observation + 14)
        return pyes_walker_outcome(
            &self.task, self.left.ground_contact, self.right.ground_contact, self.env.game_over, observation, reward
        )
