/* Timesteps of Gymnasium's LunarLander and BipedalWalker around the step of Box2D.
 *
 * Each number is computed in the order in which gymnasium/envs/box2d and Box2D compute it, so that it has the same bits.
 * Contacts are heard here, in place of Python, which Box2D would call back for each of them in each timestep. Nothing that is
 * not finite may reach Box2D: its assertions throw C++ exceptions, for which there is nobody here. */
#ifndef PYES_BOX2D_H
#define PYES_BOX2D_H

#include "../pyes_environment.h"

enum { PYES_BODY_AWAKE = 2 }; /* of the flags */

/* A b2Body of Box2D 2.3 where pointers have 64 bits, up to the last member that is read or written here. */
struct pyes_body {
    int32_t type;
    uint16_t flags;
    int32_t island;
    float position[2], rotation[2];
    float local_center[2], center_before[2], center[2];
    float angle_before, angle, alpha;
    float velocity[2], angular_velocity;
    float force[2], torque;
    void *world, *previous, *next, *fixtures;
    int32_t fixture_count;
    void *joints, *contacts;
    float mass, inverse_mass, inertia, inverse_inertia;
    float linear_damping, angular_damping, gravity_scale, sleep_time;
};

/* A b2Contact, up to the last member that is read here. */
struct pyes_contact {
    void *functions;
    uint32_t flags;
    struct pyes_contact *previous, *next;
    struct {
        const struct pyes_body *other; /* than that of this side */
        struct pyes_contact *contact;
        void *previous, *next;
    } sides[2];
};

typedef void (*pyes_function)(void);

/* A b2ContactListener as compilers of C++ but Microsoft's lay it out. */
struct pyes_listener {
    const pyes_function *functions;
    const struct pyes_body *robot, *legs[2]; /* legs: the parts that should touch the ground, the left one first */
    int down;                                /* the robot itself has touched something */
    int touching[2];                         /* a leg has touched something last, or left it */
};

typedef void (*pyes_step_world)(void *world, float seconds, int32_t velocity_iterations, int32_t position_iterations);
typedef void (*pyes_set_listener)(void *world, struct pyes_listener *listener);

/* Box2D's world, and its functions. */
struct pyes_physics {
    void *world; /* NULL: no episode has begun */
    pyes_step_world step;
    pyes_set_listener set_listener;
    struct pyes_listener listener;
    enum { PYES_BOX2D_FINE, PYES_BOX2D_NOT_BEGUN, PYES_BOX2D_NAN } error; /* of the step that failed */
};

/* Hears the contacts of a world; the robot and its legs are set. */
void pyes_listen(struct pyes_physics *physics);

/* NumPy's bitgen_t. */
struct pyes_generator {
    void *state;
    uint64_t (*next_uint64)(void *state);
    uint32_t (*next_uint32)(void *state);
    double (*next_double)(void *state);
    uint64_t (*next_raw)(void *state);
};

typedef double (*pyes_of_angle)(double angle);
typedef void (*pyes_set_motor)(void *joint, float value);

struct pyes_lander {
    struct pyes_physics physics;
    struct pyes_body *body;
    struct pyes_generator *random;
    pyes_of_angle sine, cosine; /* libm's, as Python has them */
    int discrete;               /* actions are one of four choices */
    double ground;              /* height of the body when it stands */
    double shaping;             /* of the timestep before */
    double main, side;          /* power of the engines in this timestep */
    float first[8];             /* observation of the episode */
};

/* `reset` and `step` of a struct pyes_environment; user: the struct pyes_lander. */
void pyes_lander_reset(void *state, uint64_t seed, void *observation, const void *user);
int pyes_lander_step(void *state, const float *action, void *observation, double *reward, const void *user);

struct pyes_walker_joint {
    void *joint;
    const struct pyes_body *first, *second;
    float reference; /* angle between both that counts as 0 */
};

struct pyes_rays { /* of the lidar, and what they meet: as pyes_ray_fractions takes them */
    int64_t rays, segment_count, quad_count;
    const double *offsets;
    const float *segments, *quads;
};

struct pyes_walker {
    struct pyes_physics physics;
    const struct pyes_body *hull;
    struct pyes_walker_joint joints[4];        /* hip and knee of each leg */
    pyes_set_motor set_speed, set_most_torque; /* of Box2D: they wake the bodies of a joint */
    struct pyes_rays rays;
    double shaping;   /* of the timestep before */
    float efforts[4]; /* of this timestep */
    float first[24];  /* observation of the episode */
};

/* The same for a walker. An action that is not a number fails: Box2D cannot go on with it. */
void pyes_walker_reset(void *state, uint64_t seed, void *observation, const void *user);
int pyes_walker_step(void *state, const float *action, void *observation, double *reward, const void *user);

#endif
