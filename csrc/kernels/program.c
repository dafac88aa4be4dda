/* A compiled network as data: its size, and its weights packed from theta. Owns the packed layout and the places of the
 * states: of a recurrent layer c (lanes, LSTM alone), then its input [x; h] (inputs + lanes). */
#include "../pyes_kernels.h"

static int64_t round_up(int64_t length)
{
    return (length + PYES_LANES - 1) / PYES_LANES * PYES_LANES;
}

/* Blocks of `outputs` rows that the weights have in theta. */
static int64_t theta_blocks(enum pyes_op op)
{
    return op == PYES_LSTM ? 4 : op == PYES_GRU ? 3 : 1;
}

/* Values that a layer's linear map takes: x, or [x; h]. */
static int64_t joined_inputs(const struct pyes_layer *layer)
{
    return layer->inputs + (layer->op == PYES_LINEAR ? 0 : layer->outputs);
}

static int64_t layer_state(const struct pyes_layer *layer)
{
    if (layer->op == PYES_LINEAR)
        return 0;
    return round_up(layer->inputs + layer->lanes) + (layer->op == PYES_LSTM ? layer->lanes : 0);
}

int64_t pyes_layer_width(const struct pyes_layer *layer)
{
    return layer->op == PYES_LSTM || layer->op == PYES_GRU ? 4 * layer->lanes : layer->lanes;
}

int64_t pyes_policy_width(int64_t n, const struct pyes_layer *layers)
{
    int64_t widest = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t width = pyes_layer_width(&layers[k]);
        widest = width > widest ? width : widest;
    }
    return widest;
}

void pyes_policy_place(int64_t n, struct pyes_layer *layers, int64_t *packed_size, int64_t *state_size)
{
    *packed_size = *state_size = 0;
    for (int64_t k = 0; k < n; k++) {
        struct pyes_layer *layer = &layers[k];
        layer->lanes = round_up(layer->outputs);
        layer->packed_offset = *packed_size;
        layer->state_offset = *state_size;
        *packed_size += (joined_inputs(layer) + 1) * pyes_layer_width(layer);
        *state_size += layer_state(layer);
    }
}

static int64_t later(int64_t end, int64_t offset, int64_t size)
{
    return offset >= 0 && offset + size > end ? offset + size : end;
}

int64_t pyes_layer_dim(const struct pyes_layer *layer)
{
    const int64_t rows = theta_blocks(layer->op) * layer->outputs;
    int64_t end = later(later(0, layer->weight_offset, rows * layer->inputs), layer->bias_offset, rows);
    if (layer->op != PYES_LINEAR)
        end = later(later(end, layer->recurrent_offset, rows * layer->outputs), layer->recurrent_bias_offset, rows);
    return end;
}

/* Adds one block of rows of theta to one block of columns: a bias (rows 1), or weights (outputs, rows) transposed. */
static void pack_block(const struct pyes_layer *layer, int64_t rows, const float *from, int64_t width, float *to)
{
    for (int64_t o = 0; o < layer->outputs; o++)
        for (int64_t i = 0; i < rows; i++)
            to[i * width + o] += from[o * rows + i];
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

static void pack_layer(const struct pyes_layer *layer, const float *theta, float *packed)
{
    const int64_t width = pyes_layer_width(layer);
    float *weights = packed + width;
    for (int64_t j = 0; j < width * (joined_inputs(layer) + 1); j++)
        packed[j] = 0.0f;
    pack_array(layer, 0, 1, theta, layer->bias_offset, packed);
    pack_array(layer, 0, layer->inputs, theta, layer->weight_offset, weights);
    if (layer->op == PYES_LINEAR)
        return;
    pack_array(layer, 1, 1, theta, layer->recurrent_bias_offset, packed);
    pack_array(layer, 1, layer->outputs, theta, layer->recurrent_offset, weights + layer->inputs * width);
}

void pyes_policy_pack(int64_t n, const struct pyes_layer *layers, const float *theta, float *packed)
{
    for (int64_t k = 0; k < n; k++)
        pack_layer(&layers[k], theta, packed + layers[k].packed_offset);
}
