/* MountainCar-v0 and MountainCarContinuous-v0: a car in a valley that must swing to get out (Moore 1990).
 *
 * The equations and their order are those of gymnasium/envs/classic_control/mountain_car.py and
 * continuous_mountain_car.py. The continuous one keeps its state as floats from the first step on, and so it computes. */
#include "environments.h"

struct mountain_car {
    double place, speed;
    uint64_t moved; /* of the continuous one: whether its state is made of floats */
};

static const double LOW[2] = {-1.2, -0.07}, HIGH[2] = {0.6, 0.07};

static void observe(const struct mountain_car *now, float *observation)
{
    observation[0] = (float)now->place;
    observation[1] = (float)now->speed;
}

static void reset(void *state, uint64_t seed, void *observation, const void *user)
{
    struct mountain_car *now = state;
    struct pyes_random random;
    (void)user;
    pyes_random_begin(&random, seed);
    now->place = pyes_random_uniform(&random, -0.6, -0.4);
    observe(now, observation);
}

static int step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    struct mountain_car *now = state;
    (void)user;
    now->speed += ((double)action[0] - 1.0) * 0.001 + pyes_cos(3.0 * now->place) * -0.0025;
    now->speed = held(now->speed, -0.07, 0.07);
    now->place = held(now->place + now->speed, -1.2, 0.6);
    if (now->place == -1.2 && now->speed < 0.0)
        now->speed = 0.0;
    observe(now, observation);
    *reward = -1.0;
    return now->place >= 0.5 && now->speed >= 0.0 ? PYES_TERMINATED : 0;
}

/* What is added to the speed: force and place are floats, but for a force that was held back, and for the first place. */
static double pull(const struct mountain_car *now, float action)
{
    const double angle = now->moved ? (double)(3.0f * (float)now->place) : 3.0 * now->place;
    const double slope = 0.0025 * pyes_cos(angle);
    if (action < -1.0f || action > 1.0f)
        return (action < 0.0f ? -0.0015 : 0.0015) - slope;
    return (double)(action * 0.0015f - (float)slope);
}

static int step_continuous(void *state, const float *action, void *observation, double *reward, const void *user)
{
    struct mountain_car *now = state;
    double place = now->place, speed = now->speed;
    (void)user;
    if (now->moved) {
        speed = held((double)((float)speed + (float)pull(now, action[0])), (double)-0.07f, (double)0.07f);
        place = held((double)((float)place + (float)speed), (double)-1.2f, (double)0.6f);
    } else {
        speed = held(speed + pull(now, action[0]), -0.07, 0.07);
        place = held(place + speed, -1.2, 0.6);
    }
    const double wall = now->moved ? (double)-1.2f : -1.2, goal = now->moved ? (double)0.45f : 0.45;
    if (place == wall && speed < 0.0)
        speed = 0.0;
    const int arrived = place >= goal && speed >= 0.0;
    *reward = (arrived ? 100.0 : 0.0) - (double)action[0] * (double)action[0] * 0.1;
    now->place = (double)(float)place;
    now->speed = (double)(float)speed;
    now->moved = 1;
    observe(now, observation);
    return arrived ? PYES_TERMINATED : 0;
}

const struct pyes_environment pyes_mountain_car = {
    .abi = PYES_ENVIRONMENT_ABI,
    .size = sizeof(struct pyes_environment),
    .name = "MountainCar-v0",
    .reset = reset,
    .step = step,
    .state_bytes = sizeof(struct mountain_car),
    .observation_type = PYES_OBSERVE_FLOAT32,
    .observation_size = 2,
    .choices = 3,
    .observation_low = LOW,
    .observation_high = HIGH,
    .time_limit = 200,
};

static const float FORCE_LOW[1] = {-1.0f}, FORCE_HIGH[1] = {1.0f};

const struct pyes_environment pyes_mountain_car_continuous = {
    .abi = PYES_ENVIRONMENT_ABI,
    .size = sizeof(struct pyes_environment),
    .name = "MountainCarContinuous-v0",
    .reset = reset,
    .step = step_continuous,
    .state_bytes = sizeof(struct mountain_car),
    .observation_type = PYES_OBSERVE_FLOAT32,
    .observation_size = 2,
    .action_size = 1,
    .observation_low = LOW,
    .observation_high = HIGH,
    .action_low = FORCE_LOW,
    .action_high = FORCE_HIGH,
    .time_limit = 999,
};
