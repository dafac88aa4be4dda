/* Activation functions from + - * / and bit operations on float32: no libm decides an action.
 *
 * Owns exp and tanh; every function agrees with torch within 1e-6 (relative, where the value exceeds 1);
 * silu above -1e32.
 * NaN stays NaN. Internal to the kernels. */
#ifndef PYES_ACTIVATION_H
#define PYES_ACTIVATION_H

#include "wide.h"

PYES_INLINE float absolute(float x)
{
    return float_of_bits(bits_of_float(x) & 0x7FFFFFFFu);
}

/* e^x, relative error below 2.5e-7; x is held in [-87, 88]. NaN stays NaN. */
PYES_INLINE float exponential(float x)
{
    const float low = x < -87.0f ? -87.0f : x;
    const float bounded = low > 88.0f ? 88.0f : low;
    const float shifted = bounded * 1.44269504f + 12582912.0f; /* the low bits now hold round(x / ln 2) */
    const float k = shifted - 12582912.0f;
    const float r = (bounded - k * 0.693359375f) + k * 2.12194440e-4f; /* x - k ln 2, with ln 2 in two parts */
    float series = 1.0f / 720.0f;                                      /* Taylor: |r| <= 0.35, next term 1.2e-7 */
    series = series * r + 1.0f / 120.0f;
    series = series * r + 1.0f / 24.0f;
    series = series * r + 1.0f / 6.0f;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    return series * float_of_bits((bits_of_float(shifted) - 0x4B400000u + 127u) << 23);
}

/* Odd by construction: (1 - e) / (1 + e) with e = exp(-2 |x|), then the sign of x. */
PYES_INLINE float hyperbolic_tangent(float x)
{
    const uint32_t sign = bits_of_float(x) & 0x80000000u;
    const float e = exponential(-2.0f * absolute(x));
    return float_of_bits(bits_of_float((1.0f - e) / (1.0f + e)) | sign);
}

PYES_INLINE float logistic(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

PYES_INLINE float activated(enum pyes_activation activation, float x)
{
    switch (activation) {
    case PYES_TANH:
        return hyperbolic_tangent(x);
    case PYES_RELU:
        return x < 0.0f ? 0.0f : x;
    case PYES_SIGMOID:
        return logistic(x);
    case PYES_ELU:
        return x > 0.0f ? x : exponential(x) - 1.0f;
    case PYES_LEAKY_RELU:
        return x < 0.0f ? 0.01f * x : x;
    case PYES_SILU:
        return x * logistic(x);
    case PYES_GELU: /* Hendrycks & Gimpel 2016, the tanh form */
        return 0.5f * x * (1.0f + hyperbolic_tangent(0.797884561f * (x + 0.044715f * x * x * x)));
    case PYES_SOFTSIGN:
        return x / (1.0f + absolute(x));
    default:
        return x;
    }
}

#endif
