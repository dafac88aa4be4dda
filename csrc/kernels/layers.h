/* One layer of a compiled network, one timestep.
 *
 * Every output adds its inputs in order, so results do not depend on the vector width: lane o of packed weights belongs
 * to output o, and lanes are padded to a multiple of PYES_LANES. Between two convolutions values have channels last;
 * all other layers have them as torch does, channels first. Internal to the kernels. */
#ifndef PYES_LAYERS_H
#define PYES_LAYERS_H

#include "activation.h"
#include "cells.h"
#include "conv.h"
#include "lanes.h"

PYES_INLINE void activate_typed(enum pyes_activation activation, int64_t lanes, float *values)
{
    PYES_INDEPENDENT
    for (int64_t j = 0; j < lanes; j++)
        values[j] = activated(activation, values[j]);
}

/* One loop per activation, so that none contains the branches of the others. */
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
        memcpy(&sum[v], bias + v * VECTOR, sizeof(floats));
    for (int64_t i = 0; i < inputs; i++) {
        PYES_UNROLL(4)
        for (int64_t v = 0; v < vectors; v++) {
            floats weight;
            memcpy(&weight, weights + i * lanes + v * VECTOR, sizeof(floats));
            sum[v] += input[i] * weight;
        }
    }
    PYES_UNROLL(4)
    for (int64_t v = 0; v < vectors; v++)
        memcpy(out + v * VECTOR, &sum[v], sizeof(floats));
}

/* y[o] = bias[o]; y[o] += x[i] * W[i][o] in the order of i. Packed: bias (width), then W (inputs, width). */
PYES_INLINE void linear(int64_t inputs, int64_t width, const float *packed, const float *input, float *out)
{
    int64_t o = 0;
    for (; o + 4 * VECTOR <= width; o += 4 * VECTOR)
        linear_block(4, inputs, width, packed + o, packed + width + o, input, out + o);
    for (; o < width; o += VECTOR)
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

/* The buffers that layers alternately write; `to` is free. */
struct buffers {
    float *to, *spare;
};

PYES_INLINE const float *taken(struct buffers *buffers)
{
    float *used = buffers->to;
    buffers->to = buffers->spare;
    buffers->spare = used;
    return used;
}

/* Values (filters, pixels) of a convolution's (pixels, filters). */
PYES_INLINE const float *channels_first(const struct pyes_layer *convolved, const float *from, struct buffers *buffers)
{
    transpose(convolved->pixels, convolved->filters, from, buffers->to);
    return taken(buffers);
}

/* Applies layer k without its activation to `from`, the previous layer's outputs; for layers without states.
 * Convolutions give channels last. */
PYES_INLINE const float *mapped(const struct pyes_layer *layers, int64_t k, const float *packed, const float *from,
                                struct buffers *buffers)
{
    const struct pyes_layer *layer = &layers[k];
    const int last = k > 0 && layers[k - 1].op == PYES_CONV; /* channels last */
    if (last && layer->op != PYES_CONV)
        from = channels_first(&layers[k - 1], from, buffers);
    if (!last && layer->op == PYES_CONV) {
        transpose(layer->channels, layer->height * layer->width, from, buffers->to);
        from = taken(buffers);
    }
    if (layer->op == PYES_SCALE) {
        const float factor = 1.0f / (float)layer->divisor;
        for (int64_t i = 0; i < layer->outputs; i++)
            buffers->to[i] = from[i] * factor;
    } else if (layer->op == PYES_CONV) {
        convolution(layer, packed + layer->packed_offset, from, buffers->to);
    } else {
        linear(layer->inputs, layer->lanes, packed + layer->packed_offset, from, buffers->to);
    }
    return taken(buffers);
}

/* One timestep of layer k, as `mapped`, with its activation or its states. */
PYES_INLINE const float *run_layer(const struct pyes_layer *layers, int64_t k, const float *packed, const float *from,
                                   float *state, struct buffers *buffers)
{
    const struct pyes_layer *layer = &layers[k];
    if (remembers(layer->op)) {
        if (k > 0 && layers[k - 1].op == PYES_CONV)
            from = channels_first(&layers[k - 1], from, buffers);
        /* Its outputs are its state: `to` stays free. */
        return recurrent(layer, packed + layer->packed_offset, from, state + layer->state_offset, buffers->to);
    }
    from = mapped(layers, k, packed, from, buffers);
    activate(layer->activation, layer->op == PYES_LINEAR ? layer->lanes : layer->outputs, buffers->spare);
    return from;
}

#endif
