/* Timesteps of MuJoCo tasks, with an engine of a few lines: parts of observations, limits, each kind of reward. */
#include "../environments/mujoco.h"
#include "checks.h"

/* The data of the engine: place, speed, control, forces; its model is how far a control moves it. */
enum { PLACE, SPEED = 3, CONTROL = 5, FORCES = 7, ALL = 27 };

static void advance(const void *model, void *data)
{
    double *all = data;
    for (int i = 0; i < 3; i++)
        all[PLACE + i] += *(const double *)model * all[CONTROL];
    all[SPEED] = all[CONTROL + 1];
}

static void press(const void *model, void *data)
{
    (void)model;
    for (int i = FORCES; i < ALL; i++)
        ((double *)data)[i] += 1.0;
}

static void doubled(char **arrays, const intptr_t *count, const intptr_t *strides, void *data)
{
    for (intptr_t i = 0; i < *count; i++)
        *(double *)(arrays[1] + i * strides[1]) = *(double *)data * *(double *)(arrays[0] + i * strides[0]);
}

void test_mujoco(void)
{
    double *data = buffer(ALL, sizeof(double)), factor = 2.0, reward = 0.0;
    double *seen = buffer(25, sizeof(double)), masses[2] = {1.0, 3.0}, centers[6] = {1.0, 0, 0, 2.0, 0, 0};
    const double model = 0.5;
    const float action[2] = {1.0f, -3.0f};
    const struct pyes_mujoco_part parts[3] = {
        {.count = 3, .values = data + PLACE, .minus = data + CONTROL, .low = -INFINITY, .high = 1.0},
        {.count = 2, .values = data + SPEED, .function = doubled, .function_data = &factor, .low = -2.0, .high = 2.0},
        {.count = 20, .values = data + FORCES, .low = -INFINITY, .high = INFINITY},
    };
    const struct pyes_mujoco_limit limits[2] = {
        {.count = 3, .values = data + PLACE, .low = -1.0, .high = 3.0, .closed = 1},
        {.count = 1, .values = data + SPEED, .low = -5.0, .high = 5.0},
    };
    struct pyes_mujoco task = {
        .advance = advance, .forces = press, .model = &model, .data = data, .frames = 2, .controls = 2,
        .control = data + CONTROL, .part_count = 3, .parts = parts, .limit_count = 2, .limits = limits, .falls = 1,
        .reward = PYES_MUJOCO_RUN, .seconds = 0.1, .place = data + PLACE, .speed_weight = 2.0, .health_reward = 5.0,
        .rewards_health = 1, .effort_weight = 0.5, .contacts = 20, .contact = data + FORCES, .contact_weight = 0.1,
        .contact_low = 0.0, .contact_high = 2.0, .contact_cost_low = 0.0, .contact_cost_high = 3.0};
    CHECK(pyes_mujoco_step(NULL, action, seen, &reward, &task) == 0);
    CHECK(seen[0] == 0.0 && seen[1] == 1.0 && seen[3] == -4.0 && seen[4] == 0.0 && seen[5] == 1.0 && seen[24] == 1.0);
    CHECK(reward == 2.0 * (1.0 / 0.1) + 5.0 - ((double)(0.5f * 10.0f) + 2.0));
    CHECK(pyes_mujoco_step(NULL, action, seen, &reward, &task) == 0 && data[PLACE] == 2.0);
    CHECK(reward == 2.0 * (1.0 / 0.1) + 5.0 - ((double)(0.5f * 10.0f) + 3.0)); /* both clipped */
    task.masses = 2, task.mass = masses, task.centers = centers, task.whole_mass = 4.0;
    task.effort_of_control = 1, task.contacts = 0;
    CHECK(pyes_mujoco_step(NULL, action, seen, &reward, &task) == 0 && data[PLACE] == 3.0);
    CHECK(reward == 5.0 - 5.0);
    CHECK(pyes_mujoco_step(NULL, action, seen, &reward, &task) == PYES_TERMINATED && reward == -5.0);
    task.falls = 0, task.reward = PYES_MUJOCO_HEALTH;
    CHECK(pyes_mujoco_step(NULL, action, seen, &reward, &task) == 0 && reward == 0.0);
    task.reward = PYES_MUJOCO_STAND, task.contacts = 20;
    CHECK(pyes_mujoco_step(NULL, action, seen, &reward, &task) == 0 && data[PLACE] == 6.0);
    CHECK(reward == 6.0 / 0.1 - 5.0 - 3.0 + 1.0);
    task.reward = PYES_MUJOCO_REACH, task.effort_of_control = 0;
    task.distances[0] = (struct pyes_mujoco_distance){data + PLACE, centers, 1.0};
    CHECK(pyes_mujoco_step(NULL, action, seen, &reward, &task) == 0 && data[PLACE] == 7.0);
    CHECK(reward == -sqrt(6.0 * 6.0 + 7.0 * 7.0 + 7.0 * 7.0) - 5.0);
    task.distances[1] = task.distances[0];
    task.fused = fma, task.reward = PYES_MUJOCO_REACH;
    CHECK(pyes_mujoco_step(NULL, action, seen, &reward, &task) == 0);
    CHECK(reward == -sqrt(7.0 * 7.0 + 8.0 * 8.0 + 8.0 * 8.0) - 5.0 - sqrt(7.0 * 7.0 + 8.0 * 8.0 + 8.0 * 8.0));
    task.reward = PYES_MUJOCO_BALANCE, task.power = pow, task.speeds = data + SPEED;
    pyes_mujoco_reset(NULL, 0, seen, &task);
    CHECK(pyes_mujoco_step(NULL, action, seen, &reward, &task) == 0 && data[PLACE] == 9.0);
    CHECK(reward == 0.0 - (0.01 * 81.0 + 49.0) - (1e-3 * 9.0 + 0.0));
    free(data);
    free(seen);
}
