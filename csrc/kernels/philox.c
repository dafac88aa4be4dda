/* Streams of random words: bits, slice offsets, environment seeds.
 *
 * Owns the meaning of the counter words: (block, generation, member, purpose << 24 | episode).
 * Must not know the noise table. Invariant: every function is pure; equal arguments, equal words. */
#include "philox.h"
#include "unguarded.h"

void pyes_stream_bits(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t member,
                      uint32_t episode, uint32_t *out)
{
    for (int64_t i = 0; i < n; i += 4) {
        const struct pyes_block x = stream_block(seed, purpose, generation, member, episode, (uint32_t)(i / 4));
        for (int64_t k = 0; k < 4 && i + k < n; k++)
            out[i + k] = x.word[k];
    }
}

void pyes_draw_offsets_unguarded(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, int64_t bound,
                                 int64_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        const struct pyes_block x = stream_block(seed, purpose, generation, (uint32_t)i, 0, 0);
        const uint64_t bits = ((uint64_t)x.word[0] << 32) | x.word[1];
        const double u = (double)(bits >> 11) * 0x1p-53; /* exact: 53 bits */
        out[i] = (int64_t)(u * (double)bound); /* < bound: u <= 1 - 2^-53, which rounding cannot undo */
    }
}

void pyes_draw_seeds(int64_t n, uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t episode, int64_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (int64_t)(stream_block(seed, purpose, generation, (uint32_t)i, episode, 0).word[0] >> 1);
}
