/* The entries of the noise table: entry k is the normal of word k % 4 of Philox block k / 4 under the key `seed`.
 *
 * Owns the map from index to entry, which has no other state: any split of the range gives equal bytes.
 * Must not know how the table is stored or shared. */
#include "lanes.h"
#include "normal.h"

enum {
    WORDS = 512, /* words a batch: 2 KiB, which stay in the L1 cache between the loops */
    BLOCKS = WORDS / 4,
    LANES = sizeof(lanes) / sizeof(uint64_t), /* blocks at once */
};

/* One word of LANES blocks, each in the low half of a 64-bit lane. The high halves may hold anything: multiply does not
 * read them, and they are dropped at the end. */
struct wide_block {
    lanes word[4];
};

PYES_INLINE struct wide_block wide_round(struct wide_block x, uint32_t key0, uint32_t key1)
{
    const lanes p0 = multiply(x.word[0], 0xD2511F53u);
    const lanes p1 = multiply(x.word[2], 0xCD9E8D57u);
    const struct wide_block y = {{(p1 >> 32) ^ x.word[1] ^ key0, p1, (p0 >> 32) ^ x.word[3] ^ key1, p0}};
    return y;
}

/* philox_block for LANES consecutive blocks; the counter words 2 and 3 are 0, which is purpose NOISE. */
PYES_INLINE struct wide_block wide_philox(lanes index, uint64_t seed)
{
    const uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    struct wide_block x = {{index, index >> 32, index ^ index, index ^ index}};
#define WIDE_ROUND(r) x = wide_round(x, key0 + (r) * 0x9E3779B9u, key1 + (r) * 0xBB67AE85u)
    WIDE_ROUND(0u);
    WIDE_ROUND(1u);
    WIDE_ROUND(2u);
    WIDE_ROUND(3u);
    WIDE_ROUND(4u);
    WIDE_ROUND(5u);
    WIDE_ROUND(6u);
    WIDE_ROUND(7u);
    WIDE_ROUND(8u);
    WIDE_ROUND(9u);
#undef WIDE_ROUND
    return x;
}

/* The words of the blocks first, first + 1, ..., as pairs: the earlier word in the low half. */
PYES_INLINE void noise_words(uint64_t seed, uint64_t first, uint64_t *restrict out)
{
    uint64_t early[BLOCKS], late[BLOCKS], index[LANES];
    for (uint64_t k = 0; k < LANES; k++)
        index[k] = first + k;
    lanes counter;
    memcpy(&counter, index, sizeof counter);
    for (int64_t j = 0; j < BLOCKS; j += LANES) {
        const struct wide_block x = wide_philox(counter, seed);
        const lanes words01 = (x.word[0] & 0xFFFFFFFFu) | (x.word[1] << 32);
        const lanes words23 = (x.word[2] & 0xFFFFFFFFu) | (x.word[3] << 32);
        memcpy(early + j, &words01, sizeof words01);
        memcpy(late + j, &words23, sizeof words23);
        counter += LANES;
    }
    for (int64_t j = 0; j < BLOCKS; j++) {
        out[2 * j] = early[j];
        out[2 * j + 1] = late[j];
    }
}

PYES_INLINE void convert(enum pyes_dtype dtype, int64_t n, const uint32_t *restrict words, void *restrict out)
{
    if (dtype == PYES_FLOAT32) {
        float *restrict entries = out;
        for (int64_t j = 0; j < n; j++)
            entries[j] = normal_of_bits(words[j]);
    } else if (dtype == PYES_BFLOAT16) {
        uint16_t *restrict entries = out;
        for (int64_t j = 0; j < n; j++)
            entries[j] = bfloat16_of_float(normal_of_bits(words[j]));
    } else {
        int8_t *restrict entries = out;
        for (int64_t j = 0; j < n; j++)
            entries[j] = int8_of_float(normal_of_bits(words[j]));
    }
}

PYES_INLINE void fill_noise_typed(enum pyes_dtype dtype, int64_t size, int64_t n, uint64_t seed, uint64_t start,
                                  char *out)
{
    uint64_t pairs[WORDS / 2];
    uint32_t words[WORDS];
    int64_t skip = (int64_t)(start % 4); /* words of the first block that lie before `start` */
    uint64_t block = start / 4;
    while (n > 0) {
        const int64_t batch = n < WORDS - skip ? n : WORDS - skip;
        noise_words(seed, block, pairs);
        memcpy(words, pairs, sizeof words); /* the low half comes first: little-endian, which pyes_kernels.h demands */
        convert(dtype, batch, words + skip, out);
        out += batch * size;
        n -= batch;
        block += BLOCKS;
        skip = 0;
    }
}

void PYES_WIDE(pyes_fill_noise)(int64_t n, enum pyes_dtype dtype, uint64_t seed, uint64_t start, void *out)
{
    if (dtype == PYES_FLOAT32)
        fill_noise_typed(PYES_FLOAT32, 4, n, seed, start, out);
    else if (dtype == PYES_BFLOAT16)
        fill_noise_typed(PYES_BFLOAT16, 2, n, seed, start, out);
    else
        fill_noise_typed(PYES_INT8, 1, n, seed, start, out);
}
