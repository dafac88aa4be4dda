# Box2DTimestep: the timesteps of the lander and the walker as environments in C (environments/box2d.c).

cdef extern from "environments/box2d.h" nogil:
    struct pyes_body:
        pass
    ctypedef void (*pyes_step_world)(void *world, float seconds, int32_t velocity_iterations, int32_t position_iterations)
    struct pyes_listener:
        const pyes_body *robot
        const pyes_body *legs[2]
        int down
        int touching[2]
    ctypedef void (*pyes_set_listener)(void *world, pyes_listener *listener)
    enum: PYES_BOX2D_FINE, PYES_BOX2D_NOT_BEGUN, PYES_BOX2D_NAN
    struct pyes_physics:
        void *world
        pyes_step_world step
        pyes_set_listener set_listener
        pyes_listener listener
        int error
    void pyes_listen(pyes_physics *physics)
    struct pyes_generator:
        pass
    ctypedef double (*pyes_of_angle)(double angle)
    ctypedef void (*pyes_set_motor)(void *joint, float value)
    struct pyes_lander:
        pyes_physics physics
        pyes_body *body
        pyes_generator *random
        pyes_of_angle sine, cosine
        int discrete
        double ground, shaping
        float first[8]
    void pyes_lander_reset(void *state, uint64_t seed, void *observation, const void *user)
    int pyes_lander_step(void *state, const float *action, void *observation, double *reward, const void *user)
    struct pyes_walker_joint:
        void *joint
        const pyes_body *first
        const pyes_body *second
        float reference
    struct pyes_rays:
        int64_t rays, segment_count, quad_count
        const double *offsets
        const float *segments
        const float *quads
    struct pyes_walker:
        pyes_physics physics
        const pyes_body *hull
        pyes_walker_joint joints[4]
        pyes_set_motor set_speed, set_most_torque
        pyes_rays rays
        double shaping
        float first[24]
    void pyes_walker_reset(void *state, uint64_t seed, void *observation, const void *user)
    int pyes_walker_step(void *state, const float *action, void *observation, double *reward, const void *user)


cdef class Box2DTimestep:
    """The timestep of a Box2D environment of Gymnasium, as a struct pyes_environment at ``address``.

    Between `attach`, after each reset of the environment, and `give_back`, before the next or before Python steps, the bodies
    of the environment are read where Box2D keeps them, and Box2D reports contacts to C alone.

    Parameters
    ----------
    step, set_listener : int
        Addresses of b2World's functions.
    """
    cdef pyes_environment environment
    cdef pyes_physics *physics
    cdef double *shaping
    cdef float *first
    cdef object env, world, legs  # owned while their bodies are read

    cdef int _describe(self, pyes_physics *physics, double *shaping, float *first, int observation_size) except -1:
        """Say what the environment in C is, and where its task has what all have."""
        self.physics, self.shaping, self.first = physics, shaping, first
        self.environment.abi, self.environment.size = PYES_ENVIRONMENT_ABI, sizeof(pyes_environment)
        self.environment.name = b"Box2D"
        self.environment.observation_type, self.environment.observation_size = PYES_OBSERVE_FLOAT32, observation_size
        return 0

    @property
    def address(self):
        """Of the struct pyes_environment, which lives as long as this object."""
        return <uintptr_t>&self.environment

    @property
    def error(self):
        """Why the last step that failed did, as an exception; None: none has."""
        if self.physics.error == PYES_BOX2D_NAN:
            return ValueError("action: got NaN, expected numbers; Box2D cannot go on with it")
        if self.physics.error == PYES_BOX2D_NOT_BEGUN:
            return RuntimeError("no episode for C: its reset failed, or Python has taken over; reset the environment")
        return None

    cdef int _calls(self, object step, object set_listener) except -1:
        self.physics.step = <pyes_step_world><uintptr_t>_integer("step", step, 1 << 64)
        self.physics.set_listener = <pyes_set_listener><uintptr_t>_integer("set_listener", set_listener, 1 << 64)
        return 0

    cdef int _attach(self, object env, object world, object robot, object legs, object first) except -1:
        """Take over after a reset; nothing may fail once Box2D has the listener."""
        cdef pyes_listener *listener = &self.physics.listener
        cdef void *address = <void *><uintptr_t>_integer("world", world, 1 << 64)
        observation = np.array(first, FLOAT32, order="C")
        if len(observation) != self.environment.observation_size:
            raise ValueError(f"first: got {len(observation)} numbers, expected {self.environment.observation_size}")
        memcpy(self.first, _in("first", observation, FLOAT32), self.environment.observation_size * sizeof(float))
        (left, left_body), (right, right_body) = legs
        listener.robot = <const pyes_body *><uintptr_t>_integer("robot", robot, 1 << 64)
        listener.legs[0] = <const pyes_body *><uintptr_t>_integer("legs", left_body, 1 << 64)
        listener.legs[1] = <const pyes_body *><uintptr_t>_integer("legs", right_body, 1 << 64)
        cdef int down = env.game_over, on_left = left.ground_contact, on_right = right.ground_contact
        self.shaping[0] = env.prev_shaping
        self.env, self.world, self.legs = env, env.world, (left, right)
        self.physics.world = address
        pyes_listen(self.physics)
        listener.down, listener.touching[0], listener.touching[1] = down, on_left, on_right
        return 0

    def give_back(self):
        """Leave the rest of an episode to Python, if it is taken over, and say how far it is."""
        cdef pyes_listener *listener = &self.physics.listener
        if self.world is None:
            return
        self.physics.world = NULL  # C steps no more, wherever an interrupt comes; the next call does the rest again
        self.world.contactListener = self.world.contactListener  # as Python has it
        self.env.prev_shaping, self.env.game_over = self.shaping[0], bool(listener.down)
        for leg, touching in zip(self.legs, (listener.touching[0], listener.touching[1])):
            leg.ground_contact = bool(touching)
        self.env = self.world = self.legs = None


@final
cdef class LanderTimestep(Box2DTimestep):
    """The timestep of LunarLander without wind.

    Parameters
    ----------
    step, set_listener : int
        As for all.
    discrete : bool
        Whether actions are one of four choices.
    sine, cosine : int
        Addresses of libm's functions.
    """
    cdef pyes_lander task
    cdef object generator

    def __cinit__(self, *, step, set_listener, discrete, sine, cosine):
        self._describe(&self.task.physics, &self.task.shaping, self.task.first, 8)
        self._calls(step, set_listener)
        self.task.discrete = discrete
        self.task.sine = <pyes_of_angle><uintptr_t>_integer("sine", sine, 1 << 64)
        self.task.cosine = <pyes_of_angle><uintptr_t>_integer("cosine", cosine, 1 << 64)
        self.environment.choices, self.environment.action_size = (4, 0) if discrete else (0, 2)
        self.environment.reset, self.environment.step = pyes_lander_reset, pyes_lander_step
        self.environment.user = &self.task

    def attach(self, env, legs, first, *, world, body, ground):
        """Take over after a reset.

        Parameters
        ----------
        env : LunarLander
        legs : sequence of (object, int)
            Those which ``ground_contact`` is of, left and right, and the addresses of their b2Bodies.
        first : float32 (8,)
            The observation.
        world, body : int
            Addresses of the b2World and of the lander's b2Body.
        ground : float
            Height of the lander when it stands.
        """
        self.give_back()
        self.generator = env.np_random.bit_generator
        self.task.random = <pyes_generator *>PyCapsule_GetPointer(self.generator.capsule, "BitGenerator")
        self.task.body = <pyes_body *><uintptr_t>_integer("body", body, 1 << 64)
        self.task.ground = ground
        self._attach(env, world, body, legs, first)


@final
cdef class WalkerTimestep(Box2DTimestep):
    """The timestep of BipedalWalker.

    Parameters
    ----------
    step, set_listener : int
        As for all.
    set_speed, set_most_torque : int
        Addresses of b2RevoluteJoint's functions.
    """
    cdef pyes_walker task
    cdef Rays rays  # owns what the task casts

    def __cinit__(self, *, step, set_listener, set_speed, set_most_torque):
        self._describe(&self.task.physics, &self.task.shaping, self.task.first, 24)
        self._calls(step, set_listener)
        self.task.set_speed = <pyes_set_motor><uintptr_t>_integer("set_speed", set_speed, 1 << 64)
        self.task.set_most_torque = <pyes_set_motor><uintptr_t>_integer("set_most_torque", set_most_torque, 1 << 64)
        self.environment.action_size = 4
        self.environment.reset, self.environment.step = pyes_walker_reset, pyes_walker_step
        self.environment.user = &self.task

    def attach(self, env, legs, first, *, world, hull, joints, Rays rays not None):
        """Take over after a reset.

        Parameters
        ----------
        env : BipedalWalker
        legs : sequence of (object, int)
            Those which ``ground_contact`` is of, left and right, and the addresses of their b2Bodies.
        first : float32 (24,)
            The observation.
        world, hull : int
            Addresses of the b2World and of the hull's b2Body.
        joints : sequence of (int, int, int, float)
            Of the four joints: addresses of the b2RevoluteJoint and of its two bodies, and the reference angle.
        rays : Rays
            Ten, over the terrain of the episode.
        """
        self.give_back()
        self.task.hull = <const pyes_body *><uintptr_t>_integer("hull", hull, 1 << 64)
        if len(joints) != 4 or rays.rays != 10:
            raise ValueError(f"got {len(joints)} joints and {rays.rays} rays, expected 4 and 10")
        for i, (joint, first_body, second_body, reference) in enumerate(joints):
            self.task.joints[i].joint = <void *><uintptr_t>_integer("joints", joint, 1 << 64)
            self.task.joints[i].first = <const pyes_body *><uintptr_t>_integer("joints", first_body, 1 << 64)
            self.task.joints[i].second = <const pyes_body *><uintptr_t>_integer("joints", second_body, 1 << 64)
            self.task.joints[i].reference = reference
        self.rays = rays
        self.task.rays.rays, self.task.rays.offsets = rays.rays, rays.offsets
        self.task.rays.segment_count, self.task.rays.segments = rays.segment_count, rays.segments
        self.task.rays.quad_count, self.task.rays.quads = rays.quad_count, rays.quads
        self._attach(env, world, hull, legs, first)
