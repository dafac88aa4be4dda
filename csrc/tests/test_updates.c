/* Ranks, and the steps of the optimisers. */
#include "checks.h"

void test_centered_ranks(void)
{
    const double returns[] = {3.0, NAN, 1.0, 3.0, -INFINITY, NAN, 2.0};
    const float tie = 5.5f / 6 - 0.5f, nan = 0.5f / 6 - 0.5f;
    const float expected[] = {tie, nan, 0.0f, tie, -1.0f / 6, nan, 1.0f / 6};
    int64_t *workspace = buffer(14, sizeof *workspace);
    float *out = buffer(7, sizeof *out);
    pyes_centered_ranks(7, returns, workspace, out);
    for (int i = 0; i < 7; i++)
        CHECK(fabsf(out[i] - expected[i]) < 1e-6f);
    pyes_centered_ranks(1, returns, workspace, out);
    CHECK(out[0] == 0.0f);
    pyes_centered_ranks(0, returns, workspace, out);
    free(workspace);
    free(out);
}

void test_optimizers(enum pyes_level level)
{
    for (int64_t dim = 0; dim < 70; dim += 23) {
        float *theta = noise(dim, 1), *same = noise(dim, 1), *gradient = noise(dim, 2);
        float *m = buffer(dim, 4), *v = buffer(dim, 4), *m2 = buffer(dim, 4), *v2 = buffer(dim, 4);
        for (int64_t step = 1; step < 4; step++) {
            pyes_adam_step(level, dim, gradient, step, 0.01, 0.9, 0.999, 1e-8, 0.1, theta, m, v);
            pyes_adam_step(PYES_BASELINE, dim, gradient, step, 0.01, 0.9, 0.999, 1e-8, 0.1, same, m2, v2);
            pyes_sgd_step(level, dim, gradient, 0.01, 0.9, 0.1, theta, m);
            pyes_sgd_step(PYES_BASELINE, dim, gradient, 0.01, 0.9, 0.1, same, m2);
            pyes_clipup_step(level, dim, gradient, 0.01, 0.9, 0.02, 0.1, theta, m);
            pyes_clipup_step(PYES_BASELINE, dim, gradient, 0.01, 0.9, 0.02, 0.1, same, m2);
            pyes_deviation_step(level, dim, gradient, 0.1, 0.2, m);
            pyes_deviation_step(PYES_BASELINE, dim, gradient, 0.1, 0.2, m2);
            pyes_snes_step(level, dim, gradient, v, 0.1, 0.2, theta, m);
            pyes_snes_step(PYES_BASELINE, dim, gradient, v2, 0.1, 0.2, same, m2);
        }
        CHECK(memcmp(theta, same, (size_t)dim * 4) == 0 && memcmp(m, m2, (size_t)dim * 4) == 0);
        free(theta), free(same), free(gradient), free(m), free(v), free(m2), free(v2);
    }
    /* The first step of Adam moves every parameter by the learning rate, towards the gradient. */
    float theta = 0.0f, gradient = -123.0f, m = 0.0f, v = 0.0f;
    pyes_adam_step(level, 1, &gradient, 1, 0.25, 0.9, 0.999, 0.0, 0.0, &theta, &m, &v);
    CHECK(fabsf(theta + 0.25f) < 1e-6f);
}
