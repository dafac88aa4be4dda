#include "box2d.h"

#include "../pyes_kernels.h"

#define FRAMES 50.0 /* a second */
#define SCALE 30.0  /* pixels for a unit of length */
#define WIDTH (600 / SCALE)
#define HEIGHT (400 / SCALE)

#define MAIN_POWER 13.0
#define SIDE_POWER 0.6

#define MOTORS_TORQUE 80
#define TERRAIN_END ((200 - 10) * (14 / SCALE))

static const float SECONDS = (float)(1.0 / FRAMES); /* of a timestep */
enum { VELOCITY_ITERATIONS = 6 * 30, POSITION_ITERATIONS = 2 * 30 };

/* ---- Contacts ---------------------------------------------------------------------------------------------------- */

static int is_of(const struct pyes_contact *contact, const struct pyes_body *body)
{
    return contact->sides[0].other == body || contact->sides[1].other == body;
}

static void touched(struct pyes_listener *listener, const struct pyes_contact *contact, int begins)
{
    listener->down |= begins && is_of(contact, listener->robot);
    for (int i = 0; i < 2; i++)
        if (is_of(contact, listener->legs[i]))
            listener->touching[i] = begins;
}

static void begin_contact(struct pyes_listener *listener, struct pyes_contact *contact)
{
    touched(listener, contact, 1);
}

static void end_contact(struct pyes_listener *listener, struct pyes_contact *contact)
{
    touched(listener, contact, 0);
}

static void solve_contact(struct pyes_listener *listener, struct pyes_contact *contact, const void *what)
{
    (void)listener, (void)contact, (void)what;
}

static void destroy(struct pyes_listener *listener)
{
    (void)listener;
}

void pyes_listen(struct pyes_physics *physics)
{
    /* In the order of a b2ContactListener, with its two destructors, one of which frees; its type, which would be at [-1],
     * is asked by nobody. */
    static const pyes_function functions[] = {
        (pyes_function)destroy,     (pyes_function)destroy,       (pyes_function)begin_contact,
        (pyes_function)end_contact, (pyes_function)solve_contact, (pyes_function)solve_contact,
    };
    physics->listener.functions = functions;
    physics->listener.down = physics->listener.touching[0] = physics->listener.touching[1] = 0;
    physics->set_listener(physics->world, &physics->listener);
}

static void step_world(struct pyes_physics *physics)
{
    physics->step(physics->world, SECONDS, VELOCITY_ITERATIONS, POSITION_ITERATIONS);
}

static int failed(struct pyes_physics *physics, int error)
{
    physics->error = error;
    return PYES_FAILED;
}

/* ---- The lander -------------------------------------------------------------------------------------------------- */

/* b2Body::ApplyLinearImpulse, which wakes the body. */
static void push(struct pyes_body *body, double impulse_x, double impulse_y, double x, double y)
{
    const float px = (float)impulse_x, py = (float)impulse_y;
    const float arm_x = (float)x - body->center[0], arm_y = (float)y - body->center[1];
    if (!(body->flags & PYES_BODY_AWAKE)) {
        body->flags |= PYES_BODY_AWAKE;
        body->sleep_time = 0.0f;
    }
    body->velocity[0] += body->inverse_mass * px;
    body->velocity[1] += body->inverse_mass * py;
    body->angular_velocity += body->inverse_inertia * (arm_x * py - arm_y * px);
}

/* Applies the impulses of the engines. */
static void fire(struct pyes_lander *task, const float *action)
{
    struct pyes_generator *random = task->random;
    const double first = (-1.0 + 2.0 * random->next_double(random->state)) / SCALE;
    const double second = (-1.0 + 2.0 * random->next_double(random->state)) / SCALE;
    struct pyes_body *body = task->body;
    double direction;
    if (task->discrete) {
        task->main = action[0] == 2.0f;
        task->side = action[0] == 1.0f || action[0] == 3.0f;
        direction = (double)action[0] - 2.0;
    } else {
        const double main = action[0], turn = action[1], strength = fabs(turn);
        task->main = main > 0.0 ? ((main < 1.0 ? main : 1.0) + 1.0) * 0.5 : 0.0;
        task->side = strength > 0.5 ? (strength < 1.0 ? strength : 1.0) : 0.0;
        direction = copysign(1.0, turn);
    }
    if (task->main == 0.0 && task->side == 0.0)
        return;
    const double x = body->position[0], y = body->position[1], angle = body->angle;
    const double sine = task->sine(angle), cosine = task->cosine(angle);
    if (task->main != 0.0) {
        const double along = 4 / SCALE + 2 * first;
        const double ox = sine * along + -cosine * second, oy = -cosine * along - sine * second;
        push(body, -ox * MAIN_POWER * task->main, -oy * MAIN_POWER * task->main, x + ox, y + oy);
    }
    if (task->side != 0.0) {
        const double across = 3 * second + direction * 12 / SCALE;
        const double ox = sine * first + -cosine * across, oy = -cosine * first - sine * across;
        push(body, -ox * SIDE_POWER * task->side, -oy * SIDE_POWER * task->side, x + ox - sine * 17 / SCALE,
             y + oy + cosine * 14 / SCALE);
    }
}

void pyes_lander_reset(void *state, uint64_t seed, void *observation, const void *user)
{
    const struct pyes_lander *task = user;
    (void)state, (void)seed;
    memcpy(observation, task->first, sizeof task->first);
}

static int lander_outcome(struct pyes_lander *task, float *observation, double *reward)
{
    const struct pyes_body *body = task->body;
    const struct pyes_listener *contacts = &task->physics.listener;
    const int left = contacts->touching[0], right = contacts->touching[1];
    const double half_width = WIDTH / 2, half_height = HEIGHT / 2;
    const double x = (body->position[0] - half_width) / half_width;
    const double y = (body->position[1] - task->ground) / half_height;
    const double vx = body->velocity[0] * half_width / FRAMES, vy = body->velocity[1] * half_height / FRAMES;
    const double angle = body->angle;
    const double state[8] = {x, y, vx, vy, angle, 20.0 * body->angular_velocity / FRAMES, left, right};
    for (int i = 0; i < 8; i++)
        observation[i] = (float)state[i];
    const double far = sqrt(x * x + y * y), fast = sqrt(vx * vx + vy * vy);
    const double shaping = -100 * far - 100 * fast - 100 * fabs(angle) + 10.0 * left + 10.0 * right;
    *reward = shaping - task->shaping - task->main * 0.30 - task->side * 0.03;
    task->shaping = shaping;
    const int over = contacts->down || fabs(x) >= 1.0;
    if (over)
        *reward = -100.0;
    if (body->flags & PYES_BODY_AWAKE)
        return over ? PYES_TERMINATED : 0;
    *reward = 100.0;
    return PYES_TERMINATED;
}

int pyes_lander_step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    struct pyes_lander *task = (struct pyes_lander *)user;
    (void)state;
    if (task->physics.world == NULL)
        return failed(&task->physics, PYES_BOX2D_NOT_BEGUN);
    fire(task, action);
    step_world(&task->physics);
    return lander_outcome(task, observation, reward);
}

/* ---- The walker -------------------------------------------------------------------------------------------------- */

static void drive(struct pyes_walker *task, const float *action)
{
    static const double speeds[4] = {4, 6, 4, 6};
    for (int i = 0; i < 4; i++) {
        const float size = fabsf(action[i]);
        const double speed = action[i] == 0.0f ? 0.0 : copysign(speeds[i], (double)action[i]);
        task->efforts[i] = size > 1.0f ? 1.0f : size;
        task->set_speed(task->joints[i].joint, (float)speed);
        task->set_most_torque(task->joints[i].joint, (float)(MOTORS_TORQUE * (double)task->efforts[i]));
    }
}

static double joint_angle(const struct pyes_walker_joint *joint)
{
    return joint->second->angle - joint->first->angle - joint->reference;
}

static double joint_speed(const struct pyes_walker_joint *joint)
{
    return joint->second->angular_velocity - joint->first->angular_velocity;
}

void pyes_walker_reset(void *state, uint64_t seed, void *observation, const void *user)
{
    const struct pyes_walker *task = user;
    (void)state, (void)seed;
    memcpy(observation, task->first, sizeof task->first);
}

static int walker_outcome(struct pyes_walker *task, float *observation, double *reward)
{
    const struct pyes_body *hull = task->hull;
    const struct pyes_listener *contacts = &task->physics.listener;
    const struct pyes_rays *rays = &task->rays;
    const struct pyes_walker_joint *joints = task->joints;
    const double x = hull->position[0], angle = hull->angle;
    const double state[14] = {
        angle,
        2.0 * hull->angular_velocity / FRAMES,
        0.3 * hull->velocity[0] * WIDTH / FRAMES,
        0.3 * hull->velocity[1] * HEIGHT / FRAMES,
        joint_angle(&joints[0]),
        joint_speed(&joints[0]) / 4,
        joint_angle(&joints[1]) + 1.0,
        joint_speed(&joints[1]) / 6,
        contacts->touching[0],
        joint_angle(&joints[2]),
        joint_speed(&joints[2]) / 4,
        joint_angle(&joints[3]) + 1.0,
        joint_speed(&joints[3]) / 6,
        contacts->touching[1],
    };
    for (int i = 0; i < 14; i++)
        observation[i] = (float)state[i];
    pyes_ray_fractions(rays->rays, rays->offsets, hull->position[0], hull->position[1], rays->segment_count, rays->segments,
                       rays->quad_count, rays->quads, observation + 14);
    const double shaping = 130 * x / SCALE - 5.0 * fabs(angle);
    float earned = (float)(shaping - task->shaping);
    for (int i = 0; i < 4; i++)
        earned -= (float)(0.00035 * MOTORS_TORQUE) * task->efforts[i];
    task->shaping = shaping;
    const int over = contacts->down || x < 0;
    *reward = over ? -100.0 : (double)earned;
    return over || x > TERRAIN_END ? PYES_TERMINATED : 0;
}

int pyes_walker_step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    struct pyes_walker *task = (struct pyes_walker *)user;
    (void)state;
    if (task->physics.world == NULL)
        return failed(&task->physics, PYES_BOX2D_NOT_BEGUN);
    for (int i = 0; i < 4; i++)
        if (isnan(action[i]))
            return failed(&task->physics, PYES_BOX2D_NAN);
    drive(task, action);
    step_world(&task->physics);
    return walker_outcome(task, observation, reward);
}
