/* Shared by the tests of the kernels: one line per failed check, buffers, the groups of tests.
 *
 * Tests are plain C, so that sanitizers see every access without Python between. Buffers are allocated at their exact
 * size: an access one entry beyond is an error under the address sanitizer. */
#ifndef PYES_TEST_CHECKS_H
#define PYES_TEST_CHECKS_H

#include "../pyes_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #condition);                               \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

/* Zeroed memory for exactly `count` items; the caller frees it. */
static inline void *buffer(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + (count == 0), size);
    if (memory == NULL)
        abort();
    return memory;
}

/* n standard normals; the caller frees them. */
static inline float *noise(int64_t n, uint64_t seed)
{
    float *out = buffer(n, sizeof(float));
    pyes_fill_noise(PYES_BASELINE, n, PYES_FLOAT32, seed, 0, out);
    return out;
}

/* The groups, one a file or two; those with a level run at each one that is available. */
void test_streams(void);
void test_noise(enum pyes_level level);
void test_slices(enum pyes_level level);
void test_centered_ranks(void);
void test_optimizers(enum pyes_level level);
void test_networks(enum pyes_level level);
void test_float_control(enum pyes_level level);
void test_actions(void);
void test_board(void);
void test_rays(void);
void test_episodes(void);
void test_box2d(void);
void test_mujoco(void);

#endif
