/* Convolutions of one observation, channels last: every value of a window lies beside the next, row by row.
 *
 * Owns the order of additions: an output adds its window row by row, pixel by pixel, channel by channel, so neither the
 * width of a vector nor the number of pixels in flight shows. Must not know activations or where weights come from.
 * Internal to the kernels. */
#ifndef PYES_CONV_H
#define PYES_CONV_H

#include "lanes.h"

enum {
    PANEL = PYES_LANES / VECTOR, /* vectors in PYES_LANES outputs */
#if PYES_VECTOR_BYTES == 64
    PIXELS = 10, /* as many as possible with all sums and addresses in registers */
#elif PYES_VECTOR_BYTES == 32
    PIXELS = 6,
#else
    PIXELS = 2,
#endif
};

/* PYES_LANES filters at PIXELS places at once: each weight is read once for all of them. Adds `rows` runs of `length`
 * values, `pitch` apart; leaves the sums (PIXELS, PYES_LANES). */
PYES_INLINE void conv_block(int64_t rows, int64_t length, int64_t pitch, const float *restrict bias,
                            const float *restrict weights, const float *const *windows, float *restrict out)
{
    floats sum[PIXELS][PANEL];
    const float *window[PIXELS];
    PYES_UNROLL(16)
    for (int p = 0; p < PIXELS; p++) {
        window[p] = windows[p];
        PYES_UNROLL(16)
        for (int v = 0; v < PANEL; v++)
            memcpy(&sum[p][v], bias + v * VECTOR, sizeof(floats));
    }
    for (int64_t y = 0; y < rows; y++)
        for (int64_t j = 0; j < length; j++) {
            floats weight[PANEL];
            PYES_UNROLL(16)
            for (int v = 0; v < PANEL; v++)
                memcpy(&weight[v], weights + v * VECTOR, sizeof(floats));
            weights += PYES_LANES;
            PYES_UNROLL(16)
            for (int p = 0; p < PIXELS; p++) {
                const float x = window[p][y * pitch + j];
                PYES_UNROLL(16)
                for (int v = 0; v < PANEL; v++)
                    sum[p][v] += x * weight[v];
            }
        }
    PYES_UNROLL(16)
    for (int p = 0; p < PIXELS; p++)
        PYES_UNROLL(16)
        for (int v = 0; v < PANEL; v++)
            memcpy(out + p * PYES_LANES + v * VECTOR, &sum[p][v], sizeof(floats));
}

/* All filters of a panel at all positions; `count` of its lanes are filters. */
PYES_INLINE void conv_panel(const struct pyes_layer *layer, int64_t count, const float *bias, const float *weights,
                            const float *input, float *out)
{
    const int64_t across = (layer->width - layer->kernel) / layer->stride + 1;
    const int64_t pitch = layer->width * layer->channels, step = layer->stride * layer->channels;
    for (int64_t first = 0; first < layer->pixels; first += PIXELS) {
        const float *windows[PIXELS];
        float sums[PIXELS * PYES_LANES] PYES_ALIGNED;
        for (int64_t p = 0; p < PIXELS; p++) { /* beyond the last place: the last one again */
            const int64_t pixel = first + p < layer->pixels ? first + p : layer->pixels - 1;
            windows[p] = input + pixel / across * layer->stride * pitch + pixel % across * step;
        }
        conv_block(layer->kernel, layer->kernel * layer->channels, pitch, bias, weights, windows, sums);
        const int64_t left = layer->pixels - first, whole = left < PIXELS ? left : PIXELS;
        for (int64_t p = 0; p < whole; p++)
            memcpy(out + (first + p) * layer->filters, sums + p * PYES_LANES, (size_t)count * sizeof *out);
    }
}

/* From (height, width, channels) to (pixels, filters). Packed: bias (lanes), then a panel of PYES_LANES filters after
 * the other, each (kernel, kernel, channels, PYES_LANES). */
PYES_INLINE void convolution(const struct pyes_layer *layer, const float *packed, const float *input, float *out)
{
    const int64_t taps = layer->kernel * layer->kernel * layer->channels;
    const float *weights = packed + layer->lanes;
    int64_t o = 0;
    for (; o + PYES_LANES <= layer->filters; o += PYES_LANES)
        conv_panel(layer, PYES_LANES, packed + o, weights + o * taps, input, out + o);
    if (o < layer->filters)
        conv_panel(layer, layer->filters - o, packed + o, weights + o * taps, input, out + o);
}

/* (rows, columns) to (columns, rows). */
PYES_INLINE void transpose(int64_t rows, int64_t columns, const float *restrict input, float *restrict out)
{
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            out[j * rows + i] = input[i * columns + j];
}

#endif
