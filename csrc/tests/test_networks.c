/* Networks: linear layers against a naive forward pass, cells against torch, convolutions, normalised layers. */
#include "checks.h"

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
    pyes_policy_pack(PYES_BASELINE, n, layers, theta, NULL, made.packed);
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

/* Packing a perturbed theta gives the bits of perturbing it, then packing. */
static void test_perturbed(enum pyes_level level)
{
    enum { DIM = 40000, LAYERS = 5 };
    struct pyes_layer layers[LAYERS] = {
        {.op = PYES_LINEAR, .inputs = 130, .outputs = 200, .bias_offset = 26000},
        {.op = PYES_LINEAR, .inputs = 1, .outputs = 1, .bias_offset = -1},
        {.op = PYES_GRU, .inputs = 67, .outputs = 65, .recurrent_offset = 14000, .bias_offset = 8,
         .recurrent_bias_offset = 3},
        {.op = PYES_LSTM, .inputs = 5, .outputs = 16, .recurrent_offset = 1001, .bias_offset = -1,
         .recurrent_bias_offset = 1},
        {.op = PYES_CONV, .inputs = 3 * 81, .outputs = 17, .channels = 3, .height = 9, .width = 9, .kernel = 9,
         .stride = 1, .weight_offset = 77},
    };
    static const enum pyes_dtype dtypes[] = {PYES_FLOAT32, PYES_BFLOAT16, PYES_INT8};
    float *theta = noise(DIM, 1), *each = noise(DIM, 2), *whole = buffer(DIM, sizeof *whole);
    void *slice = buffer(DIM + 1, sizeof *whole);
    for (int64_t k = 0; k < LAYERS; k++)
        layers[k].scale_offset = -1;
    for (int k = 0; k < 6; k++) {
        const enum pyes_dtype dtype = dtypes[k / 2];
        const float *deviation = k % 2 ? each : NULL;
        pyes_fill_noise(level, DIM, dtype, 3, 1, slice);
        pyes_perturb(PYES_BASELINE, DIM, dtype, theta, slice, deviation, -0.02, whole);
        struct network expected = make_network(LAYERS, layers, whole), network = make_network(LAYERS, layers, theta);
        CHECK(memcmp(expected.packed, network.packed, (size_t)network.packed_size * sizeof *whole) != 0);
        const struct pyes_perturbation perturbation = {dtype, slice, deviation, -0.02};
        pyes_policy_pack(level, LAYERS, layers, theta, &perturbation, network.packed);
        CHECK(memcmp(expected.packed, network.packed, (size_t)network.packed_size * sizeof *whole) == 0);
        free_network(&expected), free_network(&network);
    }
    free(theta), free(each), free(whole), free(slice);
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
    pyes_policy_batch_norm(level, 1, &layer, theta, 3, PYES_FLOAT, batch, network.packed, network.scratch, values,
                           sums);
    double mean = 0.0, square = 0.0;
    for (int b = 0; b < 3; b++) {
        outputs = run_network(&network, level, batch + 40 * b);
        for (int p = 0; p < 12; p++)
            mean += (double)outputs[16 * 12 + p] / 36.0, square += pow((double)outputs[16 * 12 + p], 2.0) / 36.0;
    }
    CHECK(pyes_policy_batch_norm_width(1, &layer) == 17 * 12 && fabs(mean) < 1e-5 && fabs(square - 1.0) < 1e-2);
    free_network(&network);
    free(theta), free(batch), free(values), free(sums);
}

void test_networks(enum pyes_level level)
{
    test_policy(level);
    test_cells(level);
    test_perturbed(level);
    test_convolution(level);
}
