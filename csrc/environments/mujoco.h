/* Timesteps of Gymnasium's MuJoCo tasks, version 5, as a step of pyes_environment.h.
 *
 * Layout-free: knows no struct of MuJoCo, only addresses that Python has from the loaded library and from NumPy's views
 * of its data, which stay where they are as long as the data lives. Each number is computed in the order in which
 * gymnasium/envs/mujoco and NumPy compute it, so that it has the same bits. */
#ifndef PYES_MUJOCO_H
#define PYES_MUJOCO_H

#include "../pyes_environment.h"

/* A function of MuJoCo: mj_step, mj_rnePostConstraint. */
typedef void (*pyes_mujoco_function)(const void *model, void *data);

/* What MuJoCo reads for its timers. */
typedef double (*pyes_mujoco_clock)(void);

/* An inner loop of NumPy, which its ufuncs call: arrays are input and output. */
typedef void (*pyes_numpy_loop)(char **arrays, const intptr_t *count, const intptr_t *strides, void *data);

typedef double (*pyes_power)(double base, double exponent);
typedef double (*pyes_fused)(double a, double b, double c);

/* Consecutive numbers of an observation: function(clip(values - minus, low, high)). */
struct pyes_mujoco_part {
    int64_t count;
    const double *values;     /* (count) */
    const double *minus;      /* (count); NULL: 0 */
    pyes_numpy_loop function; /* NULL: none */
    void *function_data;
    double low, high; /* infinite: not clipped */
};

/* Numbers of a healthy robot: within low and high, which count as within only if `closed`. */
struct pyes_mujoco_limit {
    int64_t count;
    const double *values; /* (count) */
    double low, high;
    int closed;
};

enum pyes_mujoco_reward {
    PYES_MUJOCO_RUN,     /* speed + health - effort - contacts: Ant, HalfCheetah, Hopper, Humanoid, Swimmer, Walker2d */
    PYES_MUJOCO_HEALTH,  /* 1 if healthy: InvertedPendulum */
    PYES_MUJOCO_BALANCE, /* health less distance and speed of the tip: InvertedDoublePendulum */
    PYES_MUJOCO_REACH,   /* less distances and effort: Pusher, Reacher */
    PYES_MUJOCO_STAND,   /* height - effort - contacts + 1: HumanoidStandup */
};

/* A distance that costs `weight` for each of its units. */
struct pyes_mujoco_distance {
    const double *from, *to; /* (3) each */
    double weight;
};

struct pyes_mujoco {
    pyes_mujoco_function advance;
    pyes_mujoco_function forces; /* after the last advance; NULL: none of its results is read */
    pyes_mujoco_clock *clock;    /* mjcb_time; NULL: is not stopped */
    pyes_mujoco_clock own_clock; /* the one that is stopped while MuJoCo steps; another stays */
    const void *model;
    void *data;
    int64_t frames; /* calls of advance for a timestep */
    int64_t controls;
    double *control; /* (controls) */

    int64_t part_count;
    const struct pyes_mujoco_part *parts;
    int64_t limit_count;
    const struct pyes_mujoco_limit *limits; /* healthy is who is within all */
    int falls;                              /* the episode ends when the robot is not healthy */

    /* What the reward is made of. Each kind reads a part of it. */
    enum pyes_mujoco_reward reward;
    pyes_power power;      /* libm's pow */
    pyes_fused fused;      /* libm's fma, where NumPy adds products by it; NULL: where it rounds them */
    double seconds;        /* of a timestep; STAND: of one advance */
    const double *place;   /* RUN: x; STAND: height; BALANCE: (3) of the tip */
    const double *speeds;  /* BALANCE: (2) */
    int64_t masses;        /* RUN: x is that of the center of so many masses; 0: of the place */
    const double *mass;    /* (masses) */
    const double *centers; /* (masses, 3) */
    double whole_mass;
    double speed_weight;
    double health_reward;
    int rewards_health;       /* RUN: adds health_reward, or 0 */
    int effort_of_control;    /* of `control` in double; otherwise of the action in float */
    double effort_weight;     /* for each square; of the action: a float */
    int64_t contacts;         /* 0: contacts cost nothing */
    const double *contact;    /* (contacts) */
    double contact_weight;    /* for each square of the clipped numbers */
    double contact_low, contact_high;
    double contact_cost_low, contact_cost_high;
    struct pyes_mujoco_distance distances[2]; /* REACH; `to` NULL: no second one */
};

/* A step of pyes_environment.h; `user` is a struct pyes_mujoco. */
int pyes_mujoco_step(void *state, const float *action, void *observation, double *reward, const void *user);

/* A reset, after Python has reset the simulator: writes the observation. */
void pyes_mujoco_reset(void *state, uint64_t seed, void *observation, const void *user);

#endif
