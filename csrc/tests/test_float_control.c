/* Kernels give the same results for every control word of the thread, and leave it unchanged. */
#include "../kernels/float_control.h"
#include "checks.h"

enum { DIM = 67 };

static const uint64_t SWITCHES = PYES_NOT_STANDARD; /* the word has flags, too, which any operation may raise */

static const double RETURNS[DIM] = {1e-310, -1e-310, 2e-310, 0.0, 1.0};

/* Numbers of every size, subnormal ones among them. */
static float *small_numbers(uint64_t seed)
{
    float *values = noise(DIM, seed);
    for (int j = 0; j < DIM; j++)
        values[j] *= j % 3 ? 1e-40f : 1e-20f;
    return values;
}

/* One kernel of each kind: of a level, compiled once, of single and of double precision. */
static void compute(enum pyes_level level, const float *theta, const float *table, float out[4 * DIM])
{
    const float weights[1] = {0.3f};
    const int64_t offsets[1] = {0};
    int64_t workspace[2 * DIM];
    pyes_perturb(level, DIM, PYES_FLOAT32, theta, table, NULL, 0.7, out);
    pyes_weighted_sum(level, 1, DIM, PYES_FLOAT32, table, offsets, weights, out + DIM);
    pyes_normalize(DIM, theta, table, theta, 5.0f, out + 2 * DIM);
    pyes_centered_ranks(DIM, RETURNS, workspace, out + 3 * DIM);
}

void test_float_control(enum pyes_level level)
{
    float *theta = small_numbers(1), *table = small_numbers(2);
    float expected[4 * DIM], out[4 * DIM];
    const uint64_t usual = control_word();
    compute(level, theta, table, expected);
    CHECK((usual & SWITCHES) == 0 && (control_word() & SWITCHES) == 0);
    for (int bit = 0; bit < 32; bit++) {
        if (!(SWITCHES >> bit & 1))
            continue;
        set_control_word(usual | (uint64_t)1 << bit);
        const uint64_t before = control_word(); /* a processor may lack the bit */
        compute(level, theta, table, out);
        const uint64_t after = control_word();
        set_control_word(usual);
        CHECK((after & SWITCHES) == (before & SWITCHES));
        CHECK(memcmp(out, expected, sizeof out) == 0);
    }
    free(theta), free(table);
}
