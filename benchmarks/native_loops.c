/* What the physics and the network of an episode take by themselves; for native.py. */
#include "../csrc/pyes_kernels.h"

/* Steps n recorded actions of an episode, `times` times. */
void physics(const struct pyes_environment *environment, uint64_t seed, int64_t n, int64_t width, const float *actions,
             int64_t times, void *state, void *observation)
{
    double reward;
    for (int64_t k = 0; k < times; k++) {
        memset(state, 0, (size_t)environment->state_bytes);
        environment->reset(state, seed, observation, environment->user);
        for (int64_t i = 0; i < n; i++)
            environment->step(state, actions + i * width, observation, &reward, environment->user);
    }
}

/* Runs the network `times` times for an observation; instructions (n, 8) as PolicyRunner has them. As in an episode, no
 * timestep can begin before the one before it has ended: the first value of the observation waits for its output. */
void network(int64_t level, int64_t n, const int64_t *instructions, const float *theta, float *input,
             float *packed, float *state, float *scratch, int64_t times)
{
    struct pyes_layer layers[8];
    int64_t packed_size, state_size;
    memset(layers, 0, sizeof layers);
    for (int64_t k = 0; k < n; k++) {
        const int64_t *row = instructions + 8 * k;
        layers[k].op = (enum pyes_op)row[0];
        layers[k].inputs = row[1];
        layers[k].outputs = row[2];
        layers[k].weight_offset = row[3];
        layers[k].bias_offset = row[4];
        layers[k].activation = (enum pyes_activation)row[5];
        layers[k].recurrent_offset = row[6];
        layers[k].recurrent_bias_offset = row[7];
        layers[k].scale_offset = -1;
    }
    pyes_policy_place(n, layers, &packed_size, &state_size);
    pyes_policy_pack((enum pyes_level)level, n, layers, theta, NULL, packed);
    memset(state, 0, (size_t)state_size * sizeof *state);
    const float first = input[0];
    for (int64_t i = 0; i < times; i++)
        input[0] = first + 0.0f * *pyes_policy_forward((enum pyes_level)level, n, layers, packed, input, state, scratch);
}
