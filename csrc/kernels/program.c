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

/* Writes (QUAD, QUAD), its rows `pitch` apart, transposed, to rows that are `width` apart. Adding 0 leaves no -0, as in
 * a sum. */
static void transpose_quad(int64_t pitch, const float *from, int64_t width, float *to)
{
#if defined(__clang__) || !defined(__GNUC__)
    for (int64_t o = 0; o < QUAD; o++)
        for (int64_t i = 0; i < QUAD; i++)
            to[i * width + o] = 0.0f + from[o * pitch + i];
#else
    typedef float quad __attribute__((vector_size(16)));
    typedef int32_t places __attribute__((vector_size(16)));
    const places low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, front = {0, 1, 4, 5}, back = {2, 3, 6, 7};
    const quad zero = {0};
    quad rows[QUAD], columns[QUAD];
    for (int64_t o = 0; o < QUAD; o++)
        memcpy(&rows[o], from + o * pitch, sizeof(quad));
    const quad a = __builtin_shuffle(rows[0], rows[1], low), b = __builtin_shuffle(rows[0], rows[1], high);
    const quad c = __builtin_shuffle(rows[2], rows[3], low), d = __builtin_shuffle(rows[2], rows[3], high);
    columns[0] = zero + __builtin_shuffle(a, c, front), columns[1] = zero + __builtin_shuffle(a, c, back);
    columns[2] = zero + __builtin_shuffle(b, d, front), columns[3] = zero + __builtin_shuffle(b, d, back);
    for (int64_t i = 0; i < QUAD; i++)
        memcpy(to + i * width, &columns[i], sizeof(quad));
#endif
}

/* Writes values (outputs, inputs), their rows `pitch` apart, transposed, to rows that are `width` apart; the lanes
 * above outputs become 0. Whole cache lines are written, since the rows may be a page apart. */
static void transpose(int64_t outputs, int64_t inputs, int64_t pitch, const float *from, int64_t width, float *to)
{
    const int64_t whole = outputs == PYES_LANES ? inputs / QUAD * QUAD : 0;
    for (int64_t i = 0; i < whole; i += QUAD)
        for (int64_t o = 0; o < PYES_LANES; o += QUAD)
            transpose_quad(pitch, from + o * pitch + i, width, to + i * width + o);
    for (int64_t i = whole; i < inputs; i++)
        for (int64_t o = 0; o < PYES_LANES; o++)
            to[i * width + o] = o < outputs ? 0.0f + from[o * pitch + i] : 0.0f;
}

enum {
    COLUMNS = 63 * PYES_LANES, /* of a strip; no power of two, whose rows would share cache sets */
    STRIP = PYES_LANES * COLUMNS,
};

/* Parameters to be packed: theta, or theta perturbed. */
struct source {
    const float *theta;
    const struct pyes_perturbation *perturbation; /* or NULL */
    void (*perturb)(int64_t, enum pyes_dtype, const float *, const void *, const float *, double, float *);
};

/* Parameters first, first + 1, ...: where they are, or perturbed, in a buffer (count). */
static const float *parameters(const struct source *from, int64_t first, int64_t count, float *buffer)
{
    const struct pyes_perturbation *by = from->perturbation;
    if (by == NULL)
        return from->theta + first;
    from->perturb(count, by->dtype, from->theta + first, (const char *)by->slice + first * pyes_entry_size(by->dtype),
                  by->deviation ? by->deviation + first : NULL, by->scale, buffer);
    return buffer;
}

/* Rows of weights, `inputs` apart, from parameter `first` on: where they are, or perturbed, in a buffer. Rows without
 * gaps are one range. */
static const float *strip(const struct source *from, int64_t first, int64_t inputs, int64_t rows, int64_t columns,
                          int64_t *pitch, float *buffer)
{
    *pitch = from->perturbation ? columns : inputs;
    if (columns == inputs || !from->perturbation)
        return parameters(from, first, rows * columns, buffer);
    for (int64_t row = 0; row < rows; row++)
        parameters(from, first + row * inputs, columns, buffer + row * columns);
    return buffer;
}

/* Packs weights (outputs, inputs) to one block of columns, transposed. By strips of rows, so that what was perturbed is
 * still in the cache: of whole rows where these fit, since memory is fastest in order; else of more and shorter ones,
 * since those of the packed weights are a page apart. */
static void pack_block(const struct pyes_layer *layer, int64_t inputs, const struct source *from, int64_t offset,
                       int64_t width, float *to)
{
    float buffer[STRIP] PYES_ALIGNED;
    const int64_t height = inputs <= COLUMNS ? PYES_LANES : 4 * PYES_LANES, length = STRIP / height;
    for (int64_t o = 0; o < layer->outputs; o += height) {
        const int64_t rows = layer->outputs - o < height ? layer->outputs - o : height;
        for (int64_t i = 0; i < inputs; i += length) {
            const int64_t columns = inputs - i < length ? inputs - i : length;
            int64_t pitch;
            const float *values = strip(from, offset + o * inputs + i, inputs, rows, columns, &pitch, buffer);
            for (int64_t lane = 0; lane < rows; lane += PYES_LANES)
                transpose(rows - lane < PYES_LANES ? rows - lane : PYES_LANES, columns, pitch, values + lane * pitch,
                          width, to + i * width + o + lane);
        }
    }
}

/* The column block of a block of theta: the last one of a GRU's recurrent arrays goes one further. */
static int64_t column_of(const struct pyes_layer *layer, int recurrent, int64_t block)
{
    return block + (recurrent && layer->op == PYES_GRU && block == 2);
}

/* Packs all blocks of the weights of x, or of h. A GRU has a block of columns for the other one alone: zeros. */
static void pack_weights(const struct pyes_layer *layer, int recurrent, const struct source *from, int64_t offset,
                         float *to)
{
    const int64_t inputs = recurrent ? layer->outputs : layer->inputs, width = pyes_layer_width(layer);
    for (int64_t b = 0; b < theta_blocks(layer->op); b++)
        pack_block(layer, inputs, from, offset + b * layer->outputs * inputs, width,
                   to + column_of(layer, recurrent, b) * layer->lanes);
    for (int64_t i = 0; i < inputs && layer->op == PYES_GRU; i++)
        memset(to + i * width + (recurrent ? 2 : 3) * layer->lanes, 0, sizeof(float) * (size_t)layer->lanes);
}

/* Adds all blocks of a bias, if there is one. */
static void add_bias(const struct pyes_layer *layer, int recurrent, const struct source *from, int64_t offset,
                     float *to)
{
    float buffer[COLUMNS];
    for (int64_t b = 0; b < theta_blocks(layer->op) && offset >= 0; b++)
        for (int64_t o = 0; o < layer->filters; o += COLUMNS) {
            const int64_t count = layer->filters - o < COLUMNS ? layer->filters - o : COLUMNS;
            const float *values = parameters(from, offset + b * layer->filters + o, count, buffer);
            for (int64_t k = 0; k < count; k++)
                to[column_of(layer, recurrent, b) * layer->lanes + o + k] += values[k];
        }
}

/* Packs the weights (filters, channels, kernel * kernel) of a convolution as conv.h takes them. */
static void pack_filters(const struct pyes_layer *layer, const struct source *from, float *to)
{
    const int64_t area = layer->kernel * layer->kernel, taps = layer->channels * area;
    float buffer[COLUMNS];
    for (int64_t o = 0; o < layer->filters; o++) {
        float *lane = to + o / PYES_LANES * PYES_LANES * taps + o % PYES_LANES;
        for (int64_t tap = 0; tap < taps; tap += COLUMNS) {
            const int64_t count = taps - tap < COLUMNS ? taps - tap : COLUMNS;
            const float *values = parameters(from, layer->weight_offset + o * taps + tap, count, buffer);
            for (int64_t k = 0; k < count; k++)
                lane[((tap + k) % area * layer->channels + (tap + k) / area) * PYES_LANES] = values[k];
        }
    }
}

static void pack_layer(const struct pyes_layer *layer, const struct source *from, float *packed)
{
    const int64_t width = pyes_layer_width(layer);
    float *weights = packed + width;
    memset(packed, 0, sizeof(float) * (size_t)width);
    add_bias(layer, 0, from, layer->bias_offset, packed);
    if (layer->op == PYES_CONV) {
        memset(weights, 0, sizeof(float) * (size_t)(width * joined_inputs(layer)));
        pack_filters(layer, from, weights);
        return;
    }
    pack_weights(layer, 0, from, layer->weight_offset, weights);
    if (!remembers(layer->op))
        return;
    add_bias(layer, 1, from, layer->recurrent_bias_offset, packed);
    pack_weights(layer, 1, from, layer->recurrent_offset, weights + layer->inputs * width);
}

void pyes_policy_pack_unguarded(int64_t n, const struct pyes_layer *layers, const float *theta,
                                const struct pyes_perturbation *perturbation,
                                void (*perturb)(int64_t, enum pyes_dtype, const float *, const void *, const float *,
                                                double, float *),
                                float *packed)
{
    const struct source from = {theta, perturbation, perturb};
    for (int64_t k = 0; k < n; k++)
        if (layers[k].op != PYES_SCALE)
            pack_layer(&layers[k], &from, packed + layers[k].packed_offset);
}
