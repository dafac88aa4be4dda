/* SlimeVolley: two slimes play volleyball; the policy is the one on the right, against an opponent that comes with it.
 *
 * Court, speeds, bounces, lives and observations are those of the published rules (Ha 2020, "Slime Volleyball Gym
 * Environment"), with a timestep of 1/30 s. The opponent is ours: it stands where the ball comes down, a little behind
 * it, and jumps when it is near. */
#include "environments.h"

#define TAU (1.0 / 30.0)
#define WIDTH 48.0
#define HEIGHT 48.0
#define GROUND 1.5
#define NET_WIDTH 1.0
#define NET_HEIGHT 3.5
#define GRAVITY (-9.8 * 2 * 1.5)
#define RUN_SPEED 17.5
#define JUMP_SPEED 13.5
#define MAX_BALL_SPEED 22.5
#define SLIME_RADIUS 1.5
#define BALL_RADIUS 0.5
#define NUDGE 0.1
#define PAUSE 30 /* timesteps before a serve */
#define LIVES 5

struct disc {
    double x, y, vx, vy, radius;
};

enum { LEFT = 0, RIGHT = 1 };

struct slime_volley {
    struct disc ball, slimes[2];
    double before; /* x of the ball one timestep ago */
    struct pyes_random random;
    int32_t lives[2], pause;
};

/* What a slime is told to do: along its own way forward, which is towards the net; and up. */
struct order {
    double run, jump;
};

static const double SIDE[2] = {-1.0, 1.0};

/* A disc as a player sees it: away from the net is positive on both sides. */
static void see(const struct disc *disc, double side, float *out)
{
    out[0] = (float)(disc->x * side / 10.0);
    out[1] = (float)(disc->y / 10.0);
    out[2] = (float)(disc->vx * side / 10.0);
    out[3] = (float)(disc->vy / 10.0);
}

static void observe(const struct slime_volley *now, float *observation)
{
    see(&now->slimes[RIGHT], 1.0, observation);
    see(&now->ball, 1.0, observation + 4);
    see(&now->slimes[LEFT], -1.0, observation + 8);
}

static void serve(struct slime_volley *now)
{
    now->ball = (struct disc){0.0, WIDTH / 4, 0.0, 0.0, BALL_RADIUS};
    now->ball.vx = pyes_random_uniform(&now->random, -20.0, 20.0);
    now->ball.vy = pyes_random_uniform(&now->random, 10.0, 25.0);
    now->before = 0.0;
    now->pause = PAUSE;
}

static void reset(void *state, uint64_t seed, void *observation, const void *user)
{
    struct slime_volley *now = state;
    (void)user;
    pyes_random_begin(&now->random, seed);
    for (int i = 0; i < 2; i++) {
        now->slimes[i] = (struct disc){SIDE[i] * WIDTH / 4, GROUND, 0.0, 0.0, SLIME_RADIUS};
        now->lives[i] = LIVES;
    }
    serve(now);
    observe(now, observation);
}

static void move(struct disc *disc)
{
    disc->x += disc->vx * TAU;
    disc->y += disc->vy * TAU;
}

static void walk(struct disc *slime, double side, struct order order)
{
    const double net = NET_WIDTH / 2 + slime->radius, wall = WIDTH / 2 - slime->radius;
    slime->vy += GRAVITY * TAU;
    if (order.jump > 0.0 && slime->y <= GROUND + NUDGE * TAU)
        slime->vy = JUMP_SPEED;
    slime->vx = -order.run * RUN_SPEED * side;
    move(slime);
    if (slime->y <= GROUND) {
        slime->y = GROUND;
        slime->vy = 0.0;
    }
    if (slime->x * side <= net || slime->x * side >= wall) {
        slime->x = side * (slime->x * side <= net ? net : wall);
        slime->vx = 0.0;
    }
}

static int touching(const struct disc *one, const struct disc *other)
{
    const double x = one->x - other->x, y = one->y - other->y, reach = one->radius + other->radius;
    return x * x + y * y < reach * reach;
}

/* Pushes the ball out of a disc, and reflects its speed relative to it. */
static void bounce(struct disc *ball, const struct disc *from)
{
    const double x = ball->x - from->x, y = ball->y - from->y, length = pyes_sqrt(x * x + y * y);
    const double nx = length > 0.0 ? x / length : 0.0, ny = length > 0.0 ? y / length : 1.0;
    while (touching(ball, from)) {
        ball->x += nx * NUDGE;
        ball->y += ny * NUDGE;
    }
    const double along = (ball->vx - from->vx) * nx + (ball->vy - from->vy) * ny;
    ball->vx -= nx * (along * 2);
    ball->vy -= ny * (along * 2);
}

static void fly(struct slime_volley *now)
{
    struct disc *ball = &now->ball;
    ball->vy += GRAVITY * TAU;
    const double squared = ball->vx * ball->vx + ball->vy * ball->vy;
    if (squared > MAX_BALL_SPEED * MAX_BALL_SPEED) {
        const double speed = pyes_sqrt(squared);
        ball->vx = ball->vx / speed * MAX_BALL_SPEED;
        ball->vy = ball->vy / speed * MAX_BALL_SPEED;
    }
    now->before = ball->x;
    move(ball);
}

/* Reflects the ball at the walls, the ceiling and the net. Returns the side of the ground that it has met, or 0. */
static double meet_court(struct slime_volley *now)
{
    struct disc *ball = &now->ball;
    const double wall = WIDTH / 2 - ball->radius, net = NET_WIDTH / 2 + ball->radius, nudge = NUDGE * TAU;
    if (ball->x <= -wall || ball->x >= wall) {
        ball->vx = -ball->vx;
        ball->x = ball->x < 0.0 ? -wall + nudge : wall - nudge;
    }
    if (ball->y <= GROUND + ball->radius)
        return ball->x <= 0.0 ? -1.0 : 1.0;
    if (ball->y >= HEIGHT - ball->radius) {
        ball->vy = -ball->vy;
        ball->y = HEIGHT - ball->radius - nudge;
    }
    for (int i = 0; i < 2; i++)
        if (ball->x * SIDE[i] <= net && now->before * SIDE[i] > net && ball->y <= NET_HEIGHT) {
            ball->vx = -ball->vx;
            ball->x = SIDE[i] * (net + nudge);
        }
    return 0.0;
}

/* The opponent. Where the ball will be as low as a slime's top, after at most one bounce at the wall behind it. */
static struct order decide(const struct slime_volley *now)
{
    const struct disc *ball = &now->ball, *slime = &now->slimes[LEFT];
    const double drop = ball->y - (GROUND + SLIME_RADIUS + BALL_RADIUS), wall = WIDTH / 2 - ball->radius;
    const double root = ball->vy * ball->vy - 2 * GRAVITY * drop;
    const double time = root > 0.0 ? (ball->vy + pyes_sqrt(root)) / -GRAVITY : 0.0;
    double lands = ball->x + ball->vx * (time > 0.0 ? time : 0.0);
    if (lands < -wall)
        lands = -2 * wall - lands;
    const double target = lands < 0.0 ? lands - 0.5 : -WIDTH / 4; /* behind the ball, so that it flies forward */
    const double away = target - slime->x, beside = ball->x - slime->x;
    const int near = ball->x < 0.0 && ball->y < 6.0 && ball->vy < 0.0 && beside > -1.0 && beside < 2.5;
    return (struct order){away > 0.3 ? 1.0 : away < -0.3 ? -1.0 : 0.0, near ? 1.0 : 0.0};
}

/* Stay, forward, backward; and the same with a jump. */
static struct order chosen(float action)
{
    const int choice = (int)action, way = choice % 3;
    return (struct order){way == 1 ? 1.0 : way == 2 ? -1.0 : 0.0, choice >= 3 ? 1.0 : 0.0};
}

static int step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    static const struct disc net_top = {0.0, NET_HEIGHT, 0.0, 0.0, NET_WIDTH / 2};
    struct slime_volley *now = state;
    (void)user;
    const struct order orders[2] = {decide(now), chosen(action[0])};
    for (int i = 0; i < 2; i++)
        walk(&now->slimes[i], SIDE[i], orders[i]);
    if (now->pause > 0)
        now->pause--;
    else
        fly(now);
    for (int i = 0; i < 2; i++)
        if (touching(&now->ball, &now->slimes[i]))
            bounce(&now->ball, &now->slimes[i]);
    if (touching(&now->ball, &net_top))
        bounce(&now->ball, &net_top);
    const double side = meet_court(now);
    *reward = -side;
    if (side != 0.0) {
        now->lives[side > 0.0 ? RIGHT : LEFT]--;
        serve(now);
    }
    observe(now, observation);
    return now->lives[LEFT] == 0 || now->lives[RIGHT] == 0 ? PYES_TERMINATED : 0;
}

const struct pyes_environment pyes_slime_volley = {
    .abi = PYES_ENVIRONMENT_ABI,
    .size = sizeof(struct pyes_environment),
    .name = "SlimeVolley",
    .reset = reset,
    .step = step,
    .state_bytes = sizeof(struct slime_volley),
    .observation_type = PYES_OBSERVE_FLOAT32,
    .observation_size = 12,
    .choices = 6,
    .reward_low = -1.0,
    .reward_high = 1.0,
    .time_limit = 3000,
};
