/* CartPoleSwingUp: the pole of a cart hangs down, and is to be swung up and held, with the cart in the middle.
 *
 * The equations are those of Deisenroth (2010, "Efficient Reinforcement Learning using Gaussian Processes", appendix),
 * with the angle from upright, to the left; masses, friction, force, timestep and reward those of Ha (2017, "Evolving Stable
 * Strategies"). Positions move by the speeds before the timestep. */
#include "environments.h"

struct swing_up {
    double x, speed, angle, turn; /* of the cart; of the pole, in radians */
};

#define PI 3.141592653589793
#define BORDER 2.4

static const double HIGH[5] = {HUGE_VAL, HUGE_VAL, 1.0, 1.0, HUGE_VAL};
static const double LOW[5] = {-HUGE_VAL, -HUGE_VAL, -1.0, -1.0, -HUGE_VAL};
static const float PUSH_HIGH[1] = {1.0f}, PUSH_LOW[1] = {-1.0f};

static void observe(const struct swing_up *now, float *observation)
{
    observation[0] = (float)now->x;
    observation[1] = (float)now->speed;
    observation[2] = (float)pyes_cos(now->angle);
    observation[3] = (float)pyes_sin(now->angle);
    observation[4] = (float)now->turn;
}

static void reset(void *state, uint64_t seed, void *observation, const void *user)
{
    struct swing_up *now = state;
    struct pyes_random random;
    (void)user;
    pyes_random_begin(&random, seed);
    now->x = 0.2 * pyes_random_normal(&random);
    now->speed = 0.2 * pyes_random_normal(&random);
    now->angle = PI + 0.2 * pyes_random_normal(&random);
    now->turn = 0.2 * pyes_random_normal(&random);
    observe(now, observation);
}

static int step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    const double gravity = 9.82, pole = 0.5, mass = pole + 0.5, length = 0.6, friction = 0.1, tau = 0.01;
    struct swing_up *now = state;
    (void)user;
    const float above = action[0] < -1.0f ? -1.0f : action[0], push = above > 1.0f ? 1.0f : above;
    const double sine = pyes_sin(now->angle), cosine = pyes_cos(now->angle), turn = now->turn;
    const double force = 10.0 * (double)push - friction * now->speed, swing = pole * length * (turn * turn) * sine;
    const double acceleration =
        (-2 * swing + 3 * pole * gravity * sine * cosine + 4 * force) / (4 * mass - 3 * pole * (cosine * cosine));
    const double turning = (-3 * swing * cosine + 6 * mass * gravity * sine + 6 * force * cosine) /
                           (4 * length * mass - 3 * pole * length * (cosine * cosine));
    now->x += tau * now->speed;
    now->angle += tau * turn;
    now->speed += tau * acceleration;
    now->turn += tau * turning;
    observe(now, observation);
    *reward = (pyes_cos(now->angle) + 1.0) / 2.0 * pyes_cos(now->x / BORDER * (PI / 2));
    return now->x < -BORDER || now->x > BORDER ? PYES_TERMINATED : 0;
}

const struct pyes_environment pyes_cart_pole_swing_up = {
    .abi = PYES_ENVIRONMENT_ABI,
    .size = sizeof(struct pyes_environment),
    .name = "CartPoleSwingUp",
    .reset = reset,
    .step = step,
    .state_bytes = sizeof(struct swing_up),
    .observation_type = PYES_OBSERVE_FLOAT32,
    .observation_size = 5,
    .action_size = 1,
    .observation_low = LOW,
    .observation_high = HIGH,
    .action_low = PUSH_LOW,
    .action_high = PUSH_HIGH,
    .time_limit = 1000,
};
