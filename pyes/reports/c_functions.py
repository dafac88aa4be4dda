"""The C functions of an exported policy: the arithmetic of ``csrc/kernels`` as plain scalar code.

Owns their text; knows no policy. Invariant: each does the operations of the kernel of the same purpose in the same
order, so that it gives equal bits.
"""

import re

#: Each after those that it calls.
_FUNCTIONS = {
    "copy": """\
static void copy(int count, const float *from, float *to)
{
    for (int i = 0; i < count; i++)
        to[i] = from[i];
}""",
    "bits_of_float": """\
static uint32_t bits_of_float(float x)
{
    union { float number; uint32_t bits; } value;
    value.number = x;
    return value.bits;
}""",
    "float_of_bits": """\
static float float_of_bits(uint32_t bits)
{
    union { float number; uint32_t bits; } value;
    value.bits = bits;
    return value.number;
}""",
    "absolute": """\
static float absolute(float x)
{
    return float_of_bits(bits_of_float(x) & 0x7FFFFFFFu);
}""",
    "exponential": """\
/* e^x, with x held in [-87, 88]; relative error below 2.5e-7. */
static float exponential(float x)
{
    const float low = x < -87.0f ? -87.0f : x;
    const float bounded = low > 88.0f ? 88.0f : low;
    const float shifted = bounded * 1.44269504f + 12582912.0f; /* the low bits now hold round(x / ln 2) */
    const float k = shifted - 12582912.0f;
    const float r = (bounded - k * 0.693359375f) + k * 2.12194440e-4f; /* x - k ln 2, with ln 2 in two parts */
    float series = 1.0f / 720.0f;
    series = series * r + 1.0f / 120.0f;
    series = series * r + 1.0f / 24.0f;
    series = series * r + 1.0f / 6.0f;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    return series * float_of_bits((bits_of_float(shifted) - 0x4B400000u + 127u) << 23);
}""",
    "hyperbolic_tangent": """\
static float hyperbolic_tangent(float x)
{
    const uint32_t sign = bits_of_float(x) & 0x80000000u;
    const float e = exponential(-2.0f * absolute(x));
    return float_of_bits(bits_of_float((1.0f - e) / (1.0f + e)) | sign);
}""",
    "logistic": """\
static float logistic(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}""",
    "relu": """\
static float relu(float x)
{
    return x < 0.0f ? 0.0f : x;
}""",
    "elu": """\
static float elu(float x)
{
    return x > 0.0f ? x : exponential(x) - 1.0f;
}""",
    "leaky_relu": """\
static float leaky_relu(float x)
{
    return x < 0.0f ? 0.01f * x : x;
}""",
    "silu": """\
static float silu(float x)
{
    return x * logistic(x);
}""",
    "gelu": """\
static float gelu(float x)
{
    return 0.5f * x * (1.0f + hyperbolic_tangent(0.797884561f * (x + 0.044715f * x * x * x)));
}""",
    "softsign": """\
static float softsign(float x)
{
    return x / (1.0f + absolute(x));
}""",
    "clip": """\
static float clip(float x, float low, float high)
{
    const float above = x < low ? low : x;
    return above > high ? high : above;
}""",
    "normalize": """\
static void normalize(int count, const float *mean, const float *inverse_std, float limit, const float *from, float *to)
{
    for (int i = 0; i < count; i++)
        to[i] = clip((from[i] - mean[i]) * inverse_std[i], -limit, limit);
}""",
    "linear": """\
/* Weights: the bias (outputs), then (inputs, outputs). Every output adds its inputs in order. */
static void linear(int inputs, int outputs, const float *weights, const float *x, float *y)
{
    for (int o = 0; o < outputs; o++)
        y[o] = weights[o];
    for (int i = 0; i < inputs; i++) {
        weights += outputs;
        for (int o = 0; o < outputs; o++)
            y[o] += x[i] * weights[o];
    }
}""",
    "convolution": """\
/* Weights: the bias (filters), then (kernel, kernel, channels, filters). Images are (channels, height, width). */
static void convolution(int channels, int height, int width, int filters, int kernel, int stride, const float *weights,
                        const float *x, float *y)
{
    const int down = (height - kernel) / stride + 1, across = (width - kernel) / stride + 1;
    for (int f = 0; f < filters; f++)
        for (int place = 0; place < down * across; place++) {
            const float *weight = weights + filters + f;
            const float *corner = x + place / across * stride * width + place % across * stride;
            float sum = weights[f];
            for (int row = 0; row < kernel; row++)
                for (int column = 0; column < kernel; column++)
                    for (int c = 0; c < channels; c++, weight += filters)
                        sum += corner[(c * height + row) * width + column] * *weight;
            y[f * down * across + place] = sum;
        }
}""",
    "gru": """\
/* One timestep; the memory is the input and h. Gates: reset, update, new from x, new from h. Returns h. */
static const float *gru(int inputs, int units, const float *weights, const float *x, float *memory, float *gates)
{
    float *h = memory + inputs;
    copy(inputs, x, memory);
    linear(inputs + units, 4 * units, weights, memory, gates);
    for (int j = 0; j < units; j++) {
        const float reset = logistic(gates[j]);
        const float update = logistic(gates[units + j]);
        const float fresh = hyperbolic_tangent(gates[2 * units + j] + reset * gates[3 * units + j]);
        h[j] = (1.0f - update) * fresh + update * h[j];
    }
    return h;
}""",
    "lstm": """\
/* One timestep; the memory is the input, h and c. Gates: input, forget, cell, output. Returns h. */
static const float *lstm(int inputs, int units, const float *weights, const float *x, float *memory, float *gates)
{
    float *h = memory + inputs, *c = h + units;
    copy(inputs, x, memory);
    linear(inputs + units, 4 * units, weights, memory, gates);
    for (int j = 0; j < units; j++) {
        const float input = logistic(gates[j]);
        const float forget = logistic(gates[units + j]);
        const float fresh = hyperbolic_tangent(gates[2 * units + j]);
        const float output = logistic(gates[3 * units + j]);
        c[j] = forget * c[j] + input * fresh;
        h[j] = output * hyperbolic_tangent(c[j]);
    }
    return h;
}""",
    "largest": """\
/* Index of the largest of some outputs, the first among equals; NaN counts as lowest. */
static int largest(int count, const float *outputs)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (outputs[i] > outputs[best] || (outputs[best] != outputs[best] && outputs[i] == outputs[i]))
            best = i;
    return best;
}""",
    "scaled": """\
static float scaled(float x, float low, float high)
{
    return clip(low + (clip(x, -1.0f, 1.0f) + 1.0f) * 0.5f * (high - low), low, high);
}""",
    "squashed": """\
static float squashed(float x, float low, float high)
{
    return clip(low + (hyperbolic_tangent(x) + 1.0f) * 0.5f * (high - low), low, high);
}""",
    "binned": """\
static float binned(int bins, const float *outputs, float low, float high)
{
    const float share = (float)largest(bins, outputs) / (float)(bins - 1);
    return clip(low + (high - low) * share, low, high);
}""",
    "rounded": """\
/* To the next integer, halves to the even one; up to 2^24. */
static float rounded(float x)
{
    const double shift = 6755399441055744.0;
    return x == x ? (float)((double)x + shift - shift) : 0.0f;
}""",
}


def source(code: str) -> str:
    """Return the functions that C code calls and all that these call, each after those that it calls."""
    wanted: list[str] = []
    for name, function in reversed(_FUNCTIONS.items()):
        if re.search(rf"\b{name}\(", code):
            wanted.insert(0, function)
            code += function
    return "\n\n".join(wanted)
