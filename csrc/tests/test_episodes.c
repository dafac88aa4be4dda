/* Environments in C and the episodes in them: sizes, guards, both types of observations, what is seen. */
#include "../environments/environments.h"
#include "../kernels/float_control.h"
#include "checks.h"

/* The world of an environment; its memory belongs to the caller, who frees state and values. */
static struct pyes_world made(const struct pyes_environment *environment)
{
    const int64_t width = environment->observation_type == PYES_OBSERVE_FLOAT64 ? 8 : 4;
    const int64_t state = (int64_t)environment->state_bytes, values = (int64_t)environment->observation_size * width;
    struct pyes_world world = {environment, buffer(state + PYES_GUARD, 1), buffer(values + PYES_GUARD, 1), 1};
    memset((char *)world.state + state, PYES_GUARD_BYTE, PYES_GUARD);
    memset((char *)world.values + values, PYES_GUARD_BYTE, PYES_GUARD);
    return world;
}

static void begin(void *state, uint64_t seed, void *observation, const void *user)
{
    *(uint64_t *)state += seed + *(const uint64_t *)user;
    ((double *)observation)[0] = (double)seed;
    ((double *)observation)[1] = -1.0;
}

/* What the choice asks for. */
static int count(void *state, const float *action, void *observation, double *reward, const void *user)
{
    uint64_t *now = state;
    now[0]++;
    ((double *)observation)[1] = action[0] == 4.0f ? NAN : (double)now[0];
    *reward = action[0] == 3.0f ? 11.0 : 1.0;
    if (action[0] == 5.0f)
        now[1] = *(const uint64_t *)user;
    if (action[0] == 6.0f)
        return PYES_FAILED;
    return action[0] == 2.0f ? 8 : now[0] >= 9 ? PYES_TERMINATED : 0;
}

static void test_world(void)
{
    const uint64_t user = 2;
    const struct pyes_environment counter = {
        .reset = begin, .step = count, .user = &user, .state_bytes = 8, .observation_type = PYES_OBSERVE_FLOAT64,
        .observation_size = 2, .choices = 6, .reward_low = 0.0, .reward_high = 10.0};
    struct pyes_world world = made(&counter);
    double reward;
    const float actions[7] = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
    for (int time = 0; time < 2; time++) { /* the second time, the state is cleared again */
        pyes_world_reset(&world, 1);
        CHECK(*(uint64_t *)world.state == 3);
        CHECK(pyes_world_step(&world, &actions[0], &reward) == 0 && reward == 1.0);
    }
    world.frame_skip = 9;
    CHECK(pyes_world_step(&world, &actions[0], &reward) == PYES_TERMINATED && reward == 5.0);
    CHECK(pyes_world_step(&world, &actions[2], &reward) == PYES_WRONG_FLAGS);
    CHECK(pyes_world_step(&world, &actions[3], &reward) == PYES_WRONG_REWARD && reward == 11.0);
    CHECK(pyes_world_step(&world, &actions[6], &reward) == PYES_STEP_FAILED);
    CHECK(pyes_world_damage(&world) == 0);
    CHECK(pyes_world_step(&world, &actions[5], &reward) == PYES_TERMINATED);
    CHECK(pyes_world_damage(&world) == 1);
    ((uint64_t *)world.state)[1] = 0xA5A5A5A5A5A5A5A5u;
    ((char *)world.values)[16 + PYES_GUARD - 1] = 0;
    CHECK(pyes_world_damage(&world) == 2);
    free(world.state);
    free(world.values);
}

static void begin_careless(void *state, uint64_t seed, void *observation, const void *user)
{
    (void)state, (void)seed, (void)observation, (void)user;
    set_control_word(control_word() | PYES_NOT_STANDARD);
}

static int step_careless(void *state, const float *action, void *observation, double *reward, const void *user)
{
    (void)action;
    begin_careless(state, 0, observation, user);
    *reward = 1e-310; /* subnormal */
    return 0;
}

/* An environment that changes the control word spoils neither its rewards nor what follows. */
static void test_control_word(void)
{
    const struct pyes_environment careless = {
        .reset = begin_careless, .step = step_careless, .state_bytes = 8, .observation_type = PYES_OBSERVE_FLOAT64,
        .observation_size = 2, .choices = 6};
    struct pyes_world world = made(&careless);
    const float action = 0.0f;
    double reward;
    world.frame_skip = 3;
    pyes_world_reset(&world, 1);
    CHECK((control_word() & PYES_NOT_STANDARD) == 0);
    CHECK(pyes_world_step(&world, &action, &reward) == 0 && reward == 1e-310 + 1e-310 + 1e-310);
    CHECK((control_word() & PYES_NOT_STANDARD) == 0);
    free(world.state);
    free(world.values);
}

/* An episode of a linear policy, in one call or in many. */
static struct pyes_episode played(const struct pyes_world *world, int64_t chunk, const int64_t *seen, int64_t observed)
{
    const struct pyes_environment *environment = world->environment;
    const int64_t components = environment->action_size, outputs = components ? components : environment->choices;
    struct pyes_layer layer = {.op = PYES_LINEAR, .inputs = observed, .outputs = outputs, .bias_offset = -1,
                               .recurrent_offset = -1, .recurrent_bias_offset = -1, .scale_offset = -1};
    int64_t packed_size, state_size;
    pyes_policy_place(1, &layer, &packed_size, &state_size);
    float *theta = noise(observed * outputs, 1), *packed = buffer(packed_size, sizeof(float));
    pyes_policy_pack(PYES_BASELINE, 1, &layer, theta, NULL, packed);
    float *mean = noise(observed, 2), *inverse = buffer(observed, sizeof(float));
    for (int64_t i = 0; i < observed; i++)
        inverse[i] = 0.5f;
    const float low[2] = {-2.0f, -2.0f}, high[2] = {2.0f, 2.0f};
    struct pyes_episode episode = {
        .world = world, .observed = observed, .seen = seen, .mean = mean, .inverse_std = inverse, .limit = 5.0f,
        .observation = buffer(observed, sizeof(float)),
        .input = buffer(observed, sizeof(float)), .sums = buffer(2 * observed, sizeof(double)), .level = PYES_BASELINE,
        .layer_count = 1, .layers = &layer, .packed = packed, .state = buffer(state_size, sizeof(float)),
        .scratch = buffer(2 * layer.widest, sizeof(float)), .outputs = outputs, .components = components,
        .action = PYES_CLIP, .low = low, .high = high, .chosen = buffer(components + 1, sizeof(float)),
        .deviation = 0.1, .noisy = buffer(2 * components, sizeof(float)), .seed = 9, .purpose = 3,
        .reward_min = -INFINITY};
    int flags;
    pyes_world_reset(world, 7);
    CHECK(pyes_episode_observe(&episode) == 0);
    do
        flags = pyes_episode_run(&episode, chunk);
    while (flags == 0 && episode.length < 200);
    CHECK(flags >= 0 && pyes_world_damage(world) == 0 && isfinite(episode.total) && isfinite(episode.sums[0]));
    CHECK(episode.word == (uint64_t)(components * episode.length));
    float *const buffers[] = {theta, packed, mean, inverse, episode.observation, episode.input,
                              episode.state, episode.scratch, episode.chosen, episode.noisy};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    free(episode.sums);
    return episode;
}

void test_episodes(void)
{
    static const struct pyes_environment *const own[] = {
        &pyes_acrobot,      &pyes_cart_pole,               &pyes_cart_pole_swing_up, &pyes_maze,
        &pyes_mountain_car, &pyes_mountain_car_continuous, &pyes_pendulum,           &pyes_slime_volley,
    };
    const int64_t seen[2] = {1, -1};
    test_world();
    test_control_word();
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct pyes_world world = made(own[i]);
        for (int part = 0; part < 2; part++) {
            const int64_t observed = part ? 2 : (int64_t)own[i]->observation_size;
            const struct pyes_episode once = played(&world, 200, part ? seen : NULL, observed);
            const struct pyes_episode often = played(&world, 1, part ? seen : NULL, observed);
            CHECK(once.length > 5 && once.length == often.length && once.total == often.total);
        }
        free(world.state);
        free(world.values);
    }
}
