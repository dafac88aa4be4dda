/* Vectors as wide as the level: floats, and 64-bit lanes with the one operation that compilers do not find by
 * themselves, the product of the low halves, 32 x 32 -> 64 bits. Without vector extensions a vector is one number, and
 * the same code is plain C. Internal to the kernels. */
#ifndef PYES_LANES_H
#define PYES_LANES_H

#include "wide.h"

#ifndef PYES_VECTOR_BYTES
#define PYES_VECTOR_BYTES 16
#endif

#if defined(__GNUC__)
typedef float floats __attribute__((vector_size(PYES_VECTOR_BYTES)));
#else
typedef float floats;
#endif

enum {
    VECTOR = sizeof(floats) / sizeof(float), /* floats in a vector; divides PYES_LANES */
};

#if PYES_X86_LEVELS

typedef uint64_t lanes __attribute__((vector_size(PYES_VECTOR_BYTES)));

PYES_INLINE lanes multiply(lanes a, uint32_t b)
{
#if PYES_VECTOR_BYTES == 64
    return (lanes)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64((int64_t)b));
#elif PYES_VECTOR_BYTES == 32
    return (lanes)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x((int64_t)b));
#else
    return (lanes)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x((int64_t)b));
#endif
}

#else

typedef uint64_t lanes;

PYES_INLINE lanes multiply(lanes a, uint32_t b)
{
    return (uint64_t)(uint32_t)a * b;
}

#endif

#endif
