/* Updates of the sigmas of all parameters, and of theta with them. Must not know where the gradients came from.
 *
 * Scalars arrive in double and are rounded to float once; parameters are float throughout. */
#include "activation.h"

/* Toklu, Liskowski & Srivastava 2020: a step proportional to sigma, limited to a share of it. */
void PYES_WIDE(pyes_deviation_step)(int64_t dim, const float *gradient, double learning_rate, double max_change,
                                    float *deviation)
{
    const float rate = (float)learning_rate, limit = (float)max_change;
    PYES_INDEPENDENT
    for (int64_t j = 0; j < dim; j++) {
        const float change = rate * gradient[j];
        const float low = change < -limit ? -limit : change;
        const float bounded = low > limit ? limit : low;
        deviation[j] += bounded * deviation[j];
    }
}

/* Schaul, Glasmachers & Schmidhuber 2011, algorithm 1. */
void PYES_WIDE(pyes_snes_step)(int64_t dim, const float *gradient, const float *deviation_gradient,
                               double learning_rate, double deviation_rate, float *theta, float *deviation)
{
    const float rate = (float)learning_rate, half = (float)(0.5 * deviation_rate);
    PYES_INDEPENDENT
    for (int64_t j = 0; j < dim; j++) {
        theta[j] += rate * deviation[j] * gradient[j];
        deviation[j] *= exponential(half * deviation_gradient[j]);
    }
}
