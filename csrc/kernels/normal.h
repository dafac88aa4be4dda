/* One 32-bit word -> one standard normal, by + - * / on float32 alone: equal bits on every machine.
 *
 * Owns the inverse of the normal distribution function. The words 2^31 - 1 - k and 2^31 + k are mirror images, and
 * word u stands for the middle of its cell of probability 2^-32, so |x| goes up to 6.34.
 * Absolute error below 2e-6 everywhere; tools/fit_normal.py derives the coefficients and measures the error.
 * Internal to the kernels. */
#ifndef PYES_NORMAL_H
#define PYES_NORMAL_H

#include "wide.h"

/* -log2(v) for 0 < v <= 1: exponent and mantissa m in [sqrt(1/2), sqrt(2)), then a polynomial in f = m - 1. */
PYES_INLINE float minus_log2(float v)
{
    const uint32_t sqrt_half = 0x3F3504F3u; /* the bits of sqrt(1/2) */
    const uint32_t above = bits_of_float(v) - sqrt_half;
    const float exponent = (float)((int32_t)above >> 23);
    const float f = float_of_bits((above & 0x007FFFFFu) + sqrt_half) - 1.0f;
    float log = 0.20552976f;
    log = log * f - 0.32330444f;
    log = log * f + 0.36822116f;
    log = log * f - 0.47920567f;
    log = log * f + 0.72106105f;
    log = log * f - 1.4427179f;
    log = log * f + 1.4520319e-06f;
    return log - exponent;
}

PYES_INLINE float normal_of_bits(uint32_t word)
{
    const uint32_t sign = word & 0x80000000u;
    const uint32_t magnitude = (uint32_t)((int32_t)word >> 31) ^ word; /* 0 at the centre, 2^31 - 1 in both tails */
    const float t = ((float)(int32_t)magnitude + 0.5f) * 0x1p-32f;     /* probability between 0 and |x| */
    const float q4 = ((float)(int32_t)(magnitude ^ 0x7FFFFFFFu) + 0.5f) * 0x1p-30f; /* 4 q, q beyond |x| */
    const float log = minus_log2(q4 * (0.5f + t));                                  /* of 4 q (1 - q) */

    float top = 9.460389e-06f;
    top = top * log + 0.0005183363f;
    top = top * log + 0.008455698f;
    top = top * log + 0.09051054f;
    top = top * log + 0.6451544f;
    top = top * log + 2.5066333f;

    float bottom = 1.5758657e-07f;
    bottom = bottom * log + 4.1367006e-05f;
    bottom = bottom * log + 0.00087774795f;
    bottom = bottom * log + 0.016049227f;
    bottom = bottom * log + 0.07592584f;
    bottom = bottom * log + 1.0f;

    return float_of_bits(bits_of_float(t * top / bottom) ^ sign);
}

/* Round to nearest even; normals are finite, so the carry cannot reach infinity. */
PYES_INLINE uint16_t bfloat16_of_float(float x)
{
    const uint32_t bits = bits_of_float(x);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/* Steps of 1/32, round to nearest even, clipped to +-127 (|x| up to 3.97). */
PYES_INLINE int8_t int8_of_float(float x)
{
    /* Adding 1.5 * 2^23 leaves the rounded integer in the low bits. */
    const int32_t step = (int32_t)(bits_of_float(x * 32.0f + 12582912.0f) - 0x4B400000u);
    return (int8_t)(step > 127 ? 127 : step < -127 ? -127 : step);
}

#endif
