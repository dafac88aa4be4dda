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

enum { QUAD = 4 }; /* rows and columns that are transposed in registers */

/* Transposes (QUAD, QUAD), its rows `pitch` apart, to rows of a tile. */
static void transpose_quad(const float *from, int64_t pitch, float (*tile)[PYES_LANES])
{
#if defined(__clang__) || !defined(__GNUC__)
    for (int64_t o = 0; o < QUAD; o++)
        for (int64_t i = 0; i < QUAD; i++)
            tile[i][o] = from[o * pitch + i];
#else
    typedef float quad __attribute__((vector_size(16)));
    typedef int32_t places __attribute__((vector_size(16)));
    const places low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, front = {0, 1, 4, 5}, back = {2, 3, 6, 7};
    quad rows[QUAD], columns[QUAD];
    for (int64_t o = 0; o < QUAD; o++)
        memcpy(&rows[o], from + o * pitch, sizeof(quad));
    const quad a = __builtin_shuffle(rows[0], rows[1], low), b = __builtin_shuffle(rows[0], rows[1], high);
    const quad c = __builtin_shuffle(rows[2], rows[3], low), d = __builtin_shuffle(rows[2], rows[3], high);
    columns[0] = __builtin_shuffle(a, c, front), columns[1] = __builtin_shuffle(a, c, back);
    columns[2] = __builtin_shuffle(b, d, front), columns[3] = __builtin_shuffle(b, d, back);
    for (int64_t i = 0; i < QUAD; i++)
        memcpy(tile[i], &columns[i], sizeof(quad));
#endif
}

/* Transposes (outputs, inputs), both at most PYES_LANES, to a tile (inputs, PYES_LANES) whose other lanes are 0. */
static void transpose_tile(const float *from, int64_t pitch, int64_t outputs, int64_t inputs,
                           float (*tile)[PYES_LANES])
{
    if (outputs == PYES_LANES && inputs == PYES_LANES) {
        for (int64_t o = 0; o < PYES_LANES; o += QUAD)
            for (int64_t i = 0; i < PYES_LANES; i += QUAD)
                transpose_quad(from + o * pitch + i, pitch, (float(*)[PYES_LANES])(tile[i] + o));
        return;
    }
    for (int64_t i = 0; i < inputs; i++)
        for (int64_t o = 0; o < PYES_LANES; o++)
            tile[i][o] = o < outputs ? from[o * pitch + i] : 0.0f;
}

/* Packs weights (outputs, inputs) to one block of columns, transposed. By tiles that are read and written in whole
 * cache lines, since both sides may have rows that are a page apart. */
static void pack_block(const struct pyes_layer *layer, int64_t inputs, const float *from, int64_t width, float *to)
{
    float tile[PYES_LANES][PYES_LANES] PYES_ALIGNED;
    for (int64_t o = 0; o < layer->lanes; o += PYES_LANES) {
        const int64_t rows = layer->outputs - o < PYES_LANES ? layer->outputs - o : PYES_LANES;
        for (int64_t i = 0; i < inputs; i += PYES_LANES) {
            const int64_t columns = inputs - i < PYES_LANES ? inputs - i : PYES_LANES;
            transpose_tile(from + o * inputs + i, inputs, rows, columns, tile);
            for (int64_t k = 0; k < columns; k++)
                for (int64_t lane = 0; lane < PYES_LANES; lane++)
                    to[(i + k) * width + o + lane] = 0.0f + tile[k][lane]; /* as in a sum: no -0 */
        }
    }
}

/* The column block of a block of theta: the last one of a GRU's recurrent arrays goes one further. */
static int64_t column_of(const struct pyes_layer *layer, int recurrent, int64_t block)
{
    return block + (recurrent && layer->op == PYES_GRU && block == 2);
}

/* Packs all blocks of the weights of x, or of h. A GRU has a block of columns for the other one alone: zeros. */
static void pack_weights(const struct pyes_layer *layer, int recurrent, const float *from, float *to)
{
    const int64_t inputs = recurrent ? layer->outputs : layer->inputs, width = pyes_layer_width(layer);
    for (int64_t b = 0; b < theta_blocks(layer->op); b++)
        pack_block(layer, inputs, from + b * layer->outputs * inputs, width,
                   to + column_of(layer, recurrent, b) * layer->lanes);
    for (int64_t i = 0; i < inputs && layer->op == PYES_GRU; i++)
        memset(to + i * width + (recurrent ? 2 : 3) * layer->lanes, 0, sizeof(float) * (size_t)layer->lanes);
}

/* Adds all blocks of a bias, if there is one. */
static void add_bias(const struct pyes_layer *layer, int recurrent, const float *theta, int64_t offset, float *to)
{
    for (int64_t b = 0; b < theta_blocks(layer->op) && offset >= 0; b++)
        for (int64_t o = 0; o < layer->filters; o++)
            to[column_of(layer, recurrent, b) * layer->lanes + o] += theta[offset + b * layer->filters + o];
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
    memset(packed, 0, sizeof(float) * (size_t)width);
    add_bias(layer, 0, theta, layer->bias_offset, packed);
    if (layer->op == PYES_CONV) {
        memset(weights, 0, sizeof(float) * (size_t)(width * joined_inputs(layer)));
        pack_filters(layer, theta + layer->weight_offset, weights);
        return;
    }
    pack_weights(layer, 0, theta + layer->weight_offset, weights);
    if (!remembers(layer->op))
        return;
    add_bias(layer, 1, theta, layer->recurrent_bias_offset, packed);
    pack_weights(layer, 1, theta + layer->recurrent_offset, weights + layer->inputs * width);
}

void pyes_policy_pack_unguarded(int64_t n, const struct pyes_layer *layers, const float *theta, float *packed)
{
    for (int64_t k = 0; k < n; k++)
        if (layers[k].op != PYES_SCALE)
            pack_layer(&layers[k], theta, packed + layers[k].packed_offset);
}
