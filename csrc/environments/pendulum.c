/* Pendulum-v1: swing a pendulum up by a torque that is too small to lift it at once.
 *
 * The equations and their order are those of gymnasium/envs/classic_control/pendulum.py; the torque is a float there,
 * too, and so are its products with numbers. */
#include "environments.h"

struct pendulum {
    double angle, turn; /* 0 is upright; in radians */
};

#define PI 3.141592653589793

static const double HIGH[3] = {1.0, 1.0, 8.0}, LOW[3] = {-1.0, -1.0, -8.0};
static const float TORQUE_HIGH[1] = {2.0f}, TORQUE_LOW[1] = {-2.0f};

static void observe(const struct pendulum *now, float *observation)
{
    observation[0] = (float)pyes_cos(now->angle);
    observation[1] = (float)pyes_sin(now->angle);
    observation[2] = (float)now->turn;
}

static void reset(void *state, uint64_t seed, void *observation, const void *user)
{
    struct pendulum *now = state;
    struct pyes_random random;
    (void)user;
    pyes_random_begin(&random, seed);
    now->angle = pyes_random_uniform(&random, -PI, PI);
    now->turn = pyes_random_uniform(&random, -1.0, 1.0);
    observe(now, observation);
}

static int step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    const double tau = 0.05;
    struct pendulum *now = state;
    (void)user;
    const float above = action[0] < -2.0f ? -2.0f : action[0], torque = above > 2.0f ? 2.0f : above;
    const double shifted = now->angle + PI;
    const double angle = shifted - 2 * PI * pyes_floor(shifted / (2 * PI)) - PI; /* in [-pi, pi) */
    const double cost = angle * angle + 0.1 * (now->turn * now->turn) + (double)(0.001f * (torque * torque));
    const double turn = now->turn + (3 * 10.0 / 2 * pyes_sin(now->angle) + (double)(3.0f * torque)) * tau;
    now->turn = held(turn, -8.0, 8.0);
    now->angle += now->turn * tau;
    observe(now, observation);
    *reward = -cost;
    return 0;
}

const struct pyes_environment pyes_pendulum = {
    .abi = PYES_ENVIRONMENT_ABI,
    .size = sizeof(struct pyes_environment),
    .name = "Pendulum-v1",
    .reset = reset,
    .step = step,
    .state_bytes = sizeof(struct pendulum),
    .observation_type = PYES_OBSERVE_FLOAT32,
    .observation_size = 3,
    .action_size = 1,
    .observation_low = LOW,
    .observation_high = HIGH,
    .action_low = TORQUE_LOW,
    .action_high = TORQUE_HIGH,
    .time_limit = 200,
};
