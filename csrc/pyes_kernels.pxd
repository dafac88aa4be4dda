# What csrc/core/ uses of pyes_kernels.h, whose contracts hold here too.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from "pyes_environment.h" nogil:
    enum:
        PYES_ENVIRONMENT_ABI
        PYES_OBSERVE_FLOAT32
        PYES_OBSERVE_FLOAT64
        PYES_TERMINATED
        PYES_TRUNCATED
        PYES_FAILED
    struct pyes_environment:
        uint32_t abi, size
        const char *name
        void (*reset)(void *state, uint64_t seed, void *observation, const void *user)
        int (*step)(void *state, const float *action, void *observation, double *reward, const void *user)
        const void *user
        uint64_t state_bytes
        uint32_t observation_type, observation_size, choices, action_size
        const double *observation_low
        const double *observation_high
        const float *action_low
        const float *action_high
        double reward_low, reward_high
        uint64_t time_limit

cdef extern from "pyes_kernels.h" nogil:
    enum pyes_value:
        PYES_BYTE
        PYES_FLOAT
        PYES_DOUBLE

    enum pyes_level:
        PYES_BASELINE
    enum:
        PYES_LEVELS
    const char *pyes_level_name(pyes_level level)
    int pyes_level_available(pyes_level level)

    void pyes_stream_bits(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t member,
                          uint32_t episode, uint32_t *out)
    void pyes_draw_offsets(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, int64_t bound,
                           int64_t *out)
    void pyes_draw_seeds(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t episode,
                         int64_t *out)
    void pyes_stream_normals(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t member,
                             uint32_t episode, uint64_t first, float *out)

    enum pyes_dtype:
        PYES_FLOAT32
        PYES_BFLOAT16
        PYES_INT8
    void pyes_fill_noise(pyes_level level, int64_t n, pyes_dtype dtype, uint64_t seed, uint64_t start, void *out)
    void pyes_perturb(pyes_level level, int64_t dim, pyes_dtype dtype, const float *theta, const void *slice,
                      const float *deviation, double scale, float *out)
    void pyes_weighted_sum(pyes_level level, int64_t n, int64_t dim, pyes_dtype dtype, const void *table,
                           const int64_t *offsets, const float *weights, float *out)
    void pyes_add_slices(pyes_level level, int64_t n, int64_t dim, pyes_dtype dtype, const void *table,
                         const int64_t *offsets, const float *weights, float *out)

    void pyes_weighted_moments(pyes_level level, int64_t n, int64_t dim, pyes_dtype dtype, const void *table,
                               const int64_t *offsets, const float *weights, const float *spread_weights,
                               float *mean, float *spread)

    void pyes_centered_ranks(int64_t n, const double *returns, int64_t *workspace, float *out)

    void pyes_adam_step(pyes_level level, int64_t dim, const float *gradient, int64_t step, double learning_rate,
                        double beta1, double beta2, double epsilon, double weight_decay, float *theta, float *m,
                        float *v)
    void pyes_sgd_step(pyes_level level, int64_t dim, const float *gradient, double learning_rate, double momentum,
                       double weight_decay, float *theta, float *velocity)
    void pyes_clipup_step(pyes_level level, int64_t dim, const float *gradient, double learning_rate,
                          double momentum, double max_speed, double weight_decay, float *theta, float *velocity)

    void pyes_deviation_step(pyes_level level, int64_t dim, const float *gradient, double learning_rate,
                             double max_change, float *deviation)
    void pyes_snes_step(pyes_level level, int64_t dim, const float *gradient, const float *deviation_gradient,
                        double learning_rate, double deviation_rate, float *theta, float *deviation)

    enum pyes_activation:
        PYES_IDENTITY
        PYES_SOFTSIGN
    enum pyes_op:
        PYES_LINEAR
        PYES_RNN
        PYES_LSTM
        PYES_CONV
        PYES_SCALE
    struct pyes_layer:
        pyes_op op
        int64_t inputs, outputs
        int64_t weight_offset, bias_offset
        int64_t recurrent_offset, recurrent_bias_offset
        int64_t channels, height, width, kernel, stride
        int64_t divisor
        int64_t scale_offset
        int64_t widest
        pyes_activation activation
    enum pyes_action:
        PYES_UNCHANGED
        PYES_CLIP
        PYES_SPAN
        PYES_SQUASH
        PYES_BINS
        PYES_CHOICE
        PYES_SIGN
    void pyes_policy_place(int64_t n, pyes_layer *layers, int64_t *packed_size, int64_t *state_size)
    int64_t pyes_conv_pixels(const pyes_layer *layer)
    int64_t pyes_layer_dim(const pyes_layer *layer)
    struct pyes_perturbation:
        pyes_dtype dtype
        const void *slice
        const float *deviation
        double scale

    void pyes_policy_pack(pyes_level level, int64_t n, const pyes_layer *layers, const float *theta,
                          const pyes_perturbation *perturbation, float *packed)
    int64_t pyes_policy_batch_norm_width(int64_t n, const pyes_layer *layers)
    void pyes_policy_batch_norm(pyes_level level, int64_t n, const pyes_layer *layers, const float *theta,
                                int64_t count, pyes_value type, const void *batch, float *packed, float *scratch,
                                float *values, double *sums)
    const float *pyes_policy_forward(pyes_level level, int64_t n, const pyes_layer *layers, const float *packed,
                                     const float *input, float *state, float *scratch)
    void pyes_read_observation(int64_t n, pyes_value type, const void *values, float *out)
    void pyes_normalize(int64_t n, const float *observation, const float *mean, const float *inverse_std,
                        float limit, float *out)
    void pyes_collect(int64_t n, const float *observation, double *sums)
    int64_t pyes_argmax(int64_t n, const float *outputs)
    void pyes_box_action(int64_t n, pyes_action action, int64_t bins, const float *outputs, const float *low,
                         const float *high, float *out)
    void pyes_mixed_action(int64_t n, const int64_t *actions, const int64_t *widths, const float *outputs,
                           const float *low, const float *high, float *out)

    enum:
        PYES_GUARD
        PYES_GUARD_BYTE
        PYES_WRONG_FLAGS
        PYES_WRONG_REWARD
        PYES_NAN_OBSERVED
        PYES_STEP_FAILED
    struct pyes_world:
        const pyes_environment *environment
        void *state
        void *values
        int64_t frame_skip
    void pyes_world_reset(const pyes_world *world, uint64_t seed)
    int pyes_world_step(const pyes_world *world, const float *action, double *reward)
    int pyes_world_damage(const pyes_world *world)
    struct pyes_episode:
        const pyes_world *world
        int64_t observed
        const int64_t *seen
        float *observation
        const float *mean
        const float *inverse_std
        float limit
        float *input
        double *sums
        pyes_level level
        int64_t layer_count
        const pyes_layer *layers
        const float *packed
        float *state
        float *scratch
        int64_t outputs, components, bins
        pyes_action action
        const float *low
        const float *high
        float *chosen
        double deviation
        float *noisy
        uint64_t seed, word
        uint32_t purpose, generation, member, number
        double reward_min
        double total
        int64_t length
    int pyes_episode_observe(pyes_episode *episode)
    int pyes_episode_run(pyes_episode *episode, int64_t timesteps)

    void pyes_ray_fractions(int64_t rays, const double *offsets, float x, float y, int64_t segments, const float *segment,
                            int64_t quads, const float *quad, float *out)

    int64_t pyes_board_claim(int64_t count, int32_t worker, int64_t *cursor, int32_t *states)
    int pyes_board_finish(int64_t member, int32_t worker, int32_t *states)
    void pyes_board_release(int64_t count, int32_t worker, int32_t *states)
    int64_t pyes_board_remaining(int64_t count, const int32_t *states)
    void pyes_board_withhold(int64_t count, int32_t *states)
    void pyes_board_offer(int64_t begin, int64_t end, int64_t *cursor, int32_t *states)
    void pyes_board_withdraw(int64_t begin, int64_t end, int32_t *states)
    int64_t pyes_board_collect(int64_t count, int32_t *states, int64_t *members)
