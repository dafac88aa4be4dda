/* Timesteps of the lander and the walker: where Box2D keeps the numbers of a body, impulses, motors, contacts, rewards and
 * ends. */
#include "../environments/box2d.h"
#include "checks.h"

#include <stddef.h>

_Static_assert(sizeof(void *) != 8 || (offsetof(struct pyes_body, velocity) == 64 &&
                                       offsetof(struct pyes_body, inverse_mass) == 148 &&
                                       offsetof(struct pyes_body, sleep_time) == 172),
               "a b2Body of Box2D 2.3 with pointers of 64 bits");
_Static_assert(sizeof(void *) != 8 ||
                   (offsetof(struct pyes_contact, sides[0].other) == 32 && offsetof(struct pyes_contact, sides[1].other) == 64),
               "a b2Contact of Box2D 2.3 with pointers of 64 bits");

/* A world in which nothing moves, but a contact begins or ends. */
struct world {
    struct pyes_listener *listener;
    struct pyes_contact contact;
    enum { BEGINS = 2, ENDS = 3, NOTHING } what; /* where a b2ContactListener has these functions */
    int steps;
};

static void step(void *world, float seconds, int32_t velocity_iterations, int32_t position_iterations)
{
    struct world *own = world;
    typedef void (*hear)(struct pyes_listener *listener, struct pyes_contact *contact);
    CHECK(seconds == 0.02f && velocity_iterations == 180 && position_iterations == 60);
    if (own->what != NOTHING)
        ((hear)own->listener->functions[own->what])(own->listener, &own->contact);
    own->steps++;
}

static void set_listener(void *world, struct pyes_listener *listener)
{
    ((struct world *)world)->listener = listener;
}

static struct pyes_physics physics_of(struct world *world, struct pyes_body *parts)
{
    return (struct pyes_physics){
        .world = world,
        .step = step,
        .set_listener = set_listener,
        .listener = {.robot = parts, .legs = {parts + 1, parts + 2}},
    };
}

static void test_contacts(void)
{
    struct world world = {.what = NOTHING};
    struct pyes_body parts[4];
    struct pyes_physics physics = physics_of(&world, parts);
    const struct pyes_listener *heard = &physics.listener;
    pyes_listen(&physics);
    CHECK(world.listener == heard && !heard->down && !heard->touching[0] && !heard->touching[1]);
    world.contact.sides[0].other = parts + 3; /* the ground */
    for (int side = 1; side <= 2; side++) {
        world.contact.sides[1].other = parts + side;
        world.what = BEGINS;
        step(&world, 0.02f, 180, 60);
        CHECK(heard->touching[side - 1] && heard->touching[2 - side] == 0 && !heard->down);
        world.what = ENDS;
        step(&world, 0.02f, 180, 60);
        CHECK(!heard->touching[side - 1]);
    }
    world.contact.sides[1].other = parts + 3, world.contact.sides[0].other = parts; /* the other way round */
    step(&world, 0.02f, 180, 60);
    CHECK(!heard->down); /* the robot has left something */
    world.what = BEGINS;
    step(&world, 0.02f, 180, 60);
    world.what = ENDS;
    step(&world, 0.02f, 180, 60);
    CHECK(heard->down && !heard->touching[0] && !heard->touching[1]); /* for good */
}

static double half(void *state)
{
    ++*(int *)state;
    return 0.5;
}

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
    struct pyes_body *body = buffer(4, sizeof *body);
    struct world world = {.what = NOTHING};
    int drawn = 0;
    struct pyes_generator random = {.state = &drawn, .next_double = half};
    struct pyes_lander task = {
        .body = body, .random = &random, .sine = zero, .cosine = one, .discrete = 1, .ground = 4.0, .first = {7.0f}};
    float *seen = buffer(8, sizeof(float)), *choice = buffer(1, sizeof(float)), *levels = buffer(2, sizeof(float));
    double reward = 0.0;
    body->position[0] = body->center[0] = 10.0f, body->position[1] = body->center[1] = 4.0f;
    body->inverse_mass = 0.5f, body->inverse_inertia = 1.0f, body->sleep_time = 0.25f;

    CHECK(pyes_lander_step(NULL, choice, seen, &reward, &task) == PYES_FAILED);
    CHECK(task.physics.error == PYES_BOX2D_NOT_BEGUN && drawn == 0);
    task.physics = physics_of(&world, body);
    pyes_listen(&task.physics);
    pyes_lander_reset(NULL, 0, seen, &task);
    CHECK(seen[0] == 7.0f && seen[7] == 0.0f);

    task.physics.listener.touching[0] = task.physics.listener.touching[1] = 1;
    /* Nothing: the body sleeps on. */
    CHECK(pyes_lander_step(NULL, choice, seen, &reward, &task) == PYES_TERMINATED && reward == 100.0);
    CHECK(world.steps == 1 && drawn == 2);
    CHECK(seen[0] == 0.0f && seen[1] == 0.0f && seen[6] == 1.0f && seen[7] == 1.0f && task.shaping == 20.0);

    choice[0] = 2.0f; /* up, below the center: no torque, and it wakes */
    task.physics.listener.touching[0] = task.physics.listener.touching[1] = 0;
    CHECK(pyes_lander_step(NULL, choice, seen, &reward, &task) == 0 && reward < -20.3 && seen[3] > 0.0f);
    CHECK(body->flags == PYES_BODY_AWAKE && body->sleep_time == 0.0f && body->angular_velocity == 0.0f);
    CHECK(body->velocity[0] == 0.0f && body->velocity[1] == 0.5f * (float)(4 / 30.0 * 13.0));

    task.discrete = 0, levels[0] = -1.0f, levels[1] = 0.4f; /* both engines are off */
    const float before = body->velocity[1];
    CHECK(pyes_lander_step(NULL, levels, seen, &reward, &task) == 0);
    CHECK(body->velocity[1] == before && task.main == 0.0 && task.side == 0.0);
    levels[0] = 0.5f, levels[1] = -2.0f;
    world.what = BEGINS, world.contact.sides[0].other = body;
    CHECK(pyes_lander_step(NULL, levels, seen, &reward, &task) == PYES_TERMINATED && reward == -100.0);
    CHECK(task.main == 0.75 && task.side == 1.0 && body->velocity[0] < 0.0f && body->angular_velocity != 0.0f);
    pyes_listen(&task.physics);
    world.what = NOTHING, body->position[0] = 20.0f;
    CHECK(pyes_lander_step(NULL, levels, seen, &reward, &task) == PYES_TERMINATED && seen[0] == 1.0f);
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
    struct pyes_body *bodies = buffer(4, sizeof *bodies);
    struct world world = {.what = NOTHING};
    const double offset[2] = {0.0, -2.0};
    const float ground[4] = {-9.0f, -1.0f, 99.0f, -1.0f};
    float *motors = buffer(8, sizeof(float)), *seen = buffer(24, sizeof(float)), *action = buffer(4, sizeof(float));
    struct pyes_walker task = {
        .hull = bodies, .set_speed = set_speed, .set_most_torque = set_most_torque, .rays = {1, 1, 0, offset, ground, NULL}};
    double reward = 0.0;
    for (int i = 0; i < 4; i++)
        task.joints[i] = (struct pyes_walker_joint){motors + 2 * i, bodies, bodies + 1, 0.5f};
    action[0] = 0.5f, action[1] = -3.0f, action[3] = -0.0f;
    CHECK(pyes_walker_step(NULL, action, seen, &reward, &task) == PYES_FAILED);
    CHECK(task.physics.error == PYES_BOX2D_NOT_BEGUN);
    task.physics = physics_of(&world, bodies);
    pyes_listen(&task.physics);
    task.first[23] = 7.0f;
    pyes_walker_reset(NULL, 0, seen, &task);
    CHECK(seen[0] == 0.0f && seen[23] == 7.0f);
    action[2] = NAN;
    CHECK(pyes_walker_step(NULL, action, seen, &reward, &task) == PYES_FAILED && task.physics.error == PYES_BOX2D_NAN);
    CHECK(world.steps == 0);
    action[2] = 0.0f;

    bodies[0].position[0] = 3.0f, bodies[1].angle = 1.0f, bodies[1].angular_velocity = 6.0f;
    world.what = BEGINS, world.contact.sides[0].other = bodies + 1;
    CHECK(pyes_walker_step(NULL, action, seen, &reward, &task) == 0 && task.shaping == 13.0);
    CHECK(motors[0] == 4.0f && motors[1] == 40.0f && motors[2] == -6.0f && motors[3] == 80.0f);
    CHECK(motors[4] == 0.0f && motors[5] == 0.0f && motors[6] == 0.0f && !signbit(motors[6]));
    CHECK(seen[4] == 0.5f && seen[5] == 1.5f && seen[6] == 1.5f && seen[7] == 1.0f && seen[8] == 1.0f && seen[13] == 0.0f);
    CHECK(seen[14] == 0.5f); /* of the one ray */
    CHECK(reward == (double)(13.0f - (float)0.028 * 0.5f - (float)0.028));
    world.contact.sides[0].other = bodies;
    CHECK(pyes_walker_step(NULL, action, seen, &reward, &task) == PYES_TERMINATED && reward == -100.0);
    pyes_listen(&task.physics);
    world.what = NOTHING, bodies[0].position[0] = 88.0f; /* almost there */
    CHECK(pyes_walker_step(NULL, action, seen, &reward, &task) == 0);
    bodies[0].position[0] = 89.0f;
    CHECK(pyes_walker_step(NULL, action, seen, &reward, &task) == PYES_TERMINATED && reward > 0.0);
    bodies[0].position[0] = -0.1f;
    CHECK(pyes_walker_step(NULL, action, seen, &reward, &task) == PYES_TERMINATED && reward == -100.0);
    free(bodies);
    free(motors);
    free(seen);
    free(action);
}

void test_box2d(void)
{
    test_contacts();
    test_lander();
    test_walker();
}
