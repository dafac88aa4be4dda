/* Known answers and invariants of the kernels, in plain C, so that sanitizers see every access without Python between.
 *
 * Buffers are allocated at their exact size: an access one entry beyond is an error under the address sanitizer.
 * Prints one line a failure and returns 1 if there was any. */
#include "../kernels/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #condition);                               \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

static void *buffer(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + (count == 0), size);
    if (memory == NULL)
        abort();
    return memory;
}

static float *noise(int64_t n, uint64_t seed)
{
    float *out = buffer(n, sizeof(float));
    pyes_fill_noise(PYES_BASELINE, n, PYES_FLOAT32, seed, 0, out);
    return out;
}

static size_t entry_size(enum pyes_dtype dtype)
{
    return dtype == PYES_FLOAT32 ? 4 : dtype == PYES_BFLOAT16 ? 2 : 1;
}

/* Random123 (Salmon et al. 2011), file kat_vectors, "philox4x32 10". */
static void test_philox_published_vectors(void)
{
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t words[4];
    } vectors[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         0xffffffffffffffff,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct pyes_block x;
        memcpy(x.word, vectors[i].counter, sizeof x.word);
        x = philox_block(x, vectors[i].key);
        CHECK(memcmp(x.word, vectors[i].words, sizeof x.word) == 0);
    }
}

static void test_streams_lengths(void)
{
    for (int64_t n = 0; n < 10; n++) {
        uint32_t *words = buffer(n, sizeof *words);
        int64_t *numbers = buffer(n, sizeof *numbers);
        pyes_stream_bits(n, 1, 2, 3, 4, 5, words);
        pyes_draw_seeds(n, 1, 2, 3, 4, numbers);
        for (int64_t i = 0; i < n; i++)
            CHECK(numbers[i] >= 0 && numbers[i] < (int64_t)1 << 31);
        pyes_draw_offsets(n, 1, 2, 3, 7, numbers);
        for (int64_t i = 0; i < n; i++)
            CHECK(numbers[i] >= 0 && numbers[i] < 7);
        free(words);
        free(numbers);
    }
}

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

static void test_table_kernels(enum pyes_level level, enum pyes_dtype dtype)
{
    const size_t size = entry_size(dtype);
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
            pyes_perturb(PYES_BASELINE, dim, dtype, expected, table + (size_t)offsets[i] * size, NULL, weights[i],
                         expected);
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
            pyes_perturb(PYES_BASELINE, dim, dtype, expected, table + (size_t)offsets[i] * size, NULL, weights[i],
                         expected);
        CHECK(memcmp(out, expected, (size_t)dim * sizeof *out) == 0);
        float *deviation = noise(dim, 5);
        for (int scaled = 0; scaled < 2; scaled++) {
            const float *each = scaled ? deviation : NULL;
            pyes_perturb(level, dim, dtype, expected, table + 5 * size, each, 0.5f, out);
            pyes_perturb(PYES_BASELINE, dim, dtype, expected, table + 5 * size, each, 0.5f, expected);
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

static void test_centered_ranks(void)
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

static void test_optimizers(enum pyes_level level)
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

/* A network with the arrays that it runs on. */
struct network {
    int64_t n, packed_size, state_size;
    struct pyes_layer *layers;
    float *packed, *state, *scratch;
};

static struct network make_network(int64_t n, struct pyes_layer *layers, const float *theta)
{
    struct network made = {.n = n, .layers = layers};
    pyes_policy_place(n, layers, &made.packed_size, &made.state_size);
    made.packed = buffer(made.packed_size, sizeof *made.packed);
    made.state = buffer(made.state_size, sizeof *made.state);
    made.scratch = buffer(2 * layers[0].widest, sizeof *made.scratch);
    pyes_policy_pack(n, layers, theta, made.packed);
    return made;
}

static const float *run_network(const struct network *network, enum pyes_level level, const float *input)
{
    return pyes_policy_forward(level, network->n, network->layers, network->packed, input, network->state,
                               network->scratch);
}

static void free_network(struct network *network)
{
    free(network->packed), free(network->state), free(network->scratch);
}

static void test_policy(enum pyes_level level)
{
    struct pyes_layer layers[2] = {
        {.inputs = 3, .outputs = 70, .weight_offset = 0, .bias_offset = 210, .scale_offset = -1,
         .activation = PYES_TANH},
        {.inputs = 70, .outputs = 2, .weight_offset = 280, .bias_offset = -1, .scale_offset = -1,
         .activation = PYES_IDENTITY},
    };
    float *theta = noise(420, 5);
    struct network network = make_network(2, layers, theta);
    CHECK(network.state_size == 0 && pyes_layer_dim(&layers[1]) == 420);
    const float input[3] = {0.5f, -1.0f, 2.0f};
    const float *outputs = run_network(&network, level, input);
    for (int o = 0; o < 2; o++) {
        double expected = 0.0;
        for (int h = 0; h < 70; h++) {
            double hidden = (double)theta[210 + h];
            for (int i = 0; i < 3; i++)
                hidden += (double)theta[3 * h + i] * (double)input[i];
            expected += (double)theta[280 + 70 * o + h] * tanh(hidden);
        }
        CHECK(fabs((double)outputs[o] - expected) < 1e-5);
    }
    free_network(&network);
    free(theta);
}

/* Known answers: torch 2.13, nn.LSTMCell, nn.GRUCell and nn.RNNCell of 2 inputs and 3 units over 5 timesteps, in
 * float64. Parameter k of a cell is sin(k + 1), input i of timestep t is cos(3 t + i); listed is the last h. */
static void test_cells(enum pyes_level level)
{
    static const struct {
        enum pyes_op op;
        int64_t rows;
        double h[3];
    } cells[] = {
        {PYES_RNN, 3, {0.934722116, -0.798946311, -0.313917155}},
        {PYES_GRU, 9, {-0.146700438, 0.358578927, -0.869244177}},
        {PYES_LSTM, 12, {0.035045861, -0.503206717, -0.037871131}},
    };
    for (size_t k = 0; k < sizeof cells / sizeof *cells; k++) {
        const int64_t rows = cells[k].rows, dim = rows * (2 + 3 + 1 + 1);
        struct pyes_layer layer = {.op = cells[k].op, .inputs = 2, .outputs = 3, .scale_offset = -1};
        layer.recurrent_offset = 2 * rows, layer.bias_offset = 5 * rows, layer.recurrent_bias_offset = 6 * rows;
        layer.activation = layer.op == PYES_RNN ? PYES_TANH : PYES_IDENTITY;
        float *theta = buffer(dim, sizeof *theta);
        for (int64_t j = 0; j < dim; j++)
            theta[j] = (float)sin((double)(j + 1));
        CHECK(pyes_layer_dim(&layer) == dim);
        struct network network = make_network(1, &layer, theta);
        const float *h = NULL;
        for (int t = 0; t < 5; t++) {
            const float input[2] = {(float)cos(3.0 * t), (float)cos(3.0 * t + 1.0)};
            h = run_network(&network, level, input);
        }
        for (int o = 0; o < 3; o++)
            CHECK(fabs((double)h[o] - cells[k].h[o]) < 2e-6);
        free_network(&network);
        free(theta);
    }
}

/* Value (o, y, x) of a convolution of an image (2, 5, 4) with 17 kernels of 2 x 2, in double. */
static double convolved(const float *weights, const float *image, int64_t o, int64_t y, int64_t x)
{
    double sum = 0.0;
    for (int64_t c = 0; c < 2; c++)
        for (int64_t i = 0; i < 2; i++)
            for (int64_t j = 0; j < 2; j++)
                sum += (double)weights[((o * 2 + c) * 2 + i) * 2 + j] * (double)image[(c * 5 + y + i) * 4 + x + j];
    return sum;
}

/* One convolution with a ragged panel and ragged rows of pixels; normalised, its outputs have mean 0 and variance 1. */
static void test_convolution(enum pyes_level level)
{
    struct pyes_layer layer = {.op = PYES_CONV, .inputs = 40, .outputs = 17 * 12, .channels = 2, .height = 5};
    layer.width = 4, layer.kernel = 2, layer.stride = 1, layer.bias_offset = 136, layer.scale_offset = -1;
    float *theta = noise(136 + 34, 7), *batch = noise(3 * 40, 8), *values = buffer(3 * 17 * 12, sizeof *values);
    double *sums = buffer(64, sizeof *sums);
    CHECK(pyes_conv_pixels(&layer) == 12 && pyes_layer_dim(&layer) == 153);
    struct network network = make_network(1, &layer, theta);
    const float *outputs = run_network(&network, level, batch);
    for (int64_t o = 0; o < 17; o++)
        for (int64_t p = 0; p < 12; p++) {
            const double expected = (double)theta[136 + o] + convolved(theta, batch, o, p / 3, p % 3);
            CHECK(fabs((double)outputs[o * 12 + p] - expected) < 1e-5);
        }
    free_network(&network);

    layer.scale_offset = 153;
    for (int o = 0; o < 17; o++)
        theta[136 + o] = 0.0f, theta[153 + o] = 1.0f;
    network = make_network(1, &layer, theta);
    pyes_policy_normalize(level, 1, &layer, theta, 3, PYES_FLOAT, batch, network.packed, network.scratch, values, sums);
    double mean = 0.0, square = 0.0;
    for (int b = 0; b < 3; b++) {
        outputs = run_network(&network, level, batch + 40 * b);
        for (int p = 0; p < 12; p++)
            mean += (double)outputs[16 * 12 + p] / 36.0, square += pow((double)outputs[16 * 12 + p], 2.0) / 36.0;
    }
    CHECK(pyes_policy_reference_width(1, &layer) == 17 * 12 && fabs(mean) < 1e-5 && fabs(square - 1.0) < 1e-2);
    free_network(&network);
    free(theta), free(batch), free(values), free(sums);
}

static void test_actions(void)
{
    const float outputs[6] = {NAN, 3.0f, 3.0f, -9.0f, 0.0f, 9.0f}, low[2] = {-1.0f, 0.0f}, high[2] = {1.0f, 4.0f};
    float out[2], mean[2] = {1.0f, 0.0f}, inverse[2] = {2.0f, 100.0f};
    double sums[4] = {0.0};
    CHECK(pyes_argmax(6, outputs) == 5 && pyes_argmax(3, outputs) == 1 && pyes_argmax(1, outputs) == 0);
    pyes_box_action(2, PYES_BINS, 3, outputs, low, high, out);
    CHECK(out[0] == 0.0f && out[1] == 4.0f);
    pyes_box_action(2, PYES_CLIP, 0, outputs + 2, low, high, out);
    CHECK(out[0] == 1.0f && out[1] == 0.0f);
    pyes_normalize(2, outputs + 1, mean, inverse, 5.0f, out);
    CHECK(out[0] == 4.0f && out[1] == 5.0f);
    pyes_collect(2, outputs + 1, sums);
    CHECK(sums[0] == 3.0 && sums[2] == 9.0);
}

static void test_board(void)
{
    int64_t cursor = 99;
    int32_t *states = buffer(3, sizeof *states);
    pyes_board_open(3, &cursor, states);
    CHECK(pyes_board_claim(3, 0, &cursor, states) == 0);
    CHECK(pyes_board_claim(3, 1, &cursor, states) == 1);
    CHECK(pyes_board_release(3, 0, states) == 0);
    CHECK(pyes_board_claim(3, 1, &cursor, states) == 2);
    CHECK(pyes_board_claim(3, 1, &cursor, states) == 0);
    CHECK(pyes_board_claim(3, 1, &cursor, states) == -1);
    CHECK(pyes_board_finish(0, 0, states) == 0 && pyes_board_finish(0, 1, states) == 1);
    CHECK(pyes_board_remaining(3, states) == 2);
    int64_t members[3] = {0};
    CHECK(pyes_board_collect(3, states, members) == 1 && members[0] == 0 && pyes_board_collect(3, states, members) == 0);
    pyes_board_withhold(3, states);
    CHECK(pyes_board_remaining(3, states) == 0 && pyes_board_claim(3, 0, &cursor, states) == -1);
    pyes_board_offer(1, 3, &cursor, states);
    CHECK(pyes_board_claim(3, 0, &cursor, states) == 1 && pyes_board_withdraw(0, 3, states) == 1);
    CHECK(pyes_board_claim(3, 0, &cursor, states) == -1 && pyes_board_remaining(3, states) == 1);
    free(states);
}

int main(void)
{
    test_philox_published_vectors();
    test_streams_lengths();
    test_centered_ranks();
    test_actions();
    test_board();
    for (int l = 0; l < PYES_LEVELS; l++) {
        const enum pyes_level level = (enum pyes_level)l;
        if (!pyes_level_available(level))
            continue;
        for (int d = PYES_FLOAT32; d <= PYES_INT8; d++) {
            test_noise_any_range(level, (enum pyes_dtype)d);
            test_table_kernels(level, (enum pyes_dtype)d);
        }
        test_noise_is_standard_normal(level);
        test_optimizers(level);
        test_policy(level);
        test_cells(level);
        test_convolution(level);
        printf("level %s: done\n", pyes_level_name(level));
    }
    printf("%d checks failed\n", failures);
    return failures != 0;
}
