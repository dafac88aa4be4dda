/* Maze: a point on a plane with a trap, open towards the start, between it and the goal.
 *
 * The rules and their order are those of pyes/tasks/maze.py. */
#include "environments.h"

struct maze {
    double x, y;
};

/* A wall across an axis: where on it, and from where to where along the other. */
struct wall {
    double place, start, end;
};

static const struct wall ACROSS[] = {{4.0, -1.5, 1.5}}, ALONG[] = {{-1.5, 0.0, 4.0}, {1.5, 0.0, 4.0}};
static const double LOW[2] = {-0.6, -1.0}, HIGH[2] = {2.0, 1.0}; /* fifths of the corners of the plane */
static const float SPEED_LOW[2] = {-1.0f, -1.0f}, SPEED_HIGH[2] = {1.0f, 1.0f};

static void observe(const struct maze *now, float *observation)
{
    observation[0] = (float)now->x / 5.0f;
    observation[1] = (float)now->y / 5.0f;
}

static void reset(void *state, uint64_t seed, void *observation, const void *user)
{
    struct maze *now = state;
    struct pyes_random random;
    (void)user;
    pyes_random_begin(&random, seed);
    now->x = pyes_random_uniform(&random, -0.1, 0.1);
    now->y = pyes_random_uniform(&random, -0.1, 0.1);
    observe(now, observation);
}

/* A coordinate after a move within the border; no move crosses a wall. */
static double moved(double place, double change, double other, const struct wall *walls, int count, double low,
                    double high)
{
    const double after = place + change;
    for (int i = 0; i < count; i++) {
        const int beside = walls[i].start <= other && other <= walls[i].end;
        if (beside && (place < walls[i].place) != (after < walls[i].place))
            return place;
    }
    return held(after, low, high);
}

static double distance(const struct maze *now)
{
    const double dx = now->x - 8.0, dy = now->y;
    return pyes_sqrt(dx * dx + dy * dy);
}

static int step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    struct maze *now = state;
    (void)user;
    const double before = distance(now);
    const double dx = held((double)action[0], -1.0, 1.0) * 0.4, dy = held((double)action[1], -1.0, 1.0) * 0.4;
    now->x = moved(now->x, dx, now->y, ACROSS, 1, -3.0, 10.0);
    now->y = moved(now->y, dy, now->x, ALONG, 2, -5.0, 5.0);
    observe(now, observation);
    const double left = distance(now);
    *reward = before - left;
    return left < 0.5 ? PYES_TERMINATED : 0;
}

const struct pyes_environment pyes_maze = {
    .abi = PYES_ENVIRONMENT_ABI,
    .size = sizeof(struct pyes_environment),
    .name = "Maze",
    .reset = reset,
    .step = step,
    .state_bytes = sizeof(struct maze),
    .observation_type = PYES_OBSERVE_FLOAT32,
    .observation_size = 2,
    .action_size = 2,
    .observation_low = LOW,
    .observation_high = HIGH,
    .action_low = SPEED_LOW,
    .action_high = SPEED_HIGH,
    .time_limit = 60,
};
