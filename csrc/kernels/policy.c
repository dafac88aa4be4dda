/* The forward pass of a compiled network.
 *
 * Must not know observations, actions or episodes. Every output adds its inputs in order, so the width of the machine
 * does not show: lane o of the packed weights belongs to output o, and lanes are padded to a multiple of PYES_LANES. */
#include "activation.h"
#include "lanes.h"

enum {
    WIDTH = sizeof(floats) / sizeof(float), /* outputs in a vector; divides PYES_LANES */
};

PYES_INLINE void activate_typed(enum pyes_activation activation, int64_t lanes, float *values)
{
    PYES_INDEPENDENT
    for (int64_t j = 0; j < lanes; j++)
        values[j] = activated(activation, values[j]);
}

/* One loop an activation, so that none carries the branches of the others. */
PYES_INLINE void activate(enum pyes_activation activation, int64_t lanes, float *values)
{
    switch (activation) {
    case PYES_TANH:
        activate_typed(PYES_TANH, lanes, values);
        break;
    case PYES_RELU:
        activate_typed(PYES_RELU, lanes, values);
        break;
    case PYES_SIGMOID:
        activate_typed(PYES_SIGMOID, lanes, values);
        break;
    case PYES_ELU:
        activate_typed(PYES_ELU, lanes, values);
        break;
    case PYES_LEAKY_RELU:
        activate_typed(PYES_LEAKY_RELU, lanes, values);
        break;
    case PYES_SILU:
        activate_typed(PYES_SILU, lanes, values);
        break;
    case PYES_GELU:
        activate_typed(PYES_GELU, lanes, values);
        break;
    case PYES_SOFTSIGN:
        activate_typed(PYES_SOFTSIGN, lanes, values);
        break;
    default:
        break;
    }
}

/* `vectors` vectors of outputs at once: independent chains of additions hide the latency of one. */
PYES_INLINE void linear_block(int64_t vectors, int64_t inputs, int64_t lanes, const float *restrict bias,
                              const float *restrict weights, const float *restrict input, float *restrict out)
{
    floats sum[4];
    PYES_UNROLL(4)
    for (int64_t v = 0; v < vectors; v++)
        memcpy(&sum[v], bias + v * WIDTH, sizeof(floats));
    for (int64_t i = 0; i < inputs; i++) {
        PYES_UNROLL(4)
        for (int64_t v = 0; v < vectors; v++) {
            floats weight;
            memcpy(&weight, weights + i * lanes + v * WIDTH, sizeof(floats));
            sum[v] += input[i] * weight;
        }
    }
    PYES_UNROLL(4)
    for (int64_t v = 0; v < vectors; v++)
        memcpy(out + v * WIDTH, &sum[v], sizeof(floats));
}

/* y[o] = bias[o]; y[o] += x[i] * W[i][o] in the order of i. Packed: bias (lanes), then W (inputs, lanes). */
PYES_INLINE void linear(const struct pyes_layer *layer, const float *packed, const float *input, float *out)
{
    const int64_t lanes = layer->lanes;
    int64_t o = 0;
    for (; o + 4 * WIDTH <= lanes; o += 4 * WIDTH)
        linear_block(4, layer->inputs, lanes, packed + o, packed + lanes + o, input, out + o);
    for (; o < lanes; o += WIDTH)
        linear_block(1, layer->inputs, lanes, packed + o, packed + lanes + o, input, out + o);
}

const float *PYES_WIDE(pyes_policy_forward)(int64_t n, const struct pyes_layer *layers, const float *packed,
                                            const float *input, float *scratch)
{
    const float *from = input;
    float *to = scratch, *spare = scratch + pyes_policy_lanes(n, layers);
    for (int64_t k = 0; k < n; k++) {
        linear(&layers[k], packed + layers[k].packed_offset, from, to);
        activate(layers[k].activation, layers[k].lanes, to);
        float *used = to;
        to = spare;
        spare = used;
        from = used;
    }
    return from;
}
