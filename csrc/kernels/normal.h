/* One 32-bit word -> one standard normal, by + - * / on float32 alone: equal bits on every machine.
 *
 * Owns the inverse of the normal distribution function. Word u stands for the middle of its cell of probability 2^-32;
 * u and ~u are mirror images. With q the probability beyond |x| and t = 1/2 - q,
 *     x = t P(L) / Q(L),    L = -log2(4 q (1 - q)),
 * one formula for centre and tail: no branch, no table. tools/fit_normal.py derives P, Q and the logarithm, and
 * measures the error: below 2e-6 in x for the fine version, up to |x| = 6.34; below 1e-4, 1/300 of a step, for the
 * coarse one, which serves int8 and does without Q. Polynomials are split into even and odd powers, since two short
 * chains run faster than one long one.
 * The three steps are functions of their own, so that noise.c can give each a loop. Internal to the kernels. */
#ifndef PYES_NORMAL_H
#define PYES_NORMAL_H

#include "wide.h"

/* 0 for the two words at the centre, 2^31 - 1 for the two in the tails. */
PYES_INLINE uint32_t magnitude_of(uint32_t word)
{
    return (uint32_t)((int32_t)word >> 31) ^ word;
}

/* Step 1a: t in units of 2^-32, with the sign of x. */
PYES_INLINE float signed_center(uint32_t word)
{
    const float t = (float)(int32_t)magnitude_of(word) + 0.5f;
    return float_of_bits(bits_of_float(t) | (word & 0x80000000u));
}

/* Step 1b: 4 q (1 - q) in units of 2^-62. */
PYES_INLINE float spread_of(uint32_t word)
{
    const uint32_t magnitude = magnitude_of(word);
    const float t = (float)(int32_t)magnitude + 0.5f;
    const float q = (float)(int32_t)(magnitude ^ 0x7FFFFFFFu) + 0.5f;
    return q * (t + 0x1p31f);
}

/* A float v * 2^62 as v = 2^exponent * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)). */
PYES_INLINE void split(float spread, float *exponent, float *f)
{
    const uint32_t sqrt_half = 0x3F3504F3u; /* the bits of sqrt(1/2) */
    const uint32_t above = bits_of_float(spread) - sqrt_half - (62u << 23);
    *exponent = (float)((int32_t)above >> 23);
    *f = float_of_bits((above & 0x007FFFFFu) + sqrt_half) - 1.0f;
}

/* Step 2: L. */
PYES_INLINE float fine_log(float spread)
{
    float exponent, f;
    split(spread, &exponent, &f);
    const float f2 = f * f;
    const float low = 1.4520319e-06f + f * -1.4427179f;
    const float middle = 0.72106105f + f * -0.47920567f;
    const float high = (0.36822116f + f * -0.32330444f) + f2 * 0.20552976f;
    return (low - exponent) + f2 * (middle + f2 * high);
}

/* Step 3: x. The factor 2^-32 brings t to its unit; it is exact. */
PYES_INLINE float fine_normal(float center, float log)
{
    const float u = 0x1p-32f, log2 = log * log;
    const float top = (2.5066333f * u + log2 * (0.09050305f * u + log2 * (0.00051824696f * u))) +
                      log * (0.6451214f * u + log2 * (0.008454753f * u + log2 * (9.460766e-06f * u)));
    const float bottom = (1.0f + log2 * (0.016048653f + log2 * 4.1364798e-05f)) +
                         log * (0.07591265f + log2 * (0.00087754475f + log2 * 1.5760489e-07f));
    return center * top / bottom;
}

PYES_INLINE float normal_of_bits(uint32_t word)
{
    return fine_normal(signed_center(word), fine_log(spread_of(word)));
}

/* Step 1b for int8: held where |x| reaches 127.1 / 32. Positive floats are ordered like their bits. */
PYES_INLINE float coarse_spread(uint32_t word)
{
    const int32_t last = 0x58158A70, bits = (int32_t)bits_of_float(spread_of(word));
    return float_of_bits((uint32_t)(bits > last ? bits : last));
}

/* Step 2 for int8. */
PYES_INLINE float coarse_log(float spread)
{
    float exponent, f;
    split(spread, &exponent, &f);
    const float f2 = f * f;
    const float low = 9.265852e-06f + f * -1.4425493f;
    const float high = (0.7199233f + f * -0.487001f) + f2 * (0.39703816f + f * -0.2538457f);
    return (low - exponent) + f2 * high;
}

/* Step 3 for int8: 32 x, at most 127.2. A polynomial: no division. */
PYES_INLINE float coarse_steps(float center, float log)
{
    const float u = 0x1p-27f, log2 = log * log; /* 32 * 2^-32 */
    const float even = 2.5068383f * u + log2 * (0.018384958f * u + log2 * (0.00020614831f * u));
    const float odd = 0.45281592f * u + log2 * (-0.003511877f * u + log2 * (-4.4579506e-06f * u));
    return center * (even + log * odd);
}

/* Round to nearest even; normals are finite, so the carry cannot reach infinity. */
PYES_INLINE uint16_t bfloat16_of_float(float x)
{
    const uint32_t bits = bits_of_float(x);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/* Round to nearest even, for |x| <= 127.5: adding 1.5 * 2^23 leaves the integer in the low bits. */
PYES_INLINE int8_t int8_of_float(float x)
{
    return (int8_t)(uint8_t)bits_of_float(x + 12582912.0f);
}

#endif
