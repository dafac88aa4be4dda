/* The wide kernels by level: a constant table of functions, indexed by an argument.
 *
 * Owns the choice of the build; ifunc would do it unseen, but musl, macOS and MSVC have none. */
#include "wide.h"

struct kernels {
    void (*fill_noise)(int64_t, enum pyes_dtype, uint64_t, uint64_t, void *);
    void (*perturb)(int64_t, enum pyes_dtype, const float *, const void *, const float *, float, float *);
    void (*weighted_sum)(int64_t, int64_t, enum pyes_dtype, const void *, const int64_t *, const float *, float *);
    void (*add_slices)(int64_t, int64_t, enum pyes_dtype, const void *, const int64_t *, const float *, float *);
    void (*weighted_moments)(int64_t, int64_t, enum pyes_dtype, const void *, const int64_t *, const float *,
                             const float *, float *, float *);
    void (*deviation_step)(int64_t, const float *, double, double, float *);
    void (*snes_step)(int64_t, const float *, const float *, double, double, float *, float *);
    void (*adam_step)(int64_t, const float *, int64_t, double, double, double, double, double, float *, float *,
                      float *);
    void (*sgd_step)(int64_t, const float *, double, double, double, float *, float *);
    void (*clipup_step)(int64_t, const float *, double, double, double, double, float *, float *);
    const float *(*policy_forward)(int64_t, const struct pyes_layer *, const float *, const float *, float *, float *);
    void (*policy_normalize)(int64_t, const struct pyes_layer *, const float *, int64_t, enum pyes_value, const void *,
                             float *, float *, float *, double *);
};

#define PYES_KERNELS(suffix)                                                                                           \
    {                                                                                                                  \
        pyes_fill_noise_##suffix, pyes_perturb_##suffix, pyes_weighted_sum_##suffix, pyes_add_slices_##suffix,         \
        pyes_weighted_moments_##suffix, pyes_deviation_step_##suffix, pyes_snes_step_##suffix,                         \
        pyes_adam_step_##suffix, pyes_sgd_step_##suffix, pyes_clipup_step_##suffix,                                    \
        pyes_policy_forward_##suffix, pyes_policy_normalize_##suffix                                                   \
    }

static const struct kernels LEVELS[PYES_LEVELS] = {
    PYES_KERNELS(baseline),
#if PYES_X86_LEVELS
    PYES_KERNELS(avx2),
    PYES_KERNELS(avx512),
#endif
};

const char *pyes_level_name(enum pyes_level level)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    return names[level];
}

int pyes_level_available(enum pyes_level level)
{
    if (level == PYES_BASELINE)
        return 1;
#if PYES_X86_LEVELS
    __builtin_cpu_init();
    if (level == PYES_AVX2)
        return __builtin_cpu_supports("avx2") != 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return 0;
#endif
}

void pyes_fill_noise(enum pyes_level level, int64_t n, enum pyes_dtype dtype, uint64_t seed, uint64_t start, void *out)
{
    LEVELS[level].fill_noise(n, dtype, seed, start, out);
}

void pyes_perturb(enum pyes_level level, int64_t dim, enum pyes_dtype dtype, const float *theta, const void *slice,
                  const float *deviation, float scale, float *out)
{
    LEVELS[level].perturb(dim, dtype, theta, slice, deviation, scale, out);
}

void pyes_weighted_sum(enum pyes_level level, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                       const int64_t *offsets, const float *weights, float *out)
{
    LEVELS[level].weighted_sum(n, dim, dtype, table, offsets, weights, out);
}

void pyes_add_slices(enum pyes_level level, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                     const int64_t *offsets, const float *weights, float *out)
{
    LEVELS[level].add_slices(n, dim, dtype, table, offsets, weights, out);
}

void pyes_weighted_moments(enum pyes_level level, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                           const int64_t *offsets, const float *weights, const float *spread_weights, float *mean,
                           float *spread)
{
    LEVELS[level].weighted_moments(n, dim, dtype, table, offsets, weights, spread_weights, mean, spread);
}

void pyes_deviation_step(enum pyes_level level, int64_t dim, const float *gradient, double learning_rate,
                         double max_change, float *deviation)
{
    LEVELS[level].deviation_step(dim, gradient, learning_rate, max_change, deviation);
}

void pyes_snes_step(enum pyes_level level, int64_t dim, const float *gradient, const float *deviation_gradient,
                    double learning_rate, double deviation_rate, float *theta, float *deviation)
{
    LEVELS[level].snes_step(dim, gradient, deviation_gradient, learning_rate, deviation_rate, theta, deviation);
}

void pyes_adam_step(enum pyes_level level, int64_t dim, const float *gradient, int64_t step, double learning_rate,
                    double beta1, double beta2, double epsilon, double weight_decay, float *theta, float *m, float *v)
{
    LEVELS[level].adam_step(dim, gradient, step, learning_rate, beta1, beta2, epsilon, weight_decay, theta, m, v);
}

void pyes_sgd_step(enum pyes_level level, int64_t dim, const float *gradient, double learning_rate, double momentum,
                   double weight_decay, float *theta, float *velocity)
{
    LEVELS[level].sgd_step(dim, gradient, learning_rate, momentum, weight_decay, theta, velocity);
}

void pyes_clipup_step(enum pyes_level level, int64_t dim, const float *gradient, double learning_rate, double momentum,
                      double max_speed, double weight_decay, float *theta, float *velocity)
{
    LEVELS[level].clipup_step(dim, gradient, learning_rate, momentum, max_speed, weight_decay, theta, velocity);
}

const float *pyes_policy_forward(enum pyes_level level, int64_t n, const struct pyes_layer *layers,
                                 const float *packed, const float *input, float *state, float *scratch)
{
    return LEVELS[level].policy_forward(n, layers, packed, input, state, scratch);
}

void pyes_policy_normalize(enum pyes_level level, int64_t n, const struct pyes_layer *layers, const float *theta,
                           int64_t count, enum pyes_value type, const void *batch, float *packed, float *scratch,
                           float *values, double *sums)
{
    LEVELS[level].policy_normalize(n, layers, theta, count, type, batch, packed, scratch, values, sums);
}
