/* pyes_kernels.h - the numerical kernels of pyes: plain C11, no Python, no allocation, no global state, no I/O.
 *
 * SHAPE LEGEND. One name per size, always int64_t, always first:
 *     n        entries, members, slices, words or layers, as the contract says
 *     dim      parameters of theta
 *     count    members on the board
 *     inputs, outputs, lanes    of one layer; lanes = outputs (filters, of a convolution) rounded up to PYES_LANES
 * "x (n, m)" is a row-major array of n * m values without gaps.
 *
 * ARGUMENTS come as: level, sizes, inputs (const), scalars, outputs. Kernels TRUST their input: sizes >= 0, pointers
 * valid for the shapes given, offsets inside the table, enumerators in range. csrc/core/ checks arguments from Python.
 * Natural alignment of the element type is enough. Unless a contract says otherwise, outputs overlap nothing else.
 * Every buffer belongs to the caller.
 *
 * DETERMINISM RULE. Equal arguments give equal bits, on every machine, compiler and level:
 *     - float32 and float64 arithmetic by + - * / sqrt alone, each rounded to nearest once; no libm;
 *     - built with -ffp-contract=off and without -ffast-math, so no operation is fused or reordered;
 *     - subnormal numbers count and rounding is to nearest, whatever the calling thread has set for itself: every
 *       function computes in standard arithmetic, and leaves the thread's control word as it was
 *       (kernels/float_control.h);
 *     - sums run in a fixed order that no width, tile or thread count enters: a kernel over a range may be split into
 *       calls over parts of the range.
 * So a kernel's NumPy twin, which the tests compare it with, gives equal bits too. The only exception is the payload of
 * NaN.
 *
 * LEVELS. Wide kernels are one C source compiled for several instruction sets (kernels/wide.h). The caller passes the
 * level; it must be one for which pyes_level_available is true. */
#ifndef PYES_KERNELS_H
#define PYES_KERNELS_H

#include <float.h>
#include <stdint.h>

#include "pyes_environment.h"

#if defined(__FAST_MATH__)
#error "pyes needs IEEE arithmetic: build without -ffast-math"
#endif

/* The x87 unit computes with 64 bits and rounds only what it stores: 32-bit x86 without SSE2, or -mfpmath=387. */
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "pyes needs arithmetic that rounds every operation to its own type; on x86: -msse2 -mfpmath=sse"
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "pyes stores little-endian arrays: big-endian machines are not supported"
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define PYES_X86_LEVELS 1
#else
#define PYES_X86_LEVELS 0
#endif

/* Types of values from outside: uint8_t, float, double. */
enum pyes_value { PYES_BYTE = 0, PYES_FLOAT = 1, PYES_DOUBLE = 2 };

/* ---- Levels ---------------------------------------------------------------------------------------------------- */

enum pyes_level { PYES_BASELINE = 0, PYES_AVX2 = 1, PYES_AVX512 = 2 };
enum { PYES_LEVELS = 3 };

/* Name of a level: "baseline", "avx2", "avx512". */
const char *pyes_level_name(enum pyes_level level);

/* 1 if this build holds the level and this CPU and operating system run it, else 0. Baseline is always 1. */
int pyes_level_available(enum pyes_level level);

/* ---- Random streams (kernels/philox.c) --------------------------------------------------------------------------
 *
 * A stream is (seed, purpose, generation, member, episode), purpose < 256 and episode < 2^24. Its words are those of
 * Philox4x32-10 (Salmon et al. 2011) with key (seed mod 2^32, seed div 2^32) at the counters
 * (block, generation, member, purpose << 24 | episode), block = 0, 1, 2, ..., four words a block. Nothing is stored. */

/* The first n words of a stream.
 * @param out (n)    any 32 bits
 * @note  O(n). Tested against the known answers of Random123, tests/golden/philox.csv. */
void pyes_stream_bits(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t member,
                      uint32_t episode, uint32_t *out);

/* One slice offset for each member 0 .. n-1 (episode 0), uniform in [0, bound).
 * @pre   0 < bound <= 2^53
 * @param out (n)    floor(u * bound), u = the upper 53 of the 64 bits word 0 << 32 | word 1, times 2^-53
 * @note  O(n); u is exact, the product is rounded to double once. */
void pyes_draw_offsets(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, int64_t bound, int64_t *out);

/* One environment seed for each member 0 .. n-1.
 * @param out (n)    word 0 div 2: 0 <= seed < 2^31 */
void pyes_draw_seeds(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t episode, int64_t *out);

/* Standard normals from the words first .. first+n-1 of a stream.
 * @pre   first + n <= 2^34 (the stream's length)
 * @param out (n)    |x| <= 6.34, as fill_noise makes them of the same words */
void pyes_stream_normals(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t member,
                         uint32_t episode, uint64_t first, float *out);

/* ---- Noise (kernels/noise.c, normal.h) ------------------------------------------------------------------------- */

/* Types of table entries. bfloat16 is the float32 rounded to nearest even. int8 counts steps of 1/32, rounded to
 * nearest even and clipped to +-127, that is +-3.97 standard deviations. It rounds a coarser normal with an absolute
 * error below 1e-4 (1/300 of a step), so about one entry in a thousand differs by one step from the rounded float32. */
enum pyes_dtype { PYES_FLOAT32 = 0, PYES_BFLOAT16 = 1, PYES_INT8 = 2 };

/* Bytes of an entry. */
static inline int64_t pyes_entry_size(enum pyes_dtype dtype)
{
    return dtype == PYES_FLOAT32 ? 4 : dtype == PYES_BFLOAT16 ? 2 : 1;
}

/* Entries start .. start+n-1 of the noise table of a seed.
 *
 * Entry k is the normal of word k % 4 of the Philox block at counter (k / 4 mod 2^32, k / 4 div 2^32, 0, 0). A word
 * becomes a normal by inversion: word u is the middle of its cell of probability 2^-32, words u and ~u are mirror
 * images, and x = t P(L) / Q(L) with t = 1/2 - q, L = -log2(4 q (1 - q)), q the probability beyond |x|.
 * @param out (n)    float, uint16_t or int8_t after dtype; |x| <= 6.34
 * @note  Absolute error of the float32 below 2e-6, up to the last quantile. Any split of the range gives equal bytes.
 *        O(n). Tested against scipy.special.ndtri; see tools/fit_normal.py. */
void pyes_fill_noise(enum pyes_level level, int64_t n, enum pyes_dtype dtype, uint64_t seed, uint64_t start, void *out);

/* ---- theta and the table (kernels/perturb.c, gradient.c) ------------------------------------------------------- */

/* out[j] = theta[j] + scale * slice[j], or theta[j] + scale * deviation[j] * slice[j].
 * @param theta (dim), deviation (dim) or NULL
 * @param slice (dim)    entries after dtype; those of int8 count as 1/32 each (scale / 32, times the integer)
 * @param out (dim)      may be theta itself, but may not overlap it otherwise
 * @note  float32: scale, rounded to float, times deviation, times the slice, plus theta, each rounded. O(dim). */
void pyes_perturb(enum pyes_level level, int64_t dim, enum pyes_dtype dtype, const float *theta, const void *slice,
                  const float *deviation, double scale, float *out);

/* out[j] = sum over i of weights[i] * table[offsets[i] + j].
 * @pre   0 <= offsets[i] <= length of table - dim
 * @param table      entries after dtype; those of int8 count as 1/32 each (weights[i] / 32, times the integer)
 * @param offsets (n), weights (n), out (dim)
 * @note  float32 accumulator, from +0, i = 0, 1, 2, ..., one rounded product and one rounded sum each. So a range of
 *        parameters can be computed alone, with offsets shifted by its start: this is how threads share the work.
 *        n * dim entries are read once, out n / 8 times from the cache. See Salimans et al. 2017, algorithm 2. */
void pyes_weighted_sum(enum pyes_level level, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                       const int64_t *offsets, const float *weights, float *out);

/* out[j] += sum over i of weights[i] * table[offsets[i] + j]: the individual after a sequence of mutations.
 * @pre, @param      as for pyes_weighted_sum; out (dim) is read, too
 * @note  i = 0, 1, 2, ..., one rounded product and one rounded sum each: the same bits as one pyes_perturb a slice,
 *        with out read and written n / 8 times. Ranges of parameters as there. See Such et al. 2017, section 3.1. */
void pyes_add_slices(enum pyes_level level, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                     const int64_t *offsets, const float *weights, float *out);

/* Two sums in one pass over the slices, with e = table[offsets[i] + j]:
 *     mean[j]   = sum over i of weights[i] * e              as weighted_sum has it
 *     spread[j] = sum over i of spread_weights[i] * (e * e - 1)
 * @pre   0 <= offsets[i] <= length of table - dim
 * @param table      entries after dtype; those of int8 count as 1/32 each (e is then integer / 32)
 * @param offsets (n), weights (n), spread_weights (n), mean (dim), spread (dim)
 * @note  float32 accumulators, from +0, i = 0, 1, 2, ..., each operation rounded; any split of the parameters, as
 *        above. The gradients of mean and sigma of a normal distribution: Wierstra et al. 2014. */
void pyes_weighted_moments(enum pyes_level level, int64_t n, int64_t dim, enum pyes_dtype dtype, const void *table,
                           const int64_t *offsets, const float *weights, const float *spread_weights, float *mean,
                           float *spread);

/* ---- Shaping (kernels/ranks.c) --------------------------------------------------------------------------------- */

/* Ranks of returns, scaled to [-0.5, 0.5]: rank / (n - 1) - 0.5, computed in double and rounded once.
 * @param returns (n)      any values; equal ones share their mean rank, NaN are equal and below -inf
 * @param workspace (2 n)  overwritten
 * @param out (n)          0 if n is 1
 * @note  O(n log n): a stable merge sort. Tested against scipy.stats.rankdata. */
void pyes_centered_ranks(int64_t n, const double *returns, int64_t *workspace, float *out);

/* ---- Optimisers (kernels/optimizers.c) ---------------------------------------------------------------------------
 *
 * One step uphill, in place, arrays (dim). Scalars are combined in double and rounded to float once; arrays are float
 * throughout. Weight decay is decoupled: theta loses learning_rate * weight_decay of itself. O(dim). */

/* m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
 * theta += learning_rate m_hat / (sqrt(v_hat) + epsilon) - learning_rate weight_decay theta.
 * @pre   step >= 1, the number of this step; 0 <= beta < 1
 * @note  Kingma & Ba 2015, algorithm 1. Tested against torch.optim.AdamW(maximize=True). */
void pyes_adam_step(enum pyes_level level, int64_t dim, const float *gradient, int64_t step, double learning_rate,
                    double beta1, double beta2, double epsilon, double weight_decay, float *theta, float *m, float *v);

/* velocity = momentum velocity + g;  theta += learning_rate velocity - learning_rate weight_decay theta.
 * @note  Tested against torch.optim.SGD(maximize=True), with the decay decoupled. */
void pyes_sgd_step(enum pyes_level level, int64_t dim, const float *gradient, double learning_rate, double momentum,
                   double weight_decay, float *theta, float *velocity);

/* velocity = momentum velocity + learning_rate g / |g|, shortened to max_speed;
 * theta += velocity - learning_rate weight_decay theta.
 * @note  Norms are sums of float64 in 32 fixed partial sums. A zero gradient adds nothing.
 *        Toklu, Liskowski & Srivastava 2020, algorithm 1. */
void pyes_clipup_step(enum pyes_level level, int64_t dim, const float *gradient, double learning_rate, double momentum,
                      double max_speed, double weight_decay, float *theta, float *velocity);

/* ---- A sigma of each parameter (kernels/deviation.c) -------------------------------------------------------------
 *
 * One step, in place, arrays (dim); float throughout, scalars rounded once. O(dim). */

/* deviation += c deviation, c = learning_rate gradient held in [-max_change, max_change].
 * @note  The sigma of PGPE; the bound is that of Toklu, Liskowski & Srivastava 2020. */
void pyes_deviation_step(enum pyes_level level, int64_t dim, const float *gradient, double learning_rate,
                         double max_change, float *deviation);

/* theta += learning_rate deviation gradient;  deviation *= exp(deviation_rate / 2 deviation_gradient).
 * @note  exp is that of the activations, relative error below 2.5e-7.
 *        Schaul, Glasmachers & Schmidhuber 2011, algorithm 1. */
void pyes_snes_step(enum pyes_level level, int64_t dim, const float *gradient, const float *deviation_gradient,
                    double learning_rate, double deviation_rate, float *theta, float *deviation);

/* ---- Policy (kernels/program.c, policy.c, virtual_batch_norm.c, action.c, layers.h, conv.h, cells.h) -------------
 *
 * A network is n layers. Layer k reads `inputs` values and writes `lanes`, of which the first `outputs` count and the
 * others are scratch. A linear layer has no state; a recurrent one has a hidden state h of `outputs` values, and an
 * LSTM also a cell state c.
 *
 * Weights are in theta in torch's layout, (blocks * outputs, inputs) and, for a recurrent layer, another
 * (blocks * outputs, outputs) for h; biases are (blocks * outputs) each. Blocks, in torch's order: one for LINEAR and
 * RNN; reset, update, new for GRU; input, forget, cell, output for LSTM. Packed is one linear map of [x; h]:
 * bias (width), then weights (inputs, or inputs + outputs, width), every block padded to `lanes` with zeros. The new
 * gate of a GRU is packed as two blocks, one from x and one from h, since its cell multiplies the second alone.
 *
 * A convolution reads an image (channels, height, width) and writes (filters, pixels), pixel by row and column; its
 * square kernel moves by `stride`, without padding. In theta its weights are (filters, channels, kernel, kernel).
 * Packed, they follow the bias as panels of PYES_LANES filters, each (kernel, kernel, channels, PYES_LANES). A scale
 * layer multiplies every value by 1 / `divisor`, rounded to float; it has no weights. */

enum { PYES_LANES = 16 };

enum pyes_activation {
    PYES_IDENTITY = 0,
    PYES_TANH = 1,
    PYES_RELU = 2,
    PYES_SIGMOID = 3,
    PYES_ELU = 4,        /* alpha 1 */
    PYES_LEAKY_RELU = 5, /* slope 0.01 */
    PYES_SILU = 6,
    PYES_GELU = 7, /* the tanh form */
    PYES_SOFTSIGN = 8,
};

enum pyes_op { PYES_LINEAR = 0, PYES_RNN = 1, PYES_GRU = 2, PYES_LSTM = 3, PYES_CONV = 4, PYES_SCALE = 5 };

/* Added to variances: that of the Atari policies of Salimans et al. 2017. */
#define PYES_NORMALIZE_EPSILON 1e-3

struct pyes_layer {
    enum pyes_op op;
    int64_t inputs, outputs, lanes;                  /* lanes: filters rounded up to a multiple of PYES_LANES */
    int64_t weight_offset, bias_offset;              /* in theta; bias_offset -1: no bias */
    int64_t recurrent_offset, recurrent_bias_offset; /* in theta; for recurrent layers alone, bias -1: no second one */
    int64_t channels, height, width, kernel, stride; /* of CONV: its input and its window */
    int64_t divisor;                                 /* of SCALE */
    int64_t scale_offset;                            /* in theta, of a normalised LINEAR or CONV; -1: not normalised */
    int64_t filters, pixels;                         /* filters * pixels = outputs; pixels is 1 but for CONV */
    int64_t packed_offset, state_offset;             /* in packed and in state */
    int64_t widest;                                  /* of all layers: half the length of scratch */
    enum pyes_activation activation;                 /* of LINEAR, RNN and CONV; IDENTITY for the others */
};

/* Places of the window of a convolution in its image. @pre kernel <= height, width; 1 <= stride */
int64_t pyes_conv_pixels(const struct pyes_layer *layer);

/* Places n layers, whose other fields are set: fills in filters, pixels, lanes, widest, packed_offset, state_offset.
 * @param packed_size, state_size    lengths of the arrays of pyes_policy_forward, state_size 0 without memory */
void pyes_policy_place(int64_t n, struct pyes_layer *layers, int64_t *packed_size, int64_t *state_size);

/* One past the last entry of theta that a layer reads. */
int64_t pyes_layer_dim(const struct pyes_layer *layer);

/* The width of a placed layer: lanes, times 4 for GRU and LSTM. */
int64_t pyes_layer_width(const struct pyes_layer *layer);

/* What pyes_perturb adds to theta: scale * slice, or scale * deviation * slice; arrays of the length of theta. */
struct pyes_perturbation {
    enum pyes_dtype dtype;
    const void *slice;
    const float *deviation; /* NULL: 1 */
    double scale;
};

/* Packs the weights of all layers; two biases are added, but for the new gate of a GRU.
 * @param perturbation    the weights are those of theta perturbed by it, with the bits of pyes_perturb; NULL: of theta
 * @note  O(length of packed). Theta and the slice are read once; the perturbed theta is nowhere whole. */
void pyes_policy_pack(enum pyes_level level, int64_t n, const struct pyes_layer *layers, const float *theta,
                      const struct pyes_perturbation *perturbation, float *packed);

/* Virtual batch normalisation (Salimans, Goodfellow et al. 2016, section 3.5): replaces each normalised layer's linear
 * map y, without bias, by y * gain + shift, where gain = scale / sqrt(variance + PYES_NORMALIZE_EPSILON) and
 * shift = bias - mean * gain, with mean and variance of each filter over all observations of the reference batch and
 * all pixels; earlier layers are normalised first. Weights and bias in packed are replaced accordingly.
 * @pre   packed is fresh from pyes_policy_pack of the same theta; no layer up to the last normalised one is recurrent
 * @param batch (count, inputs of layer 0)    uint8_t or float after type; the network's own inputs
 * @param scratch                             as for pyes_policy_forward
 * @param values (count * pyes_policy_batch_norm_width), sums (2 * pyes_policy_batch_norm_width)    overwritten
 * @note  y in float; sums of y and y^2 in double, by observation, then pixel; gain and shift in double, rounded once.
 *        O(count forward passes). */
void pyes_policy_batch_norm(enum pyes_level level, int64_t n, const struct pyes_layer *layers, const float *theta,
                            int64_t count, enum pyes_value type, const void *batch, float *packed, float *scratch,
                            float *values, double *sums);

/* Maximum number of outputs of a normalised layer; 0 without one. */
int64_t pyes_policy_batch_norm_width(int64_t n, const struct pyes_layer *layers);

/* Runs the network for one timestep: y[o] = bias[o]; y[o] += x[i] * W[i][o] for i = 0, 1, 2, ..., where x of a
 * recurrent layer goes on with its h, and x of a convolution is its window by row, column and channel; then the
 * activation, or the cell, which replaces h (and c):
 *     RNN    h = activation(y)
 *     GRU    r = s(y0), z = s(y1), n = tanh(y2 + r y3), h = (1 - z) n + z h
 *     LSTM   i = s(y0), f = s(y1), g = tanh(y2), o = s(y3), c = f c + i g, h = o tanh(c)
 * with s the logistic function and y0 .. y3 the blocks. These are the equations of torch.nn.RNN (Elman 1990), GRU (Cho
 * et al. 2014, but r multiplies the product with h, not h) and LSTM (Hochreiter & Schmidhuber 1997, with the forget
 * gate of Gers et al. 2000).
 * @pre   n >= 1
 * @param input (inputs of layer 0)
 * @param state (state_size)                 all h and c; zeros before the first timestep of an episode
 * @param scratch (2 * widest)    overwritten; 64-byte alignment of the arrays is faster
 * @return the outputs, (lanes of the last layer), inside scratch or state
 * @note  float32 accumulators in the order of i. Activations within 1e-6 of torch. */
const float *pyes_policy_forward(enum pyes_level level, int64_t n, const struct pyes_layer *layers,
                                 const float *packed, const float *input, float *state, float *scratch);

/* out[i] = values[i] as float, rounded once. @param values (n)    after type */
void pyes_read_observation(int64_t n, enum pyes_value type, const void *values, float *out);

/* out[i] = (observation[i] - mean[i]) * inverse_std[i], clipped to +-limit; NaN stays NaN. out may be observation. */
void pyes_normalize(int64_t n, const float *observation, const float *mean, const float *inverse_std, float limit,
                    float *out);

/* sums (2, n): adds the observation to row 0 and its square to row 1, in float64. */
void pyes_collect(int64_t n, const float *observation, double *sums);

/* Index of the largest output, the first among equals; NaN counts as lowest, and all NaN gives 0. @pre n >= 1 */
int64_t pyes_argmax(int64_t n, const float *outputs);

/* The first five are rules of box actions; PYES_CHOICE and PYES_SIGN only occur in pyes_mixed_action. */
enum pyes_action {
    PYES_UNCHANGED = 0,
    PYES_CLIP = 1,
    PYES_SPAN = 2,
    PYES_SQUASH = 3,
    PYES_BINS = 4,
    PYES_CHOICE = 5,
    PYES_SIGN = 6
};

/* An action in a box of n components.
 *     UNCHANGED  the output itself                CLIP  the output, clipped to [low, high]
 *     SPAN       low + (x + 1) / 2 * (high - low), x the output, clipped to [-1, 1]
 *     SQUASH     low + (tanh(output) + 1) / 2 * (high - low)
 *     BINS       low + (high - low) * k / (bins - 1), k the argmax of the component's `bins` outputs
 * Those of SPAN, SQUASH and BINS are clipped as well, for a rounded difference may lead beyond the bounds.
 * @pre   bins >= 2 for BINS
 * @param outputs (n), for BINS (n, bins)
 * @note  NaN passes through, except for BINS (see pyes_argmax). */
void pyes_box_action(int64_t n, enum pyes_action action, int64_t bins, const float *outputs, const float *low,
                     const float *high, float *out);

/* An action of n components, each with a rule of its own, that take their outputs one after the other.
 *     CHOICE     index of the largest of widths[i] outputs, see pyes_argmax
 *     SIGN       1 where the output is above 0, else 0, also for NaN
 *     others     as pyes_box_action, BINS with widths[i] bins
 * @param actions (n)       values of enum pyes_action
 * @param widths (n)        outputs of each component: >= 1 for CHOICE, >= 2 for BINS, else 1
 * @param outputs           (sum of widths)
 * @param low, high (n)     not read for CHOICE and SIGN */
void pyes_mixed_action(int64_t n, const int64_t *actions, const int64_t *widths, const float *outputs,
                       const float *low, const float *high, float *out);

/* ---- Episodes in C (kernels/episode.c) -------------------------------------------------------------------------- */

enum { PYES_GUARD = 64 }; /* bytes behind the memory of an environment that it must not change */

/* One environment with the memory of one episode of it. */
struct pyes_world {
    const struct pyes_environment *environment;
    void *state;        /* state_bytes, then PYES_GUARD bytes of PYES_GUARD_BYTE */
    void *values;       /* the observation, then PYES_GUARD bytes, as behind the state */
    int64_t frame_skip; /* steps of the environment for each action; >= 1 */
};

enum { PYES_GUARD_BYTE = 0xA5 };

/* What can be wrong with a step; the others return what the environment's step does, PYES_TERMINATED and so on. */
enum { PYES_WRONG_FLAGS = -1, PYES_WRONG_REWARD = -2, PYES_NAN_OBSERVED = -3, PYES_STEP_FAILED = -4 };

/* Begins the episode of a seed: clears the state and the observation, and writes the first observation. */
void pyes_world_reset(const struct pyes_world *world, uint64_t seed);

/* Applies one action frame_skip times, or until the episode ends.
 * @param action (action_size), or (1) with the choice
 * @param reward (1)    sum of the rewards, from +0; where the result is PYES_WRONG_REWARD, the one that is wrong
 * @return the environment's flags. PYES_WRONG_FLAGS: they are neither 0 nor PYES_TERMINATED, PYES_TRUNCATED or both.
 *         PYES_WRONG_REWARD: the reward is not within reward_low and reward_high.
 *         PYES_STEP_FAILED: it has returned PYES_FAILED. */
int pyes_world_step(const struct pyes_world *world, const float *action, double *reward);

/* 0; 1 if the environment wrote behind its state, 2 if behind its observation. */
int pyes_world_damage(const struct pyes_world *world);

/* An episode of a policy in a world: all that a timestep reads and writes. */
struct pyes_episode {
    const struct pyes_world *world;
    /* What the policy observes. */
    int64_t observed;     /* values */
    const int64_t *seen;  /* (observed) index of each in the environment's observation, -1: always 0; NULL: all */
    float *observation;   /* (observed) */
    const float *mean;    /* (observed); NULL: not normalised */
    const float *inverse_std; /* (observed) */
    float limit;
    float *input; /* (observed) */
    double *sums; /* (2, observed), see pyes_collect; NULL: none */
    /* Its network, see pyes_policy_forward. */
    enum pyes_level level;
    int64_t layer_count;
    const struct pyes_layer *layers;
    const float *packed;
    float *state;
    float *scratch;
    /* Its action. */
    int64_t outputs;
    int64_t components; /* 0: the choice of the largest output */
    enum pyes_action action;
    int64_t bins;
    const float *low;  /* (components) */
    const float *high; /* (components) */
    float *chosen;     /* (components), or (1) with a choice */
    /* Its noise: `purpose` and so on are the stream's; deviation 0: none. */
    double deviation;
    float *noisy; /* (2 * components) */
    uint64_t seed, word;
    uint32_t purpose, generation, member, number;
    double reward_min; /* smaller rewards of a timestep count as this one; -INFINITY: none do */
    /* What there is so far. */
    double total;
    int64_t length;
};

/* Reads the world's observation: seen (observed) as float. @return 0, or PYES_NAN_OBSERVED */
int pyes_episode_observe(struct pyes_episode *episode);

/* Goes on with an episode for at most so many timesteps: act, step, add up, observe.
 * @pre   the observation was read by pyes_episode_observe
 * @return 0: the episode goes on. Otherwise it is over, as pyes_world_step says, or by PYES_NAN_OBSERVED.
 * @note  Equal bits to one call a timestep of the functions above and pyes_world_step, which is what Python does. Each
 *        float64 sum is in the order of timesteps. */
int pyes_episode_run(struct pyes_episode *episode, int64_t timesteps);

/* ---- Rays (kernels/rays.c) ---------------------------------------------------------------------------------------
 *
 * Where each ray from (x, y) first meets a terrain, as Box2D's b2World::RayCast has it, with equal bits.
 * @param offsets (rays, 2)  end of each ray, relative to (x, y)
 * @param segment (segments, 4)  x and y of one end, and of the other
 * @param quad (quads, 4, 4)  convex: x and y of each corner, and of the outward normal of the side that begins there
 * @param out (rays)  the fraction of the ray, 1 where it meets nothing. O(rays * (segments + quads)). */
void pyes_ray_fractions(int64_t rays, const double *offsets, float x, float y, int64_t segments, const float *segment,
                        int64_t quads, const float *quad, float *out);

/* ---- Board (kernels/board.c) -------------------------------------------------------------------------------------
 *
 * Which worker holds which member of a generation, in memory shared by processes: one int32 per member (0 free,
 * worker + 1 claimed, -1 done, -2 withheld: cannot be claimed now) and a cursor that counts the members handed out.
 * Each change is one atomic instruction on one word, so a worker that dies at any point loses at most its own claim,
 * which release undoes. */

/* Claims a member for a worker: the next one at the cursor, or else any free one before it.
 * @return the member, or -1 if none is free. Amortised O(1) while the cursor runs, then O(count). */
int64_t pyes_board_claim(int64_t count, int32_t worker, int64_t *cursor, int32_t *states);

/* Marks a member done. A process that reads this state also sees everything that the worker wrote before.
 * @return 1, or 0 if the worker did not hold the member. */
int pyes_board_finish(int64_t member, int32_t worker, int32_t *states);

/* Frees the members that a (dead) worker holds. */
void pyes_board_release(int64_t count, int32_t worker, int32_t *states);

/* Members that are free or claimed. */
int64_t pyes_board_remaining(int64_t count, const int32_t *states);

/* Makes members 0 .. count-1 withheld. @pre no worker holds any. */
void pyes_board_withhold(int64_t count, int32_t *states);

/* Makes the withheld ones of members begin .. end-1 free; workers may be claiming. */
void pyes_board_offer(int64_t begin, int64_t end, int64_t *cursor, int32_t *states);

/* Makes the free ones of members begin .. end-1 withheld. */
void pyes_board_withdraw(int64_t begin, int64_t end, int32_t *states);

/* Writes the members that are done, in order, and makes them withheld. @return how many. */
int64_t pyes_board_collect(int64_t count, int32_t *states, int64_t *members);

#endif
