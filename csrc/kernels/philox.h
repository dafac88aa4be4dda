/* Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): one block, inline.
 *
 * Owns the bijection (counter, key) -> four words, written without loops so that a loop over blocks can be vectorised.
 * Must not know what the words are for. Internal to the kernels. */
#ifndef PYES_PHILOX_H
#define PYES_PHILOX_H

#include "../pyes_kernels.h"

struct pyes_block {
    uint32_t word[4];
};

static inline struct pyes_block philox_round(struct pyes_block x, uint32_t key0, uint32_t key1)
{
    const uint64_t p0 = (uint64_t)0xD2511F53u * x.word[0];
    const uint64_t p1 = (uint64_t)0xCD9E8D57u * x.word[2];
    const struct pyes_block y = {{(uint32_t)(p1 >> 32) ^ x.word[1] ^ key0, (uint32_t)p1,
                                  (uint32_t)(p0 >> 32) ^ x.word[3] ^ key1, (uint32_t)p0}};
    return y;
}

/* Round r uses the key plus r times the Weyl increments of the paper. */
#define PHILOX_ROUND(x, r) philox_round((x), key0 + (r) * 0x9E3779B9u, key1 + (r) * 0xBB67AE85u)

static inline struct pyes_block philox_block(struct pyes_block x, uint64_t key)
{
    const uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    x = PHILOX_ROUND(x, 0u);
    x = PHILOX_ROUND(x, 1u);
    x = PHILOX_ROUND(x, 2u);
    x = PHILOX_ROUND(x, 3u);
    x = PHILOX_ROUND(x, 4u);
    x = PHILOX_ROUND(x, 5u);
    x = PHILOX_ROUND(x, 6u);
    x = PHILOX_ROUND(x, 7u);
    x = PHILOX_ROUND(x, 8u);
    return PHILOX_ROUND(x, 9u);
}

/* Block `index` of the stream (seed, purpose, generation, member, episode). */
static inline struct pyes_block stream_block(uint64_t seed, uint32_t purpose, uint32_t generation, uint32_t member,
                                             uint32_t episode, uint32_t index)
{
    const struct pyes_block counter = {{index, generation, member, (purpose << 24) | episode}};
    return philox_block(counter, seed);
}

#endif
