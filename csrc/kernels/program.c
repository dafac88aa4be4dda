/* A compiled network as data: its size, and its weights packed from theta. Owns the packed layout and the places of the
 * states: of a recurrent layer c (lanes, LSTM alone), then its input [x; h] (inputs + lanes). */
#include "unguarded.h"
#include "wide.h"

static int64_t round_up(int64_t length)
{
    return (length + PYES_LANES - 1) / PYES_LANES * PYES_LANES;
}

/* Blocks of `outputs` rows that the weights have in theta. */
static int64_t theta_blocks(enum pyes_op op)
{
    return op == PYES_LSTM ? 4 : op == PYES_GRU ? 3 : 1;
}

/* Values that one output of a layer's linear map takes: x, [x; h], or a window. */
static int64_t joined_inputs(const struct pyes_layer *layer)
{
    if (layer->op == PYES_CONV)
        return layer->kernel * layer->kernel * layer->channels;
    return layer->inputs + (remembers(layer->op) ? layer->outputs : 0);
}

static int64_t layer_state(const struct pyes_layer *layer)
{
    if (!remembers(layer->op))
        return 0;
    return round_up(layer->inputs + layer->lanes) + (layer->op == PYES_LSTM ? layer->lanes : 0);
}

int64_t pyes_layer_width(const struct pyes_layer *layer)
{
    return layer->op == PYES_LSTM || layer->op == PYES_GRU ? 4 * layer->lanes : layer->lanes;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The most values that a layer writes or reorders. */
static int64_t widest_layer(int64_t n, const struct pyes_layer *layers)
{
    int64_t widest = 0;
    for (int64_t k = 0; k < n; k++) {
        widest = larger(widest, larger(pyes_layer_width(&layers[k]), round_up(layers[k].outputs)));
        if (layers[k].op == PYES_CONV) /* its inputs are reordered to channels last */
            widest = larger(widest, round_up(layers[k].inputs));
        if (layers[k].scale_offset >= 0) /* the reference batch goes through all layers up to it */
            widest = larger(widest, round_up(layers[0].inputs));
    }
    return widest;
}

int64_t pyes_policy_batch_norm_width(int64_t n, const struct pyes_layer *layers)
{
    int64_t widest = 0;
    for (int64_t k = 0; k < n; k++)
        if (layers[k].scale_offset >= 0)
            widest = larger(widest, layers[k].outputs);
    return widest;
}

int64_t pyes_conv_pixels(const struct pyes_layer *layer)
{
    const int64_t down = (layer->height - layer->kernel) / layer->stride + 1;
    return down * ((layer->width - layer->kernel) / layer->stride + 1);
}

void pyes_policy_place(int64_t n, struct pyes_layer *layers, int64_t *packed_size, int64_t *state_size)
{
    *packed_size = *state_size = 0;
    for (int64_t k = 0; k < n; k++) {
        struct pyes_layer *layer = &layers[k];
        layer->pixels = layer->op == PYES_CONV ? pyes_conv_pixels(layer) : 1;
        layer->filters = layer->outputs / layer->pixels;
        layer->lanes = round_up(layer->filters);
        layer->packed_offset = *packed_size;
        layer->state_offset = *state_size;
        *packed_size += layer->op == PYES_SCALE ? 0 : (joined_inputs(layer) + 1) * pyes_layer_width(layer);
        *state_size += layer_state(layer);
    }
    const int64_t widest = widest_layer(n, layers);
    for (int64_t k = 0; k < n; k++)
        layers[k].widest = widest;
}

static int64_t later(int64_t end, int64_t offset, int64_t size)
{
    return offset >= 0 && offset + size > end ? offset + size : end;
}

int64_t pyes_layer_dim(const struct pyes_layer *layer)
{
    const int64_t filters = layer->op == PYES_CONV ? layer->outputs / pyes_conv_pixels(layer) : layer->outputs;
    const int64_t rows = theta_blocks(layer->op) * filters;
    const int64_t columns = remembers(layer->op) ? layer->inputs : joined_inputs(layer);
    if (layer->op == PYES_SCALE)
        return 0;
    int64_t end = later(later(0, layer->weight_offset, rows * columns), layer->bias_offset, rows);
    end = later(end, layer->scale_offset, rows);
    if (remembers(layer->op))
        end = later(later(end, layer->recurrent_offset, rows * layer->outputs), layer->recurrent_bias_offset, rows);
    return end;
}

/* Adds one block of rows of theta to one block of columns: a bias (rows 1), or weights (outputs, rows) transposed. */
static void pack_block(const struct pyes_layer *layer, int64_t rows, const float *from, int64_t width, float *to)
{
    for (int64_t first = 0; first < layer->outputs; first += PYES_LANES) { /* whole cache lines of `to` at a time */
        const int64_t end = first + PYES_LANES < layer->outputs ? first + PYES_LANES : layer->outputs;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t o = first; o < end; o++)
                to[i * width + o] += from[o * rows + i];
    }
}

/* Packs all blocks of one array of theta; the last block of a GRU's recurrent arrays goes one column block further. */
static void pack_array(const struct pyes_layer *layer, int recurrent, int64_t rows, const float *theta, int64_t offset,
                       float *to)
{
    const int64_t blocks = theta_blocks(layer->op), width = pyes_layer_width(layer);
    if (offset < 0)
        return;
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t column = b + (recurrent && layer->op == PYES_GRU && b == 2);
        pack_block(layer, rows, theta + offset + b * layer->outputs * rows, width, to + column * layer->lanes);
    }
}

/* Packs the weights (filters, channels, kernel, kernel) of a convolution as conv.h takes them. */
static void pack_filters(const struct pyes_layer *layer, const float *from, float *to)
{
    const int64_t area = layer->kernel * layer->kernel, taps = layer->channels * area;
    for (int64_t o = 0; o < layer->filters; o++) {
        float *lane = to + o / PYES_LANES * PYES_LANES * taps + o % PYES_LANES;
        for (int64_t c = 0; c < layer->channels; c++)
            for (int64_t place = 0; place < area; place++)
                lane[(place * layer->channels + c) * PYES_LANES] = from[o * taps + c * area + place];
    }
}

static void pack_layer(const struct pyes_layer *layer, const float *theta, float *packed)
{
    const int64_t width = pyes_layer_width(layer);
    float *weights = packed + width;
    for (int64_t j = 0; j < width * (joined_inputs(layer) + 1); j++)
        packed[j] = 0.0f;
    if (layer->op == PYES_CONV) {
        for (int64_t o = 0; layer->bias_offset >= 0 && o < layer->filters; o++)
            packed[o] = theta[layer->bias_offset + o];
        pack_filters(layer, theta + layer->weight_offset, weights);
        return;
    }
    pack_array(layer, 0, 1, theta, layer->bias_offset, packed);
    pack_array(layer, 0, layer->inputs, theta, layer->weight_offset, weights);
    if (!remembers(layer->op))
        return;
    pack_array(layer, 1, 1, theta, layer->recurrent_bias_offset, packed);
    pack_array(layer, 1, layer->outputs, theta, layer->recurrent_offset, weights + layer->inputs * width);
}

void pyes_policy_pack_unguarded(int64_t n, const struct pyes_layer *layers, const float *theta, float *packed)
{
    for (int64_t k = 0; k < n; k++)
        if (layers[k].op != PYES_SCALE)
            pack_layer(&layers[k], theta, packed + layers[k].packed_offset);
}
