/* Timesteps of Gymnasium's LunarLander and BipedalWalker around the step of Box2D, which Python takes.
 *
 * Each number is computed in the order in which gymnasium/envs/box2d and Box2D compute it, so that it has the same bits. */
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

typedef double (*pyes_of_angle)(double angle);
typedef void (*pyes_set_motor)(void *joint, float value);

struct pyes_lander {
    struct pyes_body *body;
    pyes_of_angle sine, cosine; /* libm's, as Python has them */
    int discrete;               /* actions are one of four choices */
    double ground;              /* height of the body when it stands */
    double shaping;             /* of the timestep before */
    double main, side;          /* power of the engines in this timestep */
};

/* Applies the impulses of the engines; first and second are the random numbers of the timestep, in [0, 1). */
void pyes_lander_fire(struct pyes_lander *task, const float *action, double first, double second);

/* Writes observation (8) and reward after the simulator's step; returns PYES_TERMINATED or 0. */
int pyes_lander_outcome(struct pyes_lander *task, int left, int right, int over, float *observation, double *reward);

struct pyes_walker_joint {
    void *joint;
    const struct pyes_body *first, *second;
    float reference; /* angle between both that counts as 0 */
};

struct pyes_walker {
    const struct pyes_body *hull;
    struct pyes_walker_joint joints[4];        /* hip and knee of each leg */
    pyes_set_motor set_speed, set_most_torque; /* of Box2D: they wake the bodies of a joint */
    double shaping;                            /* of the timestep before */
    float efforts[4];                          /* of this timestep */
};

/* Sets the motors; action (4) without NaN. */
void pyes_walker_drive(struct pyes_walker *task, const float *action);

/* Writes all of the observation (24) but its rays, and the reward; returns PYES_TERMINATED or 0. */
int pyes_walker_outcome(struct pyes_walker *task, int left, int right, int over, float *observation, double *reward);

#endif
