/* Shared by the wide kernels: the name suffix of a level, inlining, bit casts, the types of table entries.
 *
 * A wide kernel is written once, in plain C: deviation.c, gradient.c, noise.c, optimizers.c, perturb.c, policy.c,
 * virtual_batch_norm.c.
 * Compiled by itself such a file gives the baseline level; avx2.c and avx512.c include it again under another suffix
 * and target. All levels run the same operations in the same order, so they give equal bits.
 * Internal to the kernels. */
#ifndef PYES_WIDE_H
#define PYES_WIDE_H

#include "../pyes_kernels.h"

/* All system headers are included here, before any target is set. */
#include <float.h>
#include <math.h> /* sqrt and sqrtf, which IEEE 754 rounds correctly; nothing else */
#include <stddef.h>
#include <string.h>
#if PYES_X86_LEVELS
#include <immintrin.h>
#endif

#ifdef _MSC_VER
#define PYES_INLINE static __forceinline
#else
#define PYES_INLINE static inline __attribute__((always_inline))
#endif

/* Tells the vectoriser that iterations of a loop are independent. */
#if defined(__clang__)
#define PYES_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define PYES_INDEPENDENT _Pragma("GCC ivdep")
#elif defined(_MSC_VER)
#define PYES_INDEPENDENT __pragma(loop(ivdep))
#else
#define PYES_INDEPENDENT
#endif

#if defined(__GNUC__)
#define PYES_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define PYES_UNROLL(times) PYES_PRAGMA(unroll times)
#else
#define PYES_UNROLL(times) PYES_PRAGMA(GCC unroll times)
#endif
#define PYES_ALIGNED __attribute__((aligned(64)))
#else
#define PYES_UNROLL(times)
#define PYES_ALIGNED
#endif

#define PYES_JOIN_(name, suffix) name##_##suffix
#define PYES_JOIN(name, suffix) PYES_JOIN_(name, suffix)
#define PYES_WIDE(name) PYES_JOIN(name, PYES_SUFFIX)

/* One prototype list for every level; dispatch.c builds its table from the same names. */
#define PYES_DECLARE_WIDE(suffix)                                                                                      \
    void pyes_fill_noise_##suffix(int64_t n, enum pyes_dtype dtype, uint64_t seed, uint64_t start, void *out);         \
    void pyes_perturb_##suffix(int64_t dim, enum pyes_dtype dtype, const float *theta, const void *slice,              \
                               const float *deviation, double scale, float *out);                                      \
    void pyes_weighted_sum_##suffix(int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,                  \
                                    const int64_t *offsets, const float *weights, float *out);                         \
    void pyes_add_slices_##suffix(int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,                    \
                                  const int64_t *offsets, const float *weights, float *out);                           \
    void pyes_weighted_moments_##suffix(int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,              \
                                        const int64_t *offsets, const float *weights, const float *spread_weights,     \
                                        float *mean, float *spread);                                                   \
    void pyes_deviation_step_##suffix(int64_t dim, const float *gradient, double learning_rate, double max_change,     \
                                      float *deviation);                                                               \
    void pyes_snes_step_##suffix(int64_t dim, const float *gradient, const float *deviation_gradient,                  \
                                 double learning_rate, double deviation_rate, float *theta, float *deviation);         \
    void pyes_adam_step_##suffix(int64_t dim, const float *gradient, int64_t step, double learning_rate, double beta1, \
                                 double beta2, double epsilon, double weight_decay, float *theta, float *m, float *v); \
    void pyes_sgd_step_##suffix(int64_t dim, const float *gradient, double learning_rate, double momentum,             \
                                double weight_decay, float *theta, float *velocity);                                   \
    void pyes_clipup_step_##suffix(int64_t dim, const float *gradient, double learning_rate, double momentum,          \
                                   double max_speed, double weight_decay, float *theta, float *velocity);              \
    const float *pyes_policy_forward_##suffix(int64_t n, const struct pyes_layer *layers, const float *packed,         \
                                              const float *input, float *state, float *scratch);                       \
    void pyes_policy_batch_norm_##suffix(int64_t n, const struct pyes_layer *layers, const float *theta, int64_t count,\
                                         enum pyes_value type, const void *batch, float *packed, float *scratch,       \
                                         float *values, double *sums);

PYES_DECLARE_WIDE(baseline)
PYES_DECLARE_WIDE(avx2)
PYES_DECLARE_WIDE(avx512)

/* Whether a layer is recurrent. */
PYES_INLINE int remembers(enum pyes_op op)
{
    return op == PYES_RNN || op == PYES_GRU || op == PYES_LSTM;
}

PYES_INLINE uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

PYES_INLINE float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* n values of any type as float, rounded once. */
PYES_INLINE void read_values(int64_t n, enum pyes_value type, const void *values, float *restrict out)
{
    if (type == PYES_FLOAT)
        memcpy(out, values, (size_t)n * sizeof *out);
    else if (type == PYES_DOUBLE)
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)((const double *)values)[i];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)((const uint8_t *)values)[i];
}

/* Entry k of a table as it is stored: for int8 in units of 1/32, which the caller folds into its scale. */
PYES_INLINE float stored_entry(enum pyes_dtype dtype, const void *table, int64_t k)
{
    if (dtype == PYES_FLOAT32)
        return ((const float *)table)[k];
    if (dtype == PYES_BFLOAT16)
        return float_of_bits((uint32_t)((const uint16_t *)table)[k] << 16);
    return (float)((const int8_t *)table)[k];
}

/* Factor that turns stored entries into normals; a power of two, so that folding it into a weight is exact. */
PYES_INLINE float stored_unit(enum pyes_dtype dtype)
{
    return dtype == PYES_INT8 ? 0.03125f : 1.0f;
}

#endif

/* Outside the guard: avx2.c and avx512.c set the suffix before they include the bodies. */
#ifndef PYES_SUFFIX
#define PYES_SUFFIX baseline
#endif
