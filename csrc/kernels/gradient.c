/* Weighted sums of noise slices: the gradient estimates of evolution strategies, for theta and for sigma, and the sum
 * of an individual's mutations.
 *
 * Owns the order of additions: out[j] receives slice 0, 1, 2, ... one rounded product and one rounded sum at a time,
 * for any tile, group or width. Must not know shaping or mirroring. */
#include "wide.h"

enum {
    TILE = 4096, /* parameters: 16 KiB of out stay in the L1 cache while the slices stream past */
    GROUP = 8,   /* slices: out is read and written once for eight of them */
    PAIR = 4,    /* slices of two sums at once, which need twice the registers */
};

PYES_INLINE const void *entry_address(enum pyes_dtype dtype, const void *table, int64_t k)
{
    return (const char *)table + pyes_entry_size(dtype) * k;
}

PYES_INLINE void add_group(enum pyes_dtype dtype, int64_t dim, const void *table, const int64_t *offsets,
                           const float *weights, float *restrict out)
{
    const void *s0 = entry_address(dtype, table, offsets[0]), *s1 = entry_address(dtype, table, offsets[1]);
    const void *s2 = entry_address(dtype, table, offsets[2]), *s3 = entry_address(dtype, table, offsets[3]);
    const void *s4 = entry_address(dtype, table, offsets[4]), *s5 = entry_address(dtype, table, offsets[5]);
    const void *s6 = entry_address(dtype, table, offsets[6]), *s7 = entry_address(dtype, table, offsets[7]);
    const float unit = stored_unit(dtype);
    const float w0 = weights[0] * unit, w1 = weights[1] * unit, w2 = weights[2] * unit, w3 = weights[3] * unit;
    const float w4 = weights[4] * unit, w5 = weights[5] * unit, w6 = weights[6] * unit, w7 = weights[7] * unit;
    PYES_INDEPENDENT
    for (int64_t j = 0; j < dim; j++) {
        float sum = out[j];
        sum += w0 * stored_entry(dtype, s0, j);
        sum += w1 * stored_entry(dtype, s1, j);
        sum += w2 * stored_entry(dtype, s2, j);
        sum += w3 * stored_entry(dtype, s3, j);
        sum += w4 * stored_entry(dtype, s4, j);
        sum += w5 * stored_entry(dtype, s5, j);
        sum += w6 * stored_entry(dtype, s6, j);
        sum += w7 * stored_entry(dtype, s7, j);
        out[j] = sum;
    }
}

PYES_INLINE void add_one(enum pyes_dtype dtype, int64_t dim, const void *table, int64_t offset, float weight,
                         float *restrict out)
{
    const void *slice = entry_address(dtype, table, offset);
    const float scaled = weight * stored_unit(dtype);
    PYES_INDEPENDENT
    for (int64_t j = 0; j < dim; j++)
        out[j] += scaled * stored_entry(dtype, slice, j);
}

PYES_INLINE void add_slices_typed(enum pyes_dtype dtype, int from_zero, int64_t n, int64_t dim, const void *table,
                                  const int64_t *offsets, const float *weights, float *out)
{
    for (int64_t first = 0; first < dim; first += TILE) {
        const int64_t size = dim - first < TILE ? dim - first : TILE;
        const void *shifted = entry_address(dtype, table, first);
        float *tile = out + first;
        if (from_zero)
            for (int64_t j = 0; j < size; j++)
                tile[j] = 0.0f;
        int64_t i = 0;
        for (; i + GROUP <= n; i += GROUP)
            add_group(dtype, size, shifted, offsets + i, weights + i, tile);
        for (; i < n; i++)
            add_one(dtype, size, shifted, offsets[i], weights[i], tile);
    }
}

PYES_INLINE void add_slices(int from_zero, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                            const int64_t *offsets, const float *weights, float *out)
{
    if (dtype == PYES_FLOAT32)
        add_slices_typed(PYES_FLOAT32, from_zero, n, dim, table, offsets, weights, out);
    else if (dtype == PYES_BFLOAT16)
        add_slices_typed(PYES_BFLOAT16, from_zero, n, dim, table, offsets, weights, out);
    else
        add_slices_typed(PYES_INT8, from_zero, n, dim, table, offsets, weights, out);
}

void PYES_WIDE(pyes_weighted_sum)(int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                                  const int64_t *offsets, const float *weights, float *out)
{
    add_slices(1, n, dim, dtype, table, offsets, weights, out);
}

void PYES_WIDE(pyes_add_slices)(int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                                const int64_t *offsets, const float *weights, float *out)
{
    add_slices(0, n, dim, dtype, table, offsets, weights, out);
}

/* One entry of a slice joins both sums. */
PYES_INLINE void add_moments(float entry, float weight, float spread_weight, float *mean, float *spread)
{
    *mean += weight * entry;
    *spread += spread_weight * (entry * entry - 1.0f);
}

PYES_INLINE void add_moments_group(enum pyes_dtype dtype, int64_t dim, const void *table, const int64_t *offsets,
                                   const float *weights, const float *spread_weights, float *restrict mean,
                                   float *restrict spread)
{
    const void *s0 = entry_address(dtype, table, offsets[0]), *s1 = entry_address(dtype, table, offsets[1]);
    const void *s2 = entry_address(dtype, table, offsets[2]), *s3 = entry_address(dtype, table, offsets[3]);
    const float w0 = weights[0], w1 = weights[1], w2 = weights[2], w3 = weights[3];
    const float v0 = spread_weights[0], v1 = spread_weights[1], v2 = spread_weights[2], v3 = spread_weights[3];
    const float unit = stored_unit(dtype);
    PYES_INDEPENDENT
    for (int64_t j = 0; j < dim; j++) {
        float sum = mean[j], square = spread[j];
        add_moments(unit * stored_entry(dtype, s0, j), w0, v0, &sum, &square);
        add_moments(unit * stored_entry(dtype, s1, j), w1, v1, &sum, &square);
        add_moments(unit * stored_entry(dtype, s2, j), w2, v2, &sum, &square);
        add_moments(unit * stored_entry(dtype, s3, j), w3, v3, &sum, &square);
        mean[j] = sum;
        spread[j] = square;
    }
}

PYES_INLINE void add_moments_one(enum pyes_dtype dtype, int64_t dim, const void *table, int64_t offset, float weight,
                                 float spread_weight, float *restrict mean, float *restrict spread)
{
    const void *slice = entry_address(dtype, table, offset);
    const float unit = stored_unit(dtype);
    PYES_INDEPENDENT
    for (int64_t j = 0; j < dim; j++)
        add_moments(unit * stored_entry(dtype, slice, j), weight, spread_weight, &mean[j], &spread[j]);
}

PYES_INLINE void weighted_moments_typed(enum pyes_dtype dtype, int64_t n, int64_t dim, const void *table,
                                        const int64_t *offsets, const float *weights, const float *spread_weights,
                                        float *mean, float *spread)
{
    for (int64_t first = 0; first < dim; first += TILE) {
        const int64_t size = dim - first < TILE ? dim - first : TILE;
        const void *shifted = entry_address(dtype, table, first);
        for (int64_t j = first; j < first + size; j++)
            mean[j] = spread[j] = 0.0f;
        int64_t i = 0;
        for (; i + PAIR <= n; i += PAIR)
            add_moments_group(dtype, size, shifted, offsets + i, weights + i, spread_weights + i, mean + first,
                              spread + first);
        for (; i < n; i++)
            add_moments_one(dtype, size, shifted, offsets[i], weights[i], spread_weights[i], mean + first,
                            spread + first);
    }
}

void PYES_WIDE(pyes_weighted_moments)(int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                                      const int64_t *offsets, const float *weights, const float *spread_weights,
                                      float *mean, float *spread)
{
    if (dtype == PYES_FLOAT32)
        weighted_moments_typed(PYES_FLOAT32, n, dim, table, offsets, weights, spread_weights, mean, spread);
    else if (dtype == PYES_BFLOAT16)
        weighted_moments_typed(PYES_BFLOAT16, n, dim, table, offsets, weights, spread_weights, mean, spread);
    else
        weighted_moments_typed(PYES_INT8, n, dim, table, offsets, weights, spread_weights, mean, spread);
}
