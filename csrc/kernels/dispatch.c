/* The public functions, which call the kernels.
 *
 * Owns the standard arithmetic of a call (float_control.h), and the choice of the build by level: a constant table of
 * functions, indexed by an argument, since musl, macOS and MSVC have no ifunc. The kernels are in other files, so that
 * no compiler moves arithmetic out of the guard. */
#include "float_control.h"
#include "unguarded.h"
#include "wide.h"

struct kernels {
    void (*fill_noise)(int64_t, enum pyes_dtype, uint64_t, uint64_t, void *);
    void (*perturb)(int64_t, enum pyes_dtype, const float *, const void *, const float *, double, float *);
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
    void (*policy_batch_norm)(int64_t, const struct pyes_layer *, const float *, int64_t, enum pyes_value, const void *,
                             float *, float *, float *, double *);
};

#define PYES_KERNELS(suffix)                                                                                           \
    {                                                                                                                  \
        pyes_fill_noise_##suffix, pyes_perturb_##suffix, pyes_weighted_sum_##suffix, pyes_add_slices_##suffix,         \
        pyes_weighted_moments_##suffix, pyes_deviation_step_##suffix, pyes_snes_step_##suffix,                         \
        pyes_adam_step_##suffix, pyes_sgd_step_##suffix, pyes_clipup_step_##suffix,                                    \
        pyes_policy_forward_##suffix, pyes_policy_batch_norm_##suffix                                                  \
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

/* Makes one call in standard arithmetic. */
#define STANDARD(call)                                                                                                 \
    do {                                                                                                               \
        const uint64_t found = standard_arithmetic();                                                                  \
        call;                                                                                                          \
        restore_arithmetic(found);                                                                                     \
    } while (0)

void pyes_fill_noise(enum pyes_level level, int64_t n, enum pyes_dtype dtype, uint64_t seed, uint64_t start, void *out)
{
    STANDARD(LEVELS[level].fill_noise(n, dtype, seed, start, out));
}

void pyes_perturb(enum pyes_level level, int64_t dim, enum pyes_dtype dtype, const float *theta, const void *slice,
                  const float *deviation, double scale, float *out)
{
    STANDARD(LEVELS[level].perturb(dim, dtype, theta, slice, deviation, scale, out));
}

void pyes_weighted_sum(enum pyes_level level, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                       const int64_t *offsets, const float *weights, float *out)
{
    STANDARD(LEVELS[level].weighted_sum(n, dim, dtype, table, offsets, weights, out));
}

void pyes_add_slices(enum pyes_level level, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                     const int64_t *offsets, const float *weights, float *out)
{
    STANDARD(LEVELS[level].add_slices(n, dim, dtype, table, offsets, weights, out));
}

void pyes_weighted_moments(enum pyes_level level, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                           const int64_t *offsets, const float *weights, const float *spread_weights, float *mean,
                           float *spread)
{
    STANDARD(LEVELS[level].weighted_moments(n, dim, dtype, table, offsets, weights, spread_weights, mean, spread));
}

void pyes_deviation_step(enum pyes_level level, int64_t dim, const float *gradient, double learning_rate,
                         double max_change, float *deviation)
{
    STANDARD(LEVELS[level].deviation_step(dim, gradient, learning_rate, max_change, deviation));
}

void pyes_snes_step(enum pyes_level level, int64_t dim, const float *gradient, const float *deviation_gradient,
                    double learning_rate, double deviation_rate, float *theta, float *deviation)
{
    STANDARD(
        LEVELS[level].snes_step(dim, gradient, deviation_gradient, learning_rate, deviation_rate, theta, deviation));
}

void pyes_adam_step(enum pyes_level level, int64_t dim, const float *gradient, int64_t step, double learning_rate,
                    double beta1, double beta2, double epsilon, double weight_decay, float *theta, float *m, float *v)
{
    STANDARD(
        LEVELS[level].adam_step(dim, gradient, step, learning_rate, beta1, beta2, epsilon, weight_decay, theta, m, v));
}

void pyes_sgd_step(enum pyes_level level, int64_t dim, const float *gradient, double learning_rate, double momentum,
                   double weight_decay, float *theta, float *velocity)
{
    STANDARD(LEVELS[level].sgd_step(dim, gradient, learning_rate, momentum, weight_decay, theta, velocity));
}

void pyes_clipup_step(enum pyes_level level, int64_t dim, const float *gradient, double learning_rate, double momentum,
                      double max_speed, double weight_decay, float *theta, float *velocity)
{
    STANDARD(
        LEVELS[level].clipup_step(dim, gradient, learning_rate, momentum, max_speed, weight_decay, theta, velocity));
}

const float *pyes_policy_forward(enum pyes_level level, int64_t n, const struct pyes_layer *layers,
                                 const float *packed, const float *input, float *state, float *scratch)
{
    const float *outputs;
    STANDARD(outputs = LEVELS[level].policy_forward(n, layers, packed, input, state, scratch));
    return outputs;
}

void pyes_policy_batch_norm(enum pyes_level level, int64_t n, const struct pyes_layer *layers, const float *theta,
                            int64_t count, enum pyes_value type, const void *batch, float *packed, float *scratch,
                            float *values, double *sums)
{
    STANDARD(LEVELS[level].policy_batch_norm(n, layers, theta, count, type, batch, packed, scratch, values, sums));
}

void pyes_draw_offsets(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, int64_t bound, int64_t *out)
{
    STANDARD(pyes_draw_offsets_unguarded(n, seed, purpose, generation, bound, out));
}

void pyes_stream_normals(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t member,
                         uint32_t episode, uint64_t first, float *out)
{
    STANDARD(pyes_stream_normals_unguarded(n, seed, purpose, generation, member, episode, first, out));
}

void pyes_centered_ranks(int64_t n, const double *returns, int64_t *workspace, float *out)
{
    STANDARD(pyes_centered_ranks_unguarded(n, returns, workspace, out));
}

void pyes_policy_pack(enum pyes_level level, int64_t n, const struct pyes_layer *layers, const float *theta,
                      const struct pyes_perturbation *perturbation, float *packed)
{
    STANDARD(pyes_policy_pack_unguarded(n, layers, theta, perturbation, LEVELS[level].perturb, packed));
}

void pyes_read_observation(int64_t n, enum pyes_value type, const void *values, float *out)
{
    STANDARD(pyes_read_observation_unguarded(n, type, values, out));
}

void pyes_normalize(int64_t n, const float *observation, const float *mean, const float *inverse_std, float limit,
                    float *out)
{
    STANDARD(pyes_normalize_unguarded(n, observation, mean, inverse_std, limit, out));
}

void pyes_collect(int64_t n, const float *observation, double *sums)
{
    STANDARD(pyes_collect_unguarded(n, observation, sums));
}

int64_t pyes_argmax(int64_t n, const float *outputs)
{
    int64_t best;
    STANDARD(best = pyes_argmax_unguarded(n, outputs));
    return best;
}

void pyes_box_action(int64_t n, enum pyes_action action, int64_t bins, const float *outputs, const float *low,
                     const float *high, float *out)
{
    STANDARD(pyes_box_action_unguarded(n, action, bins, outputs, low, high, out));
}

void pyes_mixed_action(int64_t n, const int64_t *actions, const int64_t *widths, const float *outputs,
                       const float *low, const float *high, float *out)
{
    STANDARD(pyes_mixed_action_unguarded(n, actions, widths, outputs, low, high, out));
}
