/* The steps before and after the network: from an observation to the network's input, and from its outputs to an
 * action.
 *
 * Owns normalisation, clipping, scaling, squashing, bins and the normals of action noise. Must not know the network. */
#include "activation.h"
#include "normal.h"
#include "observation.h"
#include "philox.h"
#include "unguarded.h"

void pyes_read_observation_unguarded(int64_t n, enum pyes_value type, const void *values, float *out)
{
    read_values(n, type, values, out);
}

void pyes_normalize_unguarded(int64_t n, const float *observation, const float *mean, const float *inverse_std,
                              float limit, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = normalized(observation[i], mean[i], inverse_std[i], limit);
}

void pyes_collect_unguarded(int64_t n, const float *observation, double *sums)
{
    for (int64_t i = 0; i < n; i++)
        add_up(observation[i], &sums[i], &sums[n + i]);
}

void pyes_stream_normals_unguarded(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t member,
                                   uint32_t episode, uint64_t first, float *out)
{
    struct pyes_block x = {{0, 0, 0, 0}};
    for (int64_t i = 0; i < n; i++) {
        const uint64_t word = first + (uint64_t)i;
        if (i == 0 || word % 4 == 0)
            x = stream_block(seed, purpose, generation, member, episode, (uint32_t)(word / 4));
        out[i] = normal_of_bits(x.word[word % 4]);
    }
}

int64_t pyes_argmax_unguarded(int64_t n, const float *outputs)
{
    int64_t best = 0;
    float largest = outputs[0];
    for (int64_t i = 1; i < n; i++) { /* without branches: which output is larger cannot be predicted */
        const float output = outputs[i];
        const int better = (output > largest) | ((largest != largest) & (output == output));
        best = better ? i : best;
        largest = better ? output : largest;
    }
    return best;
}

/* One component of a box action. */
static float box_component(enum pyes_action action, int64_t bins, const float *outputs, float low, float high)
{
    switch (action) {
    case PYES_CLIP:
        return clip(*outputs, low, high);
    case PYES_SPAN:
        return clip(low + (clip(*outputs, -1.0f, 1.0f) + 1.0f) * 0.5f * (high - low), low, high);
    case PYES_SQUASH:
        return clip(low + (hyperbolic_tangent(*outputs) + 1.0f) * 0.5f * (high - low), low, high);
    case PYES_BINS: {
        const float share = (float)pyes_argmax_unguarded(bins, outputs) / (float)(bins - 1);
        return clip(low + (high - low) * share, low, high);
    }
    default:
        return *outputs;
    }
}

void pyes_box_action_unguarded(int64_t n, enum pyes_action action, int64_t bins, const float *outputs,
                               const float *low, const float *high, float *out)
{
    const int64_t width = action == PYES_BINS ? bins : 1;
    for (int64_t i = 0; i < n; i++)
        out[i] = box_component(action, bins, outputs + i * width, low[i], high[i]);
}

void pyes_mixed_action_unguarded(int64_t n, const int64_t *actions, const int64_t *widths, const float *outputs,
                                 const float *low, const float *high, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const enum pyes_action action = (enum pyes_action)actions[i];
        if (action == PYES_CHOICE)
            out[i] = (float)pyes_argmax_unguarded(widths[i], outputs);
        else if (action == PYES_SIGN)
            out[i] = *outputs > 0.0f ? 1.0f : 0.0f;
        else
            out[i] = box_component(action, widths[i], outputs, low[i], high[i]);
        outputs += widths[i];
    }
}
