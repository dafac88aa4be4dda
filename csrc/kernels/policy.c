/* The forward pass of a compiled network, one timestep.
 *
 * Must not know observations, actions or episodes. Every output adds its inputs in order, so the width of the machine
 * does not show: lane o of the packed weights belongs to output o, and lanes are padded to a multiple of PYES_LANES. */
#include "activation.h"
#include "cells.h"
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

/* y[o] = bias[o]; y[o] += x[i] * W[i][o] in the order of i. Packed: bias (width), then W (inputs, width). */
PYES_INLINE void linear(int64_t inputs, int64_t width, const float *packed, const float *input, float *out)
{
    int64_t o = 0;
    for (; o + 4 * WIDTH <= width; o += 4 * WIDTH)
        linear_block(4, inputs, width, packed + o, packed + width + o, input, out + o);
    for (; o < width; o += WIDTH)
        linear_block(1, inputs, width, packed + o, packed + width + o, input, out + o);
}

/* One timestep of a recurrent layer: joins the input with h, makes the gates, replaces h; returns h. */
PYES_INLINE const float *recurrent(const struct pyes_layer *layer, const float *packed, const float *input,
                                   float *state, float *gates)
{
    const int64_t lanes = layer->lanes, inputs = layer->inputs;
    float *joined = layer->op == PYES_LSTM ? state + lanes : state, *h = joined + inputs;
    memcpy(joined, input, (size_t)inputs * sizeof *joined);
    linear(inputs + layer->outputs, pyes_layer_width(layer), packed, joined, gates);
    switch (layer->op) {
    case PYES_LSTM:
        lstm_cell(lanes, gates, state, h);
        break;
    case PYES_GRU:
        gru_cell(lanes, gates, h);
        break;
    default:
        activate(layer->activation, lanes, gates);
        memcpy(h, gates, (size_t)lanes * sizeof *h);
        break;
    }
    return h;
}

const float *PYES_WIDE(pyes_policy_forward)(int64_t n, const struct pyes_layer *layers, const float *packed,
                                            const float *input, float *state, float *scratch)
{
    const float *from = input;
    float *to = scratch, *spare = scratch + pyes_policy_width(n, layers);
    for (int64_t k = 0; k < n; k++) {
        const struct pyes_layer *layer = &layers[k];
        const float *own = packed + layer->packed_offset;
        if (layer->op != PYES_LINEAR) { /* its outputs are its state: `to` is free again */
            from = recurrent(layer, own, from, state + layer->state_offset, to);
            continue;
        }
        linear(layer->inputs, layer->lanes, own, from, to);
        activate(layer->activation, layer->lanes, to);
        float *used = to;
        to = spare;
        spare = used;
        from = used;
    }
    return from;
}
