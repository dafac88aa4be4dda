/* The noise table: any range of it, entry by entry; that it is normal. */
#include "../kernels/normal.h"
#include "../kernels/philox.h"
#include "checks.h"

static void test_noise_any_range(enum pyes_level level, enum pyes_dtype dtype)
{
    const size_t size = entry_size(dtype);
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
    for (int d = PYES_FLOAT32; d <= PYES_INT8; d++)
        test_noise_any_range(level, (enum pyes_dtype)d);
    test_noise_is_standard_normal(level);
}
