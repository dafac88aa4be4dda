/* Timesteps of the lander and the walker: where Box2D keeps the numbers of a body, impulses, motors, rewards and ends. */
#include "../environments/box2d.h"
#include "checks.h"

#include <stddef.h>

_Static_assert(sizeof(void *) != 8 || (offsetof(struct pyes_body, velocity) == 64 &&
                                       offsetof(struct pyes_body, inverse_mass) == 148 &&
                                       offsetof(struct pyes_body, sleep_time) == 172),
               "a b2Body of Box2D 2.3 with pointers of 64 bits");

static double zero(double angle)
{
    return 0.0 * angle;
}

static double one(double angle)
{
    return 1.0 + 0.0 * angle;
}

static void test_lander(void)
{
    struct pyes_body *body = buffer(1, sizeof *body);
    struct pyes_lander task = {.body = body, .sine = zero, .cosine = one, .discrete = 1, .ground = 4.0};
    float *seen = buffer(8, sizeof(float)), *choice = buffer(1, sizeof(float)), *levels = buffer(2, sizeof(float));
    double reward = 0.0;
    body->position[0] = body->center[0] = 10.0f, body->position[1] = body->center[1] = 4.0f;
    body->inverse_mass = 0.5f, body->inverse_inertia = 1.0f, body->sleep_time = 0.25f;

    pyes_lander_fire(&task, choice, 0.5, 0.5); /* nothing: the body sleeps on */
    CHECK(pyes_lander_outcome(&task, 1, 1, 0, seen, &reward) == PYES_TERMINATED && reward == 100.0);
    CHECK(seen[0] == 0.0f && seen[1] == 0.0f && seen[6] == 1.0f && seen[7] == 1.0f && task.shaping == 20.0);

    choice[0] = 2.0f; /* up, below the center: no torque, and it wakes */
    pyes_lander_fire(&task, choice, 0.5, 0.5);
    CHECK(body->flags == PYES_BODY_AWAKE && body->sleep_time == 0.0f && body->angular_velocity == 0.0f);
    CHECK(body->velocity[0] == 0.0f && body->velocity[1] == 0.5f * (float)(4 / 30.0 * 13.0));
    CHECK(pyes_lander_outcome(&task, 0, 0, 0, seen, &reward) == 0 && reward < -20.3 && seen[3] > 0.0f);

    task.discrete = 0, levels[0] = -1.0f, levels[1] = 0.4f; /* both engines are off */
    const float before = body->velocity[1];
    pyes_lander_fire(&task, levels, 0.5, 0.5);
    CHECK(body->velocity[1] == before && task.main == 0.0 && task.side == 0.0);
    levels[0] = 0.5f, levels[1] = -2.0f;
    pyes_lander_fire(&task, levels, 0.5, 0.5);
    CHECK(task.main == 0.75 && task.side == 1.0 && body->velocity[0] < 0.0f && body->angular_velocity != 0.0f);
    CHECK(pyes_lander_outcome(&task, 0, 0, 1, seen, &reward) == PYES_TERMINATED && reward == -100.0);
    body->position[0] = 20.0f;
    CHECK(pyes_lander_outcome(&task, 0, 0, 0, seen, &reward) == PYES_TERMINATED && seen[0] == 1.0f);
    free(body);
    free(seen);
    free(choice);
    free(levels);
}

/* A joint is its two motor values. */
static void set_speed(void *joint, float value)
{
    ((float *)joint)[0] = value;
}

static void set_most_torque(void *joint, float value)
{
    ((float *)joint)[1] = value;
}

static void test_walker(void)
{
    struct pyes_body *bodies = buffer(2, sizeof *bodies);
    float *motors = buffer(8, sizeof(float)), *seen = buffer(24, sizeof(float)), *action = buffer(4, sizeof(float));
    struct pyes_walker task = {.hull = bodies, .set_speed = set_speed, .set_most_torque = set_most_torque};
    double reward = 0.0;
    for (int i = 0; i < 4; i++)
        task.joints[i] = (struct pyes_walker_joint){motors + 2 * i, bodies, bodies + 1, 0.5f};
    action[0] = 0.5f, action[1] = -3.0f, action[3] = -0.0f;
    pyes_walker_drive(&task, action);
    CHECK(motors[0] == 4.0f && motors[1] == 40.0f && motors[2] == -6.0f && motors[3] == 80.0f);
    CHECK(motors[4] == 0.0f && motors[5] == 0.0f && motors[6] == 0.0f && !signbit(motors[6]));

    bodies[0].position[0] = 3.0f, bodies[1].angle = 1.0f, bodies[1].angular_velocity = 6.0f;
    CHECK(pyes_walker_outcome(&task, 1, 0, 0, seen, &reward) == 0 && task.shaping == 13.0);
    CHECK(seen[4] == 0.5f && seen[5] == 1.5f && seen[6] == 1.5f && seen[7] == 1.0f && seen[8] == 1.0f && seen[13] == 0.0f);
    CHECK(reward == (double)(13.0f - (float)0.028 * 0.5f - (float)0.028));
    CHECK(pyes_walker_outcome(&task, 0, 0, 1, seen, &reward) == PYES_TERMINATED && reward == -100.0);
    bodies[0].position[0] = 88.0f; /* almost there */
    CHECK(pyes_walker_outcome(&task, 0, 0, 0, seen, &reward) == 0);
    bodies[0].position[0] = 89.0f;
    CHECK(pyes_walker_outcome(&task, 0, 0, 0, seen, &reward) == PYES_TERMINATED && reward > 0.0);
    bodies[0].position[0] = -0.1f;
    CHECK(pyes_walker_outcome(&task, 0, 0, 0, seen, &reward) == PYES_TERMINATED && reward == -100.0);
    free(bodies);
    free(motors);
    free(seen);
    free(action);
}

void test_box2d(void)
{
    test_lander();
    test_walker();
}
