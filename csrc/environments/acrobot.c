/* Acrobot-v1: two links that hang from a bar, with a motor between them; swing the end above the bar (Sutton 1996).
 *
 * The equations and their order are those of gymnasium/envs/classic_control/acrobot.py. */
#include "environments.h"

struct acrobot {
    double now[4]; /* angles of the links, and how fast each turns */
};

#define PI 3.141592653589793

static const double HIGH[6] = {1.0, 1.0, 1.0, 1.0, 4 * PI, 9 * PI}, LOW[6] = {-1.0, -1.0, -1.0, -1.0, -4 * PI, -9 * PI};

static void observe(const double now[4], float *observation)
{
    observation[0] = (float)pyes_cos(now[0]);
    observation[1] = (float)pyes_sin(now[0]);
    observation[2] = (float)pyes_cos(now[1]);
    observation[3] = (float)pyes_sin(now[1]);
    observation[4] = (float)now[2];
    observation[5] = (float)now[3];
}

static void reset(void *state, uint64_t seed, void *observation, const void *user)
{
    struct acrobot *acrobot = state;
    struct pyes_random random;
    (void)user;
    pyes_random_begin(&random, seed);
    for (int i = 0; i < 4; i++)
        acrobot->now[i] = pyes_random_uniform(&random, -0.1, 0.1);
    observe(acrobot->now, observation);
}

/* How fast the state changes; links have a mass of 1, a length of 1, their center in the middle and an inertia of 1. */
static void derive(const double now[4], double torque, double rate[4])
{
    const double cosine = pyes_cos(now[1]), sine = pyes_sin(now[1]), g = 9.8;
    const double d1 = 0.25 + (1.25 + cosine) + 1.0 + 1.0, d2 = (0.25 + 0.5 * cosine) + 1.0;
    const double phi2 = 0.5 * g * pyes_cos(now[0] + now[1] - PI / 2.0);
    const double phi1 = -0.5 * (now[3] * now[3]) * sine - now[3] * now[2] * sine +
                        1.5 * g * pyes_cos(now[0] - PI / 2.0) + phi2;
    rate[0] = now[2];
    rate[1] = now[3];
    rate[3] = (torque + d2 / d1 * phi1 - 0.5 * (now[2] * now[2]) * sine - phi2) / (1.25 - d2 * d2 / d1);
    rate[2] = -(d2 * rate[3] + phi1) / d1;
}

/* now + span * rate */
static void moved(const double now[4], double span, const double rate[4], double out[4])
{
    for (int i = 0; i < 4; i++)
        out[i] = now[i] + span * rate[i];
}

static double wrapped(double angle)
{
    while (angle > PI)
        angle -= 2 * PI;
    while (angle < -PI)
        angle += 2 * PI;
    return angle;
}

static int step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    const double span = 0.2, torque = (double)action[0] - 1.0;
    struct acrobot *acrobot = state;
    double *now = acrobot->now, between[4], k1[4], k2[4], k3[4], k4[4]; /* Runge and Kutta's */
    (void)user;
    derive(now, torque, k1);
    moved(now, span / 2.0, k1, between);
    derive(between, torque, k2);
    moved(now, span / 2.0, k2, between);
    derive(between, torque, k3);
    moved(now, span, k3, between);
    derive(between, torque, k4);
    for (int i = 0; i < 4; i++)
        now[i] += span / 6.0 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
    now[0] = wrapped(now[0]);
    now[1] = wrapped(now[1]);
    now[2] = held(now[2], -4 * PI, 4 * PI);
    now[3] = held(now[3], -9 * PI, 9 * PI);
    observe(now, observation);
    const int above = -pyes_cos(now[0]) - pyes_cos(now[1] + now[0]) > 1.0;
    *reward = above ? 0.0 : -1.0;
    return above ? PYES_TERMINATED : 0;
}

const struct pyes_environment pyes_acrobot = {
    .abi = PYES_ENVIRONMENT_ABI,
    .size = sizeof(struct pyes_environment),
    .name = "Acrobot-v1",
    .reset = reset,
    .step = step,
    .state_bytes = sizeof(struct acrobot),
    .observation_type = PYES_OBSERVE_FLOAT32,
    .observation_size = 6,
    .choices = 3,
    .observation_low = LOW,
    .observation_high = HIGH,
    .time_limit = 500,
};
