/* The steps before and after the network: from an observation to the network's input, and from its outputs to an
 * action.
 *
 * Owns normalisation, clipping, squashing, bins and the normals of action noise. Must not know the network. */
#include "activation.h"
#include "normal.h"
#include "philox.h"
#include "unguarded.h"

PYES_INLINE float clip(float x, float low, float high)
{
    const float above = x < low ? low : x; /* comparisons with NaN are false: NaN passes through */
    return above > high ? high : above;
}

void pyes_read_observation_unguarded(int64_t n, enum pyes_value type, const void *values, float *out)
{
    read_values(n, type, values, out);
}

void pyes_normalize_unguarded(int64_t n, const float *observation, const float *mean, const float *inverse_std,
                              float limit, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = clip((observation[i] - mean[i]) * inverse_std[i], -limit, limit);
}

void pyes_collect_unguarded(int64_t n, const float *observation, double *sums)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)observation[i];
        sums[i] += x;
        sums[n + i] += x * x;
    }
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
    for (int64_t i = 1; i < n; i++)
        if (outputs[i] > outputs[best] || (outputs[best] != outputs[best] && outputs[i] == outputs[i]))
            best = i;
    return best;
}

void pyes_box_action_unguarded(int64_t n, enum pyes_action action, int64_t bins, const float *outputs,
                               const float *low, const float *high, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        switch (action) {
        case PYES_CLIP:
            out[i] = clip(outputs[i], low[i], high[i]);
            break;
        case PYES_SQUASH:
            out[i] = low[i] + (hyperbolic_tangent(outputs[i]) + 1.0f) * 0.5f * (high[i] - low[i]);
            break;
        case PYES_BINS: {
            const float share = (float)pyes_argmax_unguarded(bins, outputs + i * bins) / (float)(bins - 1);
            out[i] = low[i] + (high[i] - low[i]) * share;
            break;
        }
        default:
            out[i] = outputs[i];
            break;
        }
    }
}
