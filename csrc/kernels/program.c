/* A compiled network as data: its size, and its weights packed from theta. Owns the packed layout. */
#include "../pyes_kernels.h"

int64_t pyes_layer_lanes(int64_t outputs)
{
    return (outputs + PYES_LANES - 1) / PYES_LANES * PYES_LANES;
}

int64_t pyes_policy_lanes(int64_t n, const struct pyes_layer *layers)
{
    int64_t lanes = 0;
    for (int64_t k = 0; k < n; k++)
        lanes = layers[k].lanes > lanes ? layers[k].lanes : lanes;
    return lanes;
}

static void pack_layer(const struct pyes_layer *layer, const float *theta, float *packed)
{
    const int64_t lanes = layer->lanes;
    float *weights = packed + lanes;
    for (int64_t j = 0; j < lanes * (layer->inputs + 1); j++)
        packed[j] = 0.0f;
    if (layer->bias_offset >= 0)
        for (int64_t o = 0; o < layer->outputs; o++)
            packed[o] = theta[layer->bias_offset + o];
    for (int64_t o = 0; o < layer->outputs; o++)
        for (int64_t i = 0; i < layer->inputs; i++)
            weights[i * lanes + o] = theta[layer->weight_offset + o * layer->inputs + i];
}

void pyes_policy_pack(int64_t n, const struct pyes_layer *layers, const float *theta, float *packed)
{
    for (int64_t k = 0; k < n; k++)
        pack_layer(&layers[k], theta, packed + layers[k].packed_offset);
}
