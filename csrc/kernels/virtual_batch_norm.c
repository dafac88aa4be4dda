/* Virtual batch normalisation: statistics over a reference batch, folded into the packed weights.
 *
 * Owns the order in which statistics are summed. A forward pass with folded weights costs no more than one without
 * normalisation. Must not know where the batch comes from. */
#include "layers.h"

/* Observation b of the batch as float, in a buffer. */
PYES_INLINE const float *observation(int64_t size, int64_t b, enum pyes_value type, const void *batch,
                                     struct buffers *buffers)
{
    if (type == PYES_BYTE)
        read_values(size, PYES_BYTE, (const uint8_t *)batch + b * size, buffers->to);
    else
        read_values(size, PYES_FLOAT, (const float *)batch + b * size, buffers->to);
    return taken(buffers);
}

/* sums (2, filters): adds values (pixels, filters) and their squares, pixel by pixel. */
PYES_INLINE void add_up(int64_t pixels, int64_t filters, const float *values, double *sums)
{
    for (int64_t p = 0; p < pixels; p++) {
        PYES_INDEPENDENT
        for (int64_t o = 0; o < filters; o++) {
            const double value = values[p * filters + o];
            sums[o] += value;
            sums[filters + o] += value * value;
        }
    }
}

/* Replaces sums by gain and shift: normalised values are values * sums[0] + sums[1], each rounded to float. */
PYES_INLINE void gains(const struct pyes_layer *layer, int64_t samples, const float *theta, double *sums)
{
    for (int64_t o = 0; o < layer->filters; o++) {
        const double mean = sums[o] / (double)samples;
        const double spread = sums[layer->filters + o] / (double)samples - mean * mean;
        const double variance = spread < 0.0 ? 0.0 : spread; /* rounding may leave it a little below; NaN stays NaN */
        const double gain = (double)theta[layer->scale_offset + o] / sqrt(variance + PYES_NORMALIZE_EPSILON);
        const double shift = layer->bias_offset < 0 ? 0.0 : (double)theta[layer->bias_offset + o];
        sums[o] = gain;
        sums[layer->filters + o] = shift - mean * gain;
    }
}

PYES_INLINE void fold(const struct pyes_layer *layer, const double *sums, float *packed)
{
    const int64_t taps = layer->op == PYES_CONV ? layer->kernel * layer->kernel * layer->channels : layer->inputs;
    const int64_t panel = layer->op == PYES_CONV ? PYES_LANES : layer->lanes;
    float *weights = packed + layer->lanes;
    for (int64_t o = 0; o < layer->filters; o++)
        packed[o] = (float)sums[layer->filters + o];
    for (int64_t first = 0; first < layer->filters; first += panel) {
        const int64_t left = layer->filters - first, count = left < panel ? left : panel;
        for (int64_t t = 0; t < taps; t++)
            for (int64_t o = 0; o < count; o++)
                weights[first * taps + t * panel + o] *= (float)sums[first + o];
    }
}

PYES_INLINE void normalize(const struct pyes_layer *layer, const double *sums, float *values)
{
    for (int64_t p = 0; p < layer->pixels; p++)
        for (int64_t o = 0; o < layer->filters; o++) {
            float *value = &values[p * layer->filters + o];
            *value = *value * (float)sums[o] + (float)sums[layer->filters + o];
        }
    activate(layer->activation, layer->outputs, values);
}

void PYES_WIDE(pyes_policy_batch_norm)(int64_t n, const struct pyes_layer *layers, const float *theta, int64_t count,
                                       enum pyes_value type, const void *batch, float *packed, float *scratch,
                                       float *values, double *sums)
{
    const int64_t stride = pyes_policy_batch_norm_width(n, layers);
    /* `values` holds the outputs of layer first - 1, the last normalised layer so far, for the whole batch. */
    for (int64_t k = 0, first = 0; k < n; k++) {
        const struct pyes_layer *layer = &layers[k];
        if (layer->scale_offset < 0)
            continue;
        for (int64_t o = 0; o < layer->filters; o++) {
            packed[layer->packed_offset + o] = 0.0f; /* the bias comes after the normalisation */
            sums[o] = sums[layer->filters + o] = 0.0;
        }
        for (int64_t b = 0; b < count; b++) {
            struct buffers buffers = {scratch, scratch + layers[0].widest};
            const float *from = values + b * stride;
            if (first == 0)
                from = observation(layers[0].inputs, b, type, batch, &buffers);
            for (int64_t j = first; j < k; j++)
                from = run_layer(layers, j, packed, from, NULL, &buffers);
            from = mapped(layers, k, packed, from, &buffers);
            add_up(layer->pixels, layer->filters, from, sums);
            memcpy(values + b * stride, from, (size_t)layer->outputs * sizeof *values);
        }
        gains(layer, count * layer->pixels, theta, sums);
        fold(layer, sums, packed + layer->packed_offset);
        for (int64_t b = 0; b < count; b++)
            normalize(layer, sums, values + b * stride);
        first = k + 1;
    }
}
