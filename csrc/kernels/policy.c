/* The forward pass of a compiled network, one timestep. Must not know observations, actions or episodes. */
#include "layers.h"

const float *PYES_WIDE(pyes_policy_forward)(int64_t n, const struct pyes_layer *layers, const float *packed,
                                            const float *input, float *state, float *scratch)
{
    struct buffers buffers = {scratch, scratch + layers[0].widest};
    const float *from = input;
    for (int64_t k = 0; k < n; k++)
        from = run_layer(layers, k, packed, from, state, &buffers);
    return layers[n - 1].op == PYES_CONV ? channels_first(&layers[n - 1], from, &buffers) : from;
}
