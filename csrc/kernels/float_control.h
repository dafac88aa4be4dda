/* The processor's control word of floating-point arithmetic: how results are rounded, whether subnormal numbers count.
 *
 * Any library may change it for its thread. Loading one that was linked with -ffast-math makes the processor treat
 * subnormal numbers as zero, and threads inherit the word from the thread that starts them. So every public kernel that
 * computes sets the word as the determinism rule of pyes_kernels.h requires, and restores it afterwards. Reading the
 * word takes about a nanosecond; it is written only if it differs.
 * Internal to the kernels. */
#ifndef PYES_FLOAT_CONTROL_H
#define PYES_FLOAT_CONTROL_H

#include <stdint.h>

#if defined(__SSE2__) && defined(__GNUC__)
/* MXCSR: flush to zero (bit 15), rounding mode (14, 13), denormals are zero (6). */
#define PYES_NOT_STANDARD 0xE040u

static inline uint64_t control_word(void)
{
    uint32_t word;
    __asm__ volatile("stmxcsr %0" : "=m"(word));
    return word;
}

/* The clobber prevents the compiler from moving loads and stores, and computations between them, across the change. */
static inline void set_control_word(uint64_t word)
{
    const uint32_t low = (uint32_t)word;
    __asm__ volatile("ldmxcsr %0" : : "m"(low) : "memory");
}

#elif defined(_M_X64)
#include <xmmintrin.h>
#define PYES_NOT_STANDARD 0xE040u

static inline uint64_t control_word(void)
{
    return _mm_getcsr();
}

static inline void set_control_word(uint64_t word)
{
    _mm_setcsr((unsigned int)word);
}

#elif defined(__aarch64__)
/* FPCR: default NaN (bit 25), flush to zero (24), rounding mode (23, 22), the same for half precision (19); and, zero
 * where the processor has no FEAT_AFP, NEP, AH and FIZ (2, 1, 0), which change single results and subnormal inputs. */
#define PYES_NOT_STANDARD 0x03C80007u

static inline uint64_t control_word(void)
{
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}

static inline void set_control_word(uint64_t word)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory");
}

#else
/* Other processors: unknown; their word is neither read nor set. */
#define PYES_NOT_STANDARD 0u

static inline uint64_t control_word(void)
{
    return 0;
}

static inline void set_control_word(uint64_t word)
{
    (void)word;
}
#endif

/* Sets standard arithmetic for this thread. Returns the old word for restore_arithmetic. */
static inline uint64_t standard_arithmetic(void)
{
    const uint64_t found = control_word();
    if (found & PYES_NOT_STANDARD)
        set_control_word(found & ~(uint64_t)PYES_NOT_STANDARD);
    return found;
}

/* Restores what standard_arithmetic has found, after which the word was not changed otherwise. */
static inline void restore_arithmetic(uint64_t found)
{
    if (found & PYES_NOT_STANDARD)
        set_control_word(found);
}

#endif
