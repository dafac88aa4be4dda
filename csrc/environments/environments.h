/* The environments that come with pyes. Each enters by the public header, as those of users do.
 *
 * One with the name of an environment of Gymnasium, or of pyes/tasks/maze.py, follows it timestep by timestep, but for the
 * last bits of sines, cosines and squares, and but for its starts: those are drawn by pyes_random. */
#ifndef PYES_ENVIRONMENTS_H
#define PYES_ENVIRONMENTS_H

#include "../pyes_environment.h"

extern const struct pyes_environment pyes_acrobot;
extern const struct pyes_environment pyes_cart_pole;
extern const struct pyes_environment pyes_cart_pole_swing_up;
extern const struct pyes_environment pyes_maze;
extern const struct pyes_environment pyes_mountain_car;
extern const struct pyes_environment pyes_mountain_car_continuous;
extern const struct pyes_environment pyes_pendulum;
extern const struct pyes_environment pyes_slime_volley;

static inline double held(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

#endif
