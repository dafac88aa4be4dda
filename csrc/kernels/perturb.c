/* Perturbation of theta by one slice of the noise table. Must not know where the slice came from. */
#include "wide.h"

PYES_INLINE void perturb_typed(enum pyes_dtype dtype, int64_t dim, const float *theta, const void *slice,
                               const float *deviation, double step, float *out)
{
    const float scale = (float)step * stored_unit(dtype);
    if (deviation) {
        PYES_INDEPENDENT
        for (int64_t j = 0; j < dim; j++)
            out[j] = theta[j] + scale * deviation[j] * stored_entry(dtype, slice, j);
    } else {
        PYES_INDEPENDENT
        for (int64_t j = 0; j < dim; j++)
            out[j] = theta[j] + scale * stored_entry(dtype, slice, j);
    }
}

void PYES_WIDE(pyes_perturb)(int64_t dim, enum pyes_dtype dtype, const float *theta, const void *slice,
                             const float *deviation, double scale, float *out)
{
    /* Constant dtypes, so that each call is compiled to a separate loop. */
    if (dtype == PYES_FLOAT32)
        perturb_typed(PYES_FLOAT32, dim, theta, slice, deviation, scale, out);
    else if (dtype == PYES_BFLOAT16)
        perturb_typed(PYES_BFLOAT16, dim, theta, slice, deviation, scale, out);
    else
        perturb_typed(PYES_INT8, dim, theta, slice, deviation, scale, out);
}
