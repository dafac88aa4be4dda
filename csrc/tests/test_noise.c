/* The noise table: any range of it, entry by entry; that it is normal. */
#include "../kernels/normal.h"
#include "../kernels/philox.h"
#include "checks.h"

static void test_noise_any_range(enum pyes_level level, enum pyes_dtype dtype)
{
    const size_t size = (size_t)pyes_entry_size(dtype);
    const int64_t n = 3000;
    char *whole = buffer(n, size);
    pyes_fill_noise(PYES_BASELINE, n, dtype, 42, 100, whole);
    static const int64_t cuts[] = {0, 1, 2, 411, 412, 413, 924, 925, 2000, 3000};
    for (size_t k = 0; k + 1 < sizeof cuts / sizeof *cuts; k++) {
        const int64_t count = cuts[k + 1] - cuts[k];
        char *part = buffer(count, size);
        pyes_fill_noise(level, count, dtype, 42, (uint64_t)(100 + cuts[k]), part);
        CHECK(memcmp(part, whole + (size_t)cuts[k] * size, (size_t)count * size) == 0);
        free(part);
    }
    free(whole);
}

/* Entry k of the table by its definition, into `out`. */
static void naive_entry(enum pyes_dtype dtype, uint64_t seed, uint64_t k, void *out)
{
    const uint64_t index = k / 4;
    const struct pyes_block counter = {{(uint32_t)index, (uint32_t)(index >> 32), 0, 0}};
    const uint32_t word = philox_block(counter, seed).word[k % 4];
    const float normal = normal_of_bits(word);
    const uint16_t rounded = bfloat16_of_float(normal);
    const int8_t steps = int8_of_float(coarse_steps(signed_center(word), coarse_log(coarse_spread(word))));
    if (dtype == PYES_FLOAT32)
        memcpy(out, &normal, sizeof normal);
    else if (dtype == PYES_BFLOAT16)
        memcpy(out, &rounded, sizeof rounded);
    else
        memcpy(out, &steps, sizeof steps);
}

/* Ranges that begin and end inside, at and behind a batch of 512: both edges go by way of a copy. In front of the range
 * and behind it nothing changes; the odd place in memory has no more than the alignment of the entries. */
static void test_noise_edges(enum pyes_level level, enum pyes_dtype dtype)
{
    static const int64_t counts[] = {0, 1, 2, 510, 511, 512, 513, 1023, 1024, 1025};
    static const uint64_t starts[] = {0, 1, 2, 510, 511, 512, ((uint64_t)1 << 34) - 3, ((uint64_t)1 << 34) + 1};
    const size_t size = (size_t)pyes_entry_size(dtype);
    const uint64_t seed = 0x0123456789ABCDEF;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
            const size_t bytes = (size_t)counts[c] * size;
            char *memory = buffer(counts[c] + 2, size), *expected = buffer(counts[c] + 2, size);
            memset(memory, 77, bytes + 2 * size);
            memset(expected, 77, bytes + 2 * size);
            for (int64_t k = 0; k < counts[c]; k++)
                naive_entry(dtype, seed, starts[s] + (uint64_t)k, expected + (size_t)(k + 1) * size);
            pyes_fill_noise(level, counts[c], dtype, seed, starts[s], memory + size);
            CHECK(memcmp(memory, expected, bytes + 2 * size) == 0);
            free(memory), free(expected);
        }
}

static void test_noise_is_standard_normal(enum pyes_level level)
{
    const int64_t n = 1 << 20;
    float *x = buffer(n, sizeof *x);
    pyes_fill_noise(level, n, PYES_FLOAT32, 7, 0, x);
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        CHECK(fabsf(x[i]) < 6.35f);
    }
    CHECK(fabs(sum / (double)n) < 0.005);
    CHECK(fabs(squares / (double)n - 1.0) < 0.007);
    free(x);
}

void test_noise(enum pyes_level level)
{
    for (int d = PYES_FLOAT32; d <= PYES_INT8; d++) {
        test_noise_any_range(level, (enum pyes_dtype)d);
        test_noise_edges(level, (enum pyes_dtype)d);
    }
    test_noise_is_standard_normal(level);
}
