/* Philox and the streams: published vectors, every length. */
#include "../kernels/philox.h"
#include "checks.h"

/* Random123 (Salmon et al. 2011), file kat_vectors, "philox4x32 10". */
static void test_philox_published_vectors(void)
{
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t words[4];
    } vectors[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         0xffffffffffffffff,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct pyes_block x;
        memcpy(x.word, vectors[i].counter, sizeof x.word);
        x = philox_block(x, vectors[i].key);
        CHECK(memcmp(x.word, vectors[i].words, sizeof x.word) == 0);
    }
}

static void test_streams_lengths(void)
{
    for (int64_t n = 0; n < 10; n++) {
        uint32_t *words = buffer(n, sizeof *words);
        int64_t *numbers = buffer(n, sizeof *numbers);
        pyes_stream_bits(n, 1, 2, 3, 4, 5, words);
        pyes_draw_seeds(n, 1, 2, 3, 4, numbers);
        for (int64_t i = 0; i < n; i++)
            CHECK(numbers[i] >= 0 && numbers[i] < (int64_t)1 << 31);
        pyes_draw_offsets(n, 1, 2, 3, 7, numbers);
        for (int64_t i = 0; i < n; i++)
            CHECK(numbers[i] >= 0 && numbers[i] < 7);
        free(words);
        free(numbers);
    }
}

void test_streams(void)
{
    test_philox_published_vectors();
    test_streams_lengths();
}
