/* One step of an optimiser, ascending, in place. Owns the update rules; must not know where the gradient came from.
 *
 * Scalars arrive in double, are combined in double and rounded to float once; parameters are float throughout. Weight
 * decay is decoupled from the gradient (Loshchilov & Hutter 2019): theta shrinks by learning_rate * weight_decay. */
#include "wide.h"

enum {
    SUMS = 32, /* partial sums: fixed, so that every width adds in the same order */
};

/* Sum of squares, value j in partial sum j % SUMS; float64, since a million float32 squares lose digits in float32. */
PYES_INLINE double sum_of_squares(int64_t n, const float *values)
{
    double sums[SUMS] = {0.0};
    int64_t first = 0;
    for (; first + SUMS <= n; first += SUMS)
        for (int64_t k = 0; k < SUMS; k++)
            sums[k] += (double)values[first + k] * (double)values[first + k];
    for (int64_t k = 0; first + k < n; k++)
        sums[k] += (double)values[first + k] * (double)values[first + k];
    double total = 0.0;
    for (int64_t k = 0; k < SUMS; k++)
        total += sums[k];
    return total;
}

/* base^exponent by squaring: libm's pow need not agree between machines. */
PYES_INLINE double power(double base, int64_t exponent)
{
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            result *= base;
        base *= base;
    }
    return result;
}

/* velocity = momentum * velocity + gain * gradient */
PYES_INLINE void accelerate(int64_t dim, const float *gradient, float momentum, float gain, float *velocity)
{
    PYES_INDEPENDENT
    for (int64_t j = 0; j < dim; j++)
        velocity[j] = momentum * velocity[j] + gain * gradient[j];
}

/* theta += rate * velocity - decay * theta */
PYES_INLINE void move(int64_t dim, const float *velocity, float rate, float decay, float *theta)
{
    PYES_INDEPENDENT
    for (int64_t j = 0; j < dim; j++)
        theta[j] = theta[j] + (rate * velocity[j] - decay * theta[j]);
}

/* Kingma & Ba 2015, algorithm 1: m_hat = m / (1 - beta1^t), v_hat = v / (1 - beta2^t). */
void PYES_WIDE(pyes_adam_step)(int64_t dim, const float *gradient, int64_t step, double learning_rate, double beta1,
                               double beta2, double epsilon, double weight_decay, float *theta, float *m, float *v)
{
    const float b1 = (float)beta1, c1 = (float)(1.0 - beta1);
    const float b2 = (float)beta2, c2 = (float)(1.0 - beta2);
    const float rate = (float)(learning_rate / (1.0 - power(beta1, step)));
    const float spread = (float)(1.0 / sqrt(1.0 - power(beta2, step)));
    const float eps = (float)epsilon, decay = (float)(learning_rate * weight_decay);
    PYES_INDEPENDENT
    for (int64_t j = 0; j < dim; j++) {
        const float g = gradient[j];
        const float m1 = b1 * m[j] + c1 * g;
        const float v1 = b2 * v[j] + c2 * (g * g);
        m[j] = m1;
        v[j] = v1;
        theta[j] = theta[j] + (rate * m1 / (sqrtf(v1) * spread + eps) - decay * theta[j]);
    }
}

void PYES_WIDE(pyes_sgd_step)(int64_t dim, const float *gradient, double learning_rate, double momentum,
                              double weight_decay, float *theta, float *velocity)
{
    accelerate(dim, gradient, (float)momentum, 1.0f, velocity);
    move(dim, velocity, (float)learning_rate, (float)(learning_rate * weight_decay), theta);
}

/* Toklu, Liskowski & Srivastava 2020, "ClipUp", algorithm 1. With a gradient of zero, or so short that float has
 * no factor for it, only momentum acts. */
void PYES_WIDE(pyes_clipup_step)(int64_t dim, const float *gradient, double learning_rate, double momentum,
                                 double max_speed, double weight_decay, float *theta, float *velocity)
{
    const double length = sqrt(sum_of_squares(dim, gradient));
    const double gain = length > 0.0 ? learning_rate / length : 0.0;
    accelerate(dim, gradient, (float)momentum, gain <= FLT_MAX ? (float)gain : 0.0f, velocity);
    const double speed = sqrt(sum_of_squares(dim, velocity));
    if (speed > max_speed) {
        const float shrink = (float)(max_speed / speed);
        PYES_INDEPENDENT
        for (int64_t j = 0; j < dim; j++)
            velocity[j] *= shrink;
    }
    move(dim, velocity, 1.0f, (float)(learning_rate * weight_decay), theta);
}
