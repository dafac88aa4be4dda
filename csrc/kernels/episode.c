/* Episodes of a policy in an environment written in C, without a call of Python per timestep.
 *
 * Owns the order of the steps of a timestep, which is that of PolicyRunner.act and pyes.episodes.rollout: observe, add
 * up, normalise, network, noise, action, step. Must not know any environment; trusts its sizes, which csrc/core/ has
 * checked. */
#include "float_control.h"
#include "observation.h"
#include "unguarded.h"
#include "wide.h"

void pyes_world_reset(const struct pyes_world *world, uint64_t seed)
{
    const struct pyes_environment *environment = world->environment;
    const uint64_t found = standard_arithmetic();
    const size_t width = environment->observation_type == PYES_OBSERVE_FLOAT64 ? sizeof(double) : sizeof(float);
    memset(world->state, 0, (size_t)environment->state_bytes);
    memset(world->values, 0, environment->observation_size * width);
    environment->reset(world->state, seed, world->values, environment->user);
    standard_arithmetic(); /* the environment may have changed it */
    restore_arithmetic(found);
}

static int step_once(const struct pyes_world *world, const float *action, double *total)
{
    const struct pyes_environment *environment = world->environment;
    const double low = environment->reward_low, high = environment->reward_high;
    int flags = 0;
    *total = 0.0;
    for (int64_t i = 0; i < world->frame_skip && flags == 0; i++) {
        double reward = 0.0;
        flags = environment->step(world->state, action, world->values, &reward, environment->user);
        standard_arithmetic(); /* the environment may have changed it */
        if (flags < 0 || flags > (PYES_TERMINATED | PYES_TRUNCATED))
            return flags == PYES_FAILED ? PYES_STEP_FAILED : PYES_WRONG_FLAGS;
        if (low < high && !(reward >= low && reward <= high)) {
            *total = reward;
            return PYES_WRONG_REWARD;
        }
        *total += reward;
    }
    return flags;
}

int pyes_world_step(const struct pyes_world *world, const float *action, double *reward)
{
    const uint64_t found = standard_arithmetic();
    const int flags = step_once(world, action, reward);
    restore_arithmetic(found);
    return flags;
}

static int changed(const void *memory, uint64_t size)
{
    const unsigned char *guard = (const unsigned char *)memory + size;
    int found = 0;
    for (int i = 0; i < PYES_GUARD; i++)
        found |= guard[i] != PYES_GUARD_BYTE;
    return found;
}

int pyes_world_damage(const struct pyes_world *world)
{
    const struct pyes_environment *environment = world->environment;
    const uint64_t width = environment->observation_type == PYES_OBSERVE_FLOAT64 ? sizeof(double) : sizeof(float);
    if (changed(world->state, environment->state_bytes))
        return 1;
    return changed(world->values, environment->observation_size * width) ? 2 : 0;
}

/* Reads the observation, of one type so that the loop has no branch for it. */
PYES_INLINE int observe_typed(const struct pyes_episode *episode, enum pyes_value type)
{
    const void *values = episode->world->values;
    int nan = 0;
    for (int64_t i = 0; i < episode->observed; i++) {
        const int64_t from = episode->seen == NULL ? i : episode->seen[i];
        float value = 0.0f;
        if (from >= 0)
            value = type == PYES_DOUBLE ? (float)((const double *)values)[from] : ((const float *)values)[from];
        episode->observation[i] = value;
        nan |= value != value;
    }
    return nan ? PYES_NAN_OBSERVED : 0;
}

static int observe(const struct pyes_episode *episode)
{
    if (episode->world->environment->observation_type == PYES_OBSERVE_FLOAT64)
        return observe_typed(episode, PYES_DOUBLE);
    return observe_typed(episode, PYES_FLOAT);
}

int pyes_episode_observe(struct pyes_episode *episode)
{
    const uint64_t found = standard_arithmetic();
    const int result = observe(episode);
    restore_arithmetic(found);
    return result;
}

/* The outputs plus the next normals of the episode's stream. */
static const float *with_noise(struct pyes_episode *episode, const float *outputs)
{
    const int64_t n = episode->components;
    pyes_stream_normals(n, episode->seed, episode->purpose, episode->generation, episode->member, episode->number,
                        episode->word, episode->noisy + n);
    episode->word += (uint64_t)n;
    pyes_perturb(PYES_BASELINE, n, PYES_FLOAT32, outputs, episode->noisy + n, NULL, episode->deviation, episode->noisy);
    return episode->noisy;
}

/* Adds up the observation and normalises it; returns what the network reads. */
static const float *prepare(const struct pyes_episode *episode)
{
    const int64_t n = episode->observed;
    const float *observation = episode->observation;
    if (episode->sums != NULL)
        pyes_collect_unguarded(n, observation, episode->sums);
    if (episode->mean == NULL)
        return observation;
    pyes_normalize_unguarded(n, observation, episode->mean, episode->inverse_std, episode->limit, episode->input);
    return episode->input;
}

static void act(struct pyes_episode *episode)
{
    const float *input = prepare(episode);
    const float *outputs = pyes_policy_forward(episode->level, episode->layer_count, episode->layers, episode->packed,
                                               input, episode->state, episode->scratch);
    if (episode->components == 0) {
        episode->chosen[0] = (float)pyes_argmax_unguarded(episode->outputs, outputs);
        return;
    }
    if (episode->deviation > 0.0)
        outputs = with_noise(episode, outputs);
    pyes_box_action_unguarded(episode->components, episode->action, episode->bins, outputs, episode->low,
                              episode->high, episode->chosen);
}

int pyes_episode_run(struct pyes_episode *episode, int64_t timesteps)
{
    const uint64_t found = standard_arithmetic();
    int flags = 0;
    for (int64_t i = 0; i < timesteps && flags == 0; i++) {
        double reward;
        act(episode);
        flags = step_once(episode->world, episode->chosen, &reward);
        if (flags < 0) {
            episode->total = reward;
            break;
        }
        episode->length++;
        episode->total += reward < episode->reward_min ? episode->reward_min : reward; /* NaN stays NaN */
        const int observed = observe(episode); /* also the last one, which the policy does not act on */
        flags = observed < 0 ? observed : flags;
    }
    restore_arithmetic(found);
    return flags;
}
