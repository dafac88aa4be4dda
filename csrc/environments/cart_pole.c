/* CartPole-v1: a pole on a cart that is pushed to the left or to the right (Barto, Sutton & Anderson 1983).
 *
 * The equations and their order are those of gymnasium/envs/classic_control/cartpole.py. */
#include "environments.h"

struct cart_pole {
    double x, speed, angle, turn; /* of the cart; of the pole, in radians */
};

#define MAX_ANGLE (12 * 2 * 3.141592653589793 / 360)

static const double BOUND[4] = {4.8, HUGE_VAL, 2 * MAX_ANGLE, HUGE_VAL};
static const double LOW[4] = {-4.8, -HUGE_VAL, -2 * MAX_ANGLE, -HUGE_VAL};

static void observe(const struct cart_pole *now, float *observation)
{
    observation[0] = (float)now->x;
    observation[1] = (float)now->speed;
    observation[2] = (float)now->angle;
    observation[3] = (float)now->turn;
}

static void reset(void *state, uint64_t seed, void *observation, const void *user)
{
    struct cart_pole *now = state;
    struct pyes_random random;
    (void)user;
    pyes_random_begin(&random, seed);
    now->x = pyes_random_uniform(&random, -0.05, 0.05);
    now->speed = pyes_random_uniform(&random, -0.05, 0.05);
    now->angle = pyes_random_uniform(&random, -0.05, 0.05);
    now->turn = pyes_random_uniform(&random, -0.05, 0.05);
    observe(now, observation);
}

static int step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    const double gravity = 9.8, pole_mass = 0.1, mass = pole_mass + 1.0, half_length = 0.5, tau = 0.02;
    const double moment = pole_mass * half_length, force = action[0] == 1.0f ? 10.0 : -10.0;
    struct cart_pole *now = state;
    (void)user;
    const double sine = pyes_sin(now->angle), cosine = pyes_cos(now->angle);
    const double push = (force + moment * (now->turn * now->turn) * sine) / mass;
    const double turning =
        (gravity * sine - cosine * push) / (half_length * (4.0 / 3.0 - pole_mass * (cosine * cosine) / mass));
    const double acceleration = push - moment * turning * cosine / mass;
    now->x += tau * now->speed;
    now->speed += tau * acceleration;
    now->angle += tau * now->turn;
    now->turn += tau * turning;
    observe(now, observation);
    *reward = 1.0;
    const int fell = now->x < -2.4 || now->x > 2.4 || now->angle < -MAX_ANGLE || now->angle > MAX_ANGLE;
    return fell ? PYES_TERMINATED : 0;
}

const struct pyes_environment pyes_cart_pole = {
    .abi = PYES_ENVIRONMENT_ABI,
    .size = sizeof(struct pyes_environment),
    .name = "CartPole-v1",
    .reset = reset,
    .step = step,
    .state_bytes = sizeof(struct cart_pole),
    .observation_type = PYES_OBSERVE_FLOAT32,
    .observation_size = 4,
    .choices = 2,
    .observation_low = LOW,
    .observation_high = BOUND,
    .time_limit = 500,
};
