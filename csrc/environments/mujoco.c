#include "mujoco.h"

static double clipped(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* numpy.sum(numpy.square(values)), with values clipped before: eight sums at a time, and halves above 128 values. */
#define PYES_SUM_OF_SQUARES(name, type)                                                                                \
    static type name(int64_t n, const type *values, double low, double high)                                           \
    {                                                                                                                  \
        type sums[8] = {0}, sum = 0;                                                                                   \
        int64_t done = 0;                                                                                              \
        if (n > 128) {                                                                                                 \
            const int64_t half = n / 2 - n / 2 % 8;                                                                    \
            return name(half, values, low, high) + name(n - half, values + half, low, high);                           \
        }                                                                                                              \
        for (; done + 8 <= n; done += 8)                                                                               \
            for (int i = 0; i < 8; i++) {                                                                              \
                const type value = (type)clipped((double)values[done + i], low, high);                                 \
                sums[i] += value * value;                                                                              \
            }                                                                                                          \
        if (done > 0)                                                                                                  \
            sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));           \
        for (; done < n; done++) {                                                                                     \
            const type value = (type)clipped((double)values[done], low, high);                                         \
            sum += value * value;                                                                                      \
        }                                                                                                              \
        return sum;                                                                                                    \
    }

PYES_SUM_OF_SQUARES(squares_float, float)
PYES_SUM_OF_SQUARES(squares_double, double)

static void observe(const struct pyes_mujoco *task, double *observation)
{
    for (int64_t k = 0; k < task->part_count; k++) {
        const struct pyes_mujoco_part *part = &task->parts[k];
        for (int64_t i = 0; i < part->count; i++) {
            const double value = part->minus == NULL ? part->values[i] : part->values[i] - part->minus[i];
            observation[i] = clipped(value, part->low, part->high);
        }
        if (part->function != NULL) {
            char *arrays[2] = {(char *)observation, (char *)observation};
            const intptr_t count = (intptr_t)part->count, strides[2] = {sizeof(double), sizeof(double)};
            part->function(arrays, &count, strides, part->function_data);
        }
        observation += part->count;
    }
}

static int is_healthy(const struct pyes_mujoco *task)
{
    int healthy = 1;
    for (int64_t k = 0; k < task->limit_count; k++) {
        const struct pyes_mujoco_limit *limit = &task->limits[k];
        for (int64_t i = 0; i < limit->count; i++) {
            const double value = limit->values[i];
            healthy &= limit->closed ? limit->low <= value && value <= limit->high
                                     : limit->low < value && value < limit->high;
        }
    }
    return healthy;
}

/* sum + a * b, as NumPy adds it on this machine. */
static double add_product(const struct pyes_mujoco *task, double a, double b, double sum)
{
    return task->fused == NULL ? sum + a * b : task->fused(a, b, sum);
}

/* x of the robot. */
static double place(const struct pyes_mujoco *task)
{
    double sum = 0.0;
    if (task->masses == 0)
        return *task->place;
    for (int64_t i = 0; i < task->masses; i++)
        sum = add_product(task, task->mass[i], task->centers[3 * i], sum);
    return sum / task->whole_mass;
}

static double effort(const struct pyes_mujoco *task, const float *action)
{
    if (task->effort_of_control)
        return task->effort_weight * squares_double(task->controls, task->control, -INFINITY, INFINITY);
    return (double)((float)task->effort_weight * squares_float(task->controls, action, -INFINITY, INFINITY));
}

static double contact_cost(const struct pyes_mujoco *task)
{
    const double squares = squares_double(task->contacts, task->contact, task->contact_low, task->contact_high);
    return clipped(task->contact_weight * squares, task->contact_cost_low, task->contact_cost_high);
}

static double run_reward(const struct pyes_mujoco *task, const float *action, double before, int healthy)
{
    const double speed = (place(task) - before) / task->seconds;
    double reward = task->speed_weight * speed, cost = effort(task, action);
    if (task->rewards_health)
        reward += healthy ? task->health_reward : 0.0;
    if (task->contacts > 0)
        cost += contact_cost(task);
    return reward - cost;
}

static double balance_reward(const struct pyes_mujoco *task, int healthy)
{
    const double x = task->place[0], y = task->place[2];
    const pyes_power power = task->power;
    const double distance = 0.01 * power(x, 2.0) + power(y - 2.0, 2.0);
    const double speed = 1e-3 * power(task->speeds[0], 2.0) + 5e-3 * power(task->speeds[1], 2.0);
    return (healthy ? task->health_reward : 0.0) - distance - speed;
}

/* numpy.linalg.norm(from - to) */
static double distance_cost(const struct pyes_mujoco *task, const struct pyes_mujoco_distance *distance)
{
    double sum = 0.0;
    for (int i = 0; i < 3; i++) {
        const double difference = distance->from[i] - distance->to[i];
        sum = add_product(task, difference, difference, sum);
    }
    return -sqrt(sum) * distance->weight;
}

static double reach_reward(const struct pyes_mujoco *task, const float *action)
{
    const double reward = distance_cost(task, &task->distances[0]) - effort(task, action);
    return task->distances[1].to == NULL ? reward : reward + distance_cost(task, &task->distances[1]);
}

static double reward_of(const struct pyes_mujoco *task, const float *action, double before, int healthy)
{
    switch (task->reward) {
    case PYES_MUJOCO_RUN:
        return run_reward(task, action, before, healthy);
    case PYES_MUJOCO_HEALTH:
        return healthy ? 1.0 : 0.0;
    case PYES_MUJOCO_BALANCE:
        return balance_reward(task, healthy);
    case PYES_MUJOCO_REACH:
        return reach_reward(task, action);
    default:
        return *task->place / task->seconds - effort(task, action) - contact_cost(task) + 1.0;
    }
}

/* Python's package gives MuJoCo a clock for timers, which nobody reads here: it took a quarter of Reacher's time. */
static void advance(const struct pyes_mujoco *task)
{
    const int stop = task->clock != NULL && *task->clock == task->own_clock;
    if (stop)
        *task->clock = NULL;
    for (int64_t i = 0; i < task->frames; i++)
        task->advance(task->model, task->data);
    if (task->forces != NULL)
        task->forces(task->model, task->data);
    if (stop)
        *task->clock = task->own_clock;
}

int pyes_mujoco_step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    const struct pyes_mujoco *task = user;
    const double before = task->reward == PYES_MUJOCO_RUN ? place(task) : 0.0;
    (void)state;
    for (int64_t i = 0; i < task->controls; i++)
        task->control[i] = (double)action[i];
    advance(task);
    observe(task, observation);
    const int healthy = is_healthy(task);
    *reward = reward_of(task, action, before, healthy);
    return task->falls && !healthy ? PYES_TERMINATED : 0;
}

void pyes_mujoco_reset(void *state, uint64_t seed, void *observation, const void *user)
{
    (void)state;
    (void)seed;
    observe(user, observation);
}
