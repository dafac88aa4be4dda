/* Perturbation and sums over slices: each level against the baseline, slice by slice. */
#include "checks.h"

static void add_naively(int64_t dim, enum pyes_dtype dtype, const char *slice, float weight, float *out)
{
    pyes_perturb(PYES_BASELINE, dim, dtype, out, slice, NULL, (double)weight, out);
}

static void test_table_kernels(enum pyes_level level, enum pyes_dtype dtype)
{
    const size_t size = (size_t)pyes_entry_size(dtype);
    static const int64_t dims[] = {0, 1, 7, 16, 63, 4095, 4096, 4097, 9000};
    for (size_t k = 0; k < sizeof dims / sizeof *dims; k++) {
        const int64_t dim = dims[k], n = 19, length = dim + 5;
        char *table = buffer(length, size);
        pyes_fill_noise(PYES_BASELINE, length, dtype, 3, 0, table);
        float *weights = noise(n, 4), *out = buffer(dim, sizeof *out), *expected = buffer(dim, sizeof *out);
        int64_t *offsets = buffer(n, sizeof *offsets);
        for (int64_t i = 0; i < n; i++)
            offsets[i] = i % 6; /* up to the last one that fits */
        pyes_weighted_sum(level, n, dim, dtype, table, offsets, weights, out);
        for (int64_t i = 0; i < n; i++) /* slice by slice is the definition */
            add_naively(dim, dtype, table + (size_t)offsets[i] * size, weights[i], expected);
        CHECK(memcmp(out, expected, (size_t)dim * sizeof *out) == 0);
        float *spread = buffer(dim, sizeof *spread), *same = buffer(dim, sizeof *same);
        pyes_weighted_moments(level, n, dim, dtype, table, offsets, weights, weights, out, spread);
        CHECK(memcmp(out, expected, (size_t)dim * sizeof *out) == 0);
        pyes_weighted_moments(PYES_BASELINE, n, dim, dtype, table, offsets, weights, weights, out, same);
        CHECK(memcmp(spread, same, (size_t)dim * sizeof *same) == 0);
        free(spread);
        free(same);
        pyes_add_slices(level, n, dim, dtype, table, offsets, weights, out);
        for (int64_t i = 0; i < n; i++)
            add_naively(dim, dtype, table + (size_t)offsets[i] * size, weights[i], expected);
        CHECK(memcmp(out, expected, (size_t)dim * sizeof *out) == 0);
        float *deviation = noise(dim, 5);
        for (int scaled = 0; scaled < 2; scaled++) {
            const float *each = scaled ? deviation : NULL;
            pyes_perturb(level, dim, dtype, expected, table + 5 * size, each, 0.5, out);
            pyes_perturb(PYES_BASELINE, dim, dtype, expected, table + 5 * size, each, 0.5, expected);
            CHECK(memcmp(out, expected, (size_t)dim * sizeof *out) == 0);
        }
        free(deviation);
        free(table);
        free(weights);
        free(out);
        free(expected);
        free(offsets);
    }
}

void test_slices(enum pyes_level level)
{
    for (int d = PYES_FLOAT32; d <= PYES_INT8; d++)
        test_table_kernels(level, (enum pyes_dtype)d);
}
