/* The entries of the noise table: entry k is the normal of word k % 4 of Philox block k / 4 under the key `seed`.
 *
 * Owns the map from index to entry, which has no other state: any split of the range gives equal bytes.
 * Must not know how the table is stored or shared. */
#include "lanes.h"
#include "normal.h"

enum {
    WORDS = 512, /* words a batch: its few arrays of 2 KiB stay in the L1 cache from loop to loop */
    BLOCKS = WORDS / 4,
    LANES = sizeof(lanes) / sizeof(uint64_t), /* blocks in a vector */
    STREAMS = 4,                              /* vectors at once: independent chains hide the latency of each */
};

/* One word of LANES blocks, each in the low half of a 64-bit lane. The high halves may hold anything: multiply does not
 * read them, and they are dropped at the end. */
struct wide_block {
    lanes word[4];
};

/* One round of philox_round on every block. */
PYES_INLINE struct wide_block wide_round(struct wide_block x, uint32_t key0, uint32_t key1)
{
    const lanes p0 = multiply(x.word[0], 0xD2511F53u);
    const lanes p1 = multiply(x.word[2], 0xCD9E8D57u);
    const struct wide_block y = {{(p1 >> 32) ^ x.word[1] ^ key0, p1, (p0 >> 32) ^ x.word[3] ^ key1, p0}};
    return y;
}

/* philox_block on STREAMS vectors of consecutive blocks. Their counters share word 1; words 2 and 3 are 0, which is
 * purpose NOISE. Constant words cost the first rounds half their products. */
PYES_INLINE void wide_philox(uint64_t seed, lanes index, uint32_t high, struct wide_block x[STREAMS])
{
    const lanes zero = index ^ index;
    PYES_UNROLL(4)
    for (uint32_t s = 0; s < STREAMS; s++) {
        x[s].word[0] = index + s * LANES;
        x[s].word[1] = zero + high;
        x[s].word[2] = zero;
        x[s].word[3] = zero;
    }
    PYES_UNROLL(10)
    for (uint32_t r = 0; r < 10; r++) {
        PYES_UNROLL(4)
        for (uint32_t s = 0; s < STREAMS; s++)
            x[s] = wide_round(x[s], (uint32_t)seed + r * 0x9E3779B9u, (uint32_t)(seed >> 32) + r * 0xBB67AE85u);
    }
}

/* The words of the blocks first, first + 1, ..., whose indices share the upper 32 bits. */
PYES_INLINE void noise_words(uint64_t seed, uint64_t first, uint32_t *restrict out)
{
    PYES_ALIGNED uint64_t early[BLOCKS], late[BLOCKS], pairs[2 * BLOCKS], index[LANES];
    for (uint64_t k = 0; k < LANES; k++)
        index[k] = first + k;
    lanes counter;
    memcpy(&counter, index, sizeof counter);
    for (int64_t j = 0; j < BLOCKS; j += STREAMS * LANES) {
        struct wide_block x[STREAMS];
        wide_philox(seed, counter, (uint32_t)(first >> 32), x);
        PYES_UNROLL(4)
        for (int64_t s = 0; s < STREAMS; s++) {
            const lanes words01 = (x[s].word[0] & 0xFFFFFFFFu) | (x[s].word[1] << 32);
            const lanes words23 = (x[s].word[2] & 0xFFFFFFFFu) | (x[s].word[3] << 32);
            memcpy(early + j + s * LANES, &words01, sizeof words01);
            memcpy(late + j + s * LANES, &words23, sizeof words23);
        }
        counter += STREAMS * LANES;
    }
    for (int64_t j = 0; j < BLOCKS; j++) {
        pairs[2 * j] = early[j];
        pairs[2 * j + 1] = late[j];
    }
    memcpy(out, pairs, sizeof pairs); /* the low half of a pair comes first: little-endian, as the header demands */
}

/* One loop per step: a long chain of operations would fill the processor's scheduler before the next could begin. */
PYES_INLINE void fine_batch(const uint32_t *restrict words, float *restrict out)
{
    PYES_ALIGNED float center[WORDS], log[WORDS];
    for (int64_t j = 0; j < WORDS; j++) {
        center[j] = signed_center(words[j]);
        log[j] = spread_of(words[j]);
    }
    for (int64_t j = 0; j < WORDS; j++)
        log[j] = fine_log(log[j]);
    for (int64_t j = 0; j < WORDS; j++)
        out[j] = fine_normal(center[j], log[j]);
}

PYES_INLINE void coarse_batch(const uint32_t *restrict words, int8_t *restrict out)
{
    PYES_ALIGNED float center[WORDS], log[WORDS];
    for (int64_t j = 0; j < WORDS; j++) {
        center[j] = signed_center(words[j]);
        log[j] = coarse_spread(words[j]);
    }
    for (int64_t j = 0; j < WORDS; j++)
        log[j] = coarse_log(log[j]);
    for (int64_t j = 0; j < WORDS; j++)
        out[j] = int8_of_float(coarse_steps(center[j], log[j]));
}

/* One whole batch of entries of any type. A union, since an array of float must not be written as uint16_t. */
union batch {
    float fine[WORDS];
    uint16_t rounded[WORDS];
    int8_t coarse[WORDS];
};

/* Fills a batch: `out` is a union batch, or WORDS entries in the caller's memory. */
PYES_INLINE void entry_batch(enum pyes_dtype dtype, const uint32_t *restrict words, void *restrict out)
{
    if (dtype == PYES_FLOAT32) {
        fine_batch(words, out);
    } else if (dtype == PYES_BFLOAT16) {
        PYES_ALIGNED float normals[WORDS];
        uint16_t *restrict entries = out;
        fine_batch(words, normals);
        for (int64_t j = 0; j < WORDS; j++)
            entries[j] = bfloat16_of_float(normals[j]);
    } else {
        coarse_batch(words, out);
    }
}

/* Batches are aligned to a fixed grid of the table, so none crosses the 2^32 blocks that share a counter word. Batches
 * inside the range are written in place, those at its edges via a copy. */
PYES_INLINE void fill_noise_typed(enum pyes_dtype dtype, int64_t n, uint64_t seed, uint64_t start, char *out)
{
    const int64_t size = pyes_entry_size(dtype);
    PYES_ALIGNED uint32_t words[WORDS];
    PYES_ALIGNED union batch edge;
    while (n > 0) {
        const int64_t skip = (int64_t)(start % WORDS);
        const int64_t count = n < WORDS - skip ? n : WORDS - skip;
        noise_words(seed, start / WORDS * BLOCKS, words);
        if (count == WORDS) {
            entry_batch(dtype, words, out);
        } else {
            entry_batch(dtype, words, &edge);
            memcpy(out, (const char *)&edge + skip * size, (size_t)(count * size));
        }
        out += count * size;
        start += (uint64_t)count;
        n -= count;
    }
}

void PYES_WIDE(pyes_fill_noise)(int64_t n, enum pyes_dtype dtype, uint64_t seed, uint64_t start, void *out)
{
    if (dtype == PYES_FLOAT32)
        fill_noise_typed(PYES_FLOAT32, n, seed, start, out);
    else if (dtype == PYES_BFLOAT16)
        fill_noise_typed(PYES_BFLOAT16, n, seed, start, out);
    else
        fill_noise_typed(PYES_INT8, n, seed, start, out);
}
