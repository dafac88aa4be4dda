/* Kernels that are compiled once. The public functions of the same names (dispatch.c) set standard arithmetic and call
 * them. Contracts: pyes_kernels.h. Internal to the kernels. */
#ifndef PYES_UNGUARDED_H
#define PYES_UNGUARDED_H

#include "../pyes_kernels.h"

void pyes_draw_offsets_unguarded(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, int64_t bound,
                                 int64_t *out);
void pyes_stream_normals_unguarded(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t member,
                                   uint32_t episode, uint64_t first, float *out);
void pyes_centered_ranks_unguarded(int64_t n, const double *returns, int64_t *workspace, float *out);
/* @param perturb    the pyes_perturb of a level */
void pyes_policy_pack_unguarded(int64_t n, const struct pyes_layer *layers, const float *theta,
                                const struct pyes_perturbation *perturbation,
                                void (*perturb)(int64_t, enum pyes_dtype, const float *, const void *, const float *,
                                                double, float *),
                                float *packed);
void pyes_read_observation_unguarded(int64_t n, enum pyes_value type, const void *values, float *out);
void pyes_normalize_unguarded(int64_t n, const float *observation, const float *mean, const float *inverse_std,
                              float limit, float *out);
void pyes_collect_unguarded(int64_t n, const float *observation, double *sums);
int64_t pyes_argmax_unguarded(int64_t n, const float *outputs);
void pyes_box_action_unguarded(int64_t n, enum pyes_action action, int64_t bins, const float *outputs,
                               const float *low, const float *high, float *out);
void pyes_mixed_action_unguarded(int64_t n, const int64_t *actions, const int64_t *widths, const float *outputs,
                                 const float *low, const float *high, float *out);

#endif
