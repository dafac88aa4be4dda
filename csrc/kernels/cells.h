/* The elementwise part of recurrent cells; for the equations see pyes_policy_forward in the header.
 *
 * Must not know where the gates come from. Gates are blocks of `lanes`; padded lanes stay finite and count for nothing.
 * Internal to the kernels. */
#ifndef PYES_CELLS_H
#define PYES_CELLS_H

#include "activation.h"

PYES_INLINE void gru_cell(int64_t lanes, const float *restrict gates, float *restrict h)
{
    PYES_INDEPENDENT
    for (int64_t j = 0; j < lanes; j++) {
        const float reset = logistic(gates[j]);
        const float update = logistic(gates[lanes + j]);
        const float fresh = hyperbolic_tangent(gates[2 * lanes + j] + reset * gates[3 * lanes + j]);
        h[j] = (1.0f - update) * fresh + update * h[j];
    }
}

PYES_INLINE void lstm_cell(int64_t lanes, const float *restrict gates, float *restrict c, float *restrict h)
{
    PYES_INDEPENDENT
    for (int64_t j = 0; j < lanes; j++) {
        const float input = logistic(gates[j]);
        const float forget = logistic(gates[lanes + j]);
        const float fresh = hyperbolic_tangent(gates[2 * lanes + j]);
        const float output = logistic(gates[3 * lanes + j]);
        c[j] = forget * c[j] + input * fresh;
        h[j] = output * hyperbolic_tangent(c[j]);
    }
}

#endif
