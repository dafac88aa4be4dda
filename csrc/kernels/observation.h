/* What happens to one value of an observation before the network reads it. Internal to the kernels. */
#ifndef PYES_OBSERVATION_H
#define PYES_OBSERVATION_H

#include "wide.h"

PYES_INLINE float clip(float x, float low, float high)
{
    const float above = x < low ? low : x; /* comparisons with NaN are false: NaN passes through */
    return above > high ? high : above;
}

PYES_INLINE float normalized(float value, float mean, float inverse_std, float limit)
{
    return clip((value - mean) * inverse_std, -limit, limit);
}

/* To the sum, and to that of the squares. */
PYES_INLINE void add_up(float value, double *sum, double *squares)
{
    const double x = (double)value;
    *sum += x;
    *squares += x * x;
}

#endif
