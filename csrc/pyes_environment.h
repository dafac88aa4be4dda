/* pyes_environment.h - an environment in C for pyes: what it offers, and what it may use.
 *
 * Fill in one struct pyes_environment, compile it as a shared library, and train in it (docs/howto/native_environment.md):
 *
 *     cc -O3 -std=c11 -ffp-contract=off -shared -fPIC -I"$(python -c 'import pyes; print(pyes.include_dir())')" \
 *         point.c -o point.so
 *     pyes train task=native task.library=./point.so task.symbol=point
 *
 * RULES. An episode follows from its seed and its actions alone: keep everything that changes in `state`, draw random
 * numbers from pyes_random, and use the functions below instead of those of libm, whose last bits depend on the machine.
 * Allocate nothing. Functions may be called from several threads at once, each with a state of its own. */
#ifndef PYES_ENVIRONMENT_H
#define PYES_ENVIRONMENT_H

#include <math.h> /* sqrt alone, which is rounded correctly everywhere */
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "an environment needs IEEE arithmetic, or its episodes differ between machines: build without -ffast-math"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* for GCC: -ffp-contract=off */
#endif

#if defined(_WIN32)
#define PYES_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define PYES_EXPORT __attribute__((visibility("default")))
#else
#define PYES_EXPORT
#endif

#define PYES_ENVIRONMENT_ABI 1u

enum { PYES_OBSERVE_FLOAT32 = 0, PYES_OBSERVE_FLOAT64 = 1 };
enum { PYES_TERMINATED = 1, PYES_TRUNCATED = 2, PYES_FAILED = 4 };

struct pyes_environment {
    uint32_t abi;     /* PYES_ENVIRONMENT_ABI */
    uint32_t size;    /* sizeof(struct pyes_environment) */
    const char *name; /* UTF-8 */

    /* Begins the episode of a seed, and writes the first observation. The state and the observation are zero before. */
    void (*reset)(void *state, uint64_t seed, void *observation, const void *user);

    /* Applies an action for one timestep; writes the next observation and the reward. Returns 0, PYES_TERMINATED,
     * PYES_TRUNCATED or both; or PYES_FAILED where it cannot go on, which fails the member. action[0] is the choice
     * (0, 1, 2, ...) where actions are discrete. */
    int (*step)(void *state, const float *action, void *observation, double *reward, const void *user);

    const void *user;     /* handed to both; may be NULL */
    uint64_t state_bytes; /* of one episode; memory that pyes owns, aligned to 64 bytes */

    uint32_t observation_type; /* PYES_OBSERVE_FLOAT32: observations are float; ..._FLOAT64: double */
    uint32_t observation_size; /* values in an observation */
    uint32_t choices;          /* actions are one of so many choices; 0: they are a box */
    uint32_t action_size;      /* floats in an action of a box; 0 with choices */

    /* What follows may be left out, that is zero. */
    const double *observation_low, *observation_high; /* (observation_size) each; NULL: no bounds */
    const float *action_low, *action_high;            /* (action_size) each; NULL: no bounds */
    double reward_low, reward_high;                   /* a reward beyond them is an error; equal: any reward */
    uint64_t time_limit;                              /* timesteps of an episode; 0: none */
};

/* ---- Random numbers: Philox4x32-10 (Salmon et al. 2011), the same on every machine -------------------------------- */

/* A part of the state. Its numbers follow from the key; `block` counts the blocks of four words. */
struct pyes_random {
    uint64_t key, block;
    uint32_t words[4];
    uint32_t left; /* words of the block that are not used yet */
};

/* The four words of a counter and a key. */
static inline void pyes_philox(const uint32_t counter[4], uint64_t key, uint32_t words[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * x0, p1 = (uint64_t)0xCD9E8D57u * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ key0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ key1;
        x3 = (uint32_t)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    words[0] = x0, words[1] = x1, words[2] = x2, words[3] = x3;
}

/* Begins the numbers of a seed: call it in reset. */
static inline void pyes_random_begin(struct pyes_random *random, uint64_t seed)
{
    memset(random, 0, sizeof *random);
    random->key = seed;
}

/* 32 random bits. */
static inline uint32_t pyes_random_bits(struct pyes_random *random)
{
    if (random->left == 0) {
        const uint32_t counter[4] = {(uint32_t)random->block, (uint32_t)(random->block >> 32), 0, 0};
        pyes_philox(counter, random->key, random->words);
        random->block++;
        random->left = 4;
    }
    return random->words[4 - random->left--];
}

/* Uniform in [low, high): one of 2^53 evenly spaced numbers, which rounding may make `high` itself. */
static inline double pyes_random_uniform(struct pyes_random *random, double low, double high)
{
    const uint64_t upper = pyes_random_bits(random), bits = upper << 32 | pyes_random_bits(random);
    return low + (high - low) * ((double)(bits >> 11) * 0x1p-53);
}

/* ---- Functions with the same bits on every machine, within 2 units in the last place of libm's ------------------- */

/* Coefficients of sin, cos, exp and log: fdlibm, Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
 * Developed at SunPro, a Sun Microsystems, Inc. business. Permission to use, copy, modify, and distribute this software
 * is freely granted, provided that this notice is preserved. */

static inline uint64_t pyes_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double pyes_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline double pyes_sqrt(double x)
{
    return sqrt(x);
}

/* The nearest integer, halves to even. @pre |x| < 2^51 */
static inline double pyes_nearest(double x)
{
    return (x + 0x1.8p52) - 0x1.8p52;
}

/* The largest integer that is not above x. @pre |x| < 2^51 */
static inline double pyes_floor(double x)
{
    const double near = pyes_nearest(x);
    return near > x ? near - 1.0 : near;
}

/* sin(x + tail) and cos(x + tail) for |x| <= pi / 4 and a tail below its last bit. */
static inline double pyes_sin_kernel(double x, double tail)
{
    const double z = x * x, cube = z * x;
    const double r = 8.33333333332248946124e-03 +
                     z * (-1.98412698298579493134e-04 +
                          z * (2.75573137070700676789e-06 +
                               z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
    return x - ((z * (0.5 * tail - cube * r) - tail) + cube * 1.66666666666666324348e-01);
}

static inline double pyes_cos_kernel(double x, double tail)
{
    const double z = x * x, half = 0.5 * z, w = 1.0 - half;
    const double r = z * (4.16666666666666019037e-02 +
                          z * (-1.38888888888741095749e-03 +
                               z * (2.48015872894767294178e-05 +
                                    z * (-2.75573143513906633035e-07 +
                                         z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
    return w + (((1.0 - w) - half) + (z * r - x * tail));
}

/* x less the multiple of pi / 2 that is nearest, in two parts; returns the multiple mod 4. pi / 2 has three parts of 33
 * bits, and a rest, whose products with the multiple are exact. */
static inline unsigned pyes_quadrant(double x, double *rest, double *tail)
{
    const double count = pyes_nearest(x * 6.36619772367581382433e-01);
    const double first = x - count * 1.57079632673412561417e+00;
    double part = count * 6.07710050630396597660e-11;
    const double second = first - part;
    double lost = (first - second) - part;
    part = count * 2.02226624871116645580e-21;
    const double third = second - part;
    lost += (second - third) - part;
    lost -= count * 8.47842766036889956997e-32;
    *rest = third + lost;
    *tail = (third - *rest) + lost;
    return (unsigned)((int64_t)count & 3);
}

/* |x| up to 10^6 radians; beyond, the error grows with x, and from 10^15 on, as for infinity, it is NaN. */
static inline double pyes_sin(double x)
{
    double rest, tail;
    if (!(x > -1e15 && x < 1e15))
        return x - x == 0.0 ? pyes_of_bits(0x7FF8000000000000u) : x - x;
    if (x > -0x1p-26 && x < 0x1p-26)
        return x; /* -0.0 too */
    const unsigned quadrant = pyes_quadrant(x, &rest, &tail);
    const double value = quadrant & 1 ? pyes_cos_kernel(rest, tail) : pyes_sin_kernel(rest, tail);
    return quadrant & 2 ? -value : value;
}

/* As pyes_sin. */
static inline double pyes_cos(double x)
{
    double rest, tail;
    if (!(x > -1e15 && x < 1e15))
        return x - x == 0.0 ? pyes_of_bits(0x7FF8000000000000u) : x - x;
    const unsigned quadrant = pyes_quadrant(x, &rest, &tail);
    const double value = quadrant & 1 ? pyes_sin_kernel(rest, tail) : pyes_cos_kernel(rest, tail);
    return (quadrant + 1) & 2 ? -value : value;
}

/* Infinity above 709.78; below -708.39, where results are no normal numbers, 0. */
static inline double pyes_exp(double x)
{
    if (x != x)
        return x;
    if (x > 7.09782712893383973096e+02)
        return pyes_of_bits(0x7FF0000000000000u);
    if (x < -7.08396418532264106224e+02)
        return 0.0;
    const double k = pyes_nearest(x * 1.44269504088896338700e+00);
    const double high = x - k * 6.93147180369123816490e-01, low = k * 1.90821492927058770002e-10;
    const double r = high - low, z = r * r;
    const double c =
        r - z * (1.66666666666666019037e-01 +
                 z * (-2.77777777770155933842e-03 +
                      z * (6.61375632143793436117e-05 +
                           z * (-1.65339022054652515390e-06 + z * 4.13813679705723846039e-08))));
    const double y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
    const int64_t power = (int64_t)k, half = power / 2; /* two factors: 2^1024 is no double */
    return y * pyes_of_bits((uint64_t)(half + 1023) << 52) * pyes_of_bits((uint64_t)(power - half + 1023) << 52);
}

/* Minus infinity at 0; NaN below. */
static inline double pyes_log(double x)
{
    if (!(x > 0.0))
        return x == 0.0 ? -pyes_of_bits(0x7FF0000000000000u) : pyes_of_bits(0x7FF8000000000000u);
    if (x - x != 0.0)
        return x;
    const double scaled = x < 0x1p-1022 ? x * 0x1p54 : x; /* subnormal numbers */
    const uint64_t bits = pyes_bits(scaled) + 0x00095F6200000000u; /* so that 1 + f is in [sqrt(1/2), sqrt(2)) */
    const double k = (double)((int64_t)(bits >> 52) - 1023 - (x < 0x1p-1022 ? 54 : 0));
    const double f = pyes_of_bits((bits & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E00000000u) - 1.0;
    const double half = 0.5 * f * f, s = f / (2.0 + f), z = s * s, w = z * z;
    const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const double odd =
        z * (6.666666666666735130e-01 +
             w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    return s * (half + (even + odd)) + k * 1.90821492927058770002e-10 - half + f + k * 6.93147180369123816490e-01;
}

/* A quotient of polynomials for small x (Cody & Waite 1980, in the form of Cephes), else by exp. */
static inline double pyes_tanh(double x)
{
    const double size = x < 0.0 ? -x : x;
    if (size < 0.625) {
        const double z = x * x;
        const double p = (-9.64399179425052238628e-01 * z - 9.92877231001918586564e+01) * z - 1.61468768441708447952e+03;
        const double q = ((z + 1.12811678491632931402e+02) * z + 2.23548839060100448583e+03) * z + 4.84406305325125486048e+03;
        return x + x * z * (p / q);
    }
    const double value = size > 22.0 ? 1.0 : 1.0 - 2.0 / (pyes_exp(2.0 * size) + 1.0);
    return x != x ? x : x < 0.0 ? -value : value;
}

/* A standard normal number (Box & Muller 1958), of four words of 32 bits. */
static inline double pyes_random_normal(struct pyes_random *random)
{
    const double share = 1.0 - pyes_random_uniform(random, 0.0, 1.0); /* not 0 */
    const double angle = pyes_random_uniform(random, 0.0, 6.283185307179586);
    return pyes_sqrt(-2.0 * pyes_log(share)) * pyes_cos(angle);
}

#endif
