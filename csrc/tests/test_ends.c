/* Actions, the board that assigns members to workers, and rays. */
#include "checks.h"

void test_actions(void)
{
    const float outputs[6] = {NAN, 3.0f, 3.0f, -9.0f, 0.0f, 9.0f}, low[2] = {-1.0f, 0.0f}, high[2] = {1.0f, 4.0f};
    float out[2], mean[2] = {1.0f, 0.0f}, inverse[2] = {2.0f, 100.0f};
    double sums[4] = {0.0};
    CHECK(pyes_argmax(6, outputs) == 5 && pyes_argmax(3, outputs) == 1 && pyes_argmax(1, outputs) == 0);
    pyes_box_action(2, PYES_BINS, 3, outputs, low, high, out);
    CHECK(out[0] == 0.0f && out[1] == 4.0f);
    pyes_box_action(2, PYES_CLIP, 0, outputs + 2, low, high, out);
    CHECK(out[0] == 1.0f && out[1] == 0.0f);
    pyes_box_action(2, PYES_SPAN, 0, outputs + 3, low, high, out);
    CHECK(out[0] == -1.0f && out[1] == 2.0f);
    const int64_t actions[3] = {PYES_CHOICE, PYES_SIGN, PYES_CLIP}, widths[3] = {3, 1, 1};
    const float unbounded[3] = {0.0f, 0.0f, -1.0f}, bounded[3] = {0.0f, 0.0f, 1.0f};
    float mixed[3];
    pyes_mixed_action(3, actions, widths, outputs, unbounded, bounded, mixed);
    CHECK(mixed[0] == 1.0f && mixed[1] == 0.0f && mixed[2] == 0.0f);
    pyes_mixed_action(1, actions, widths, outputs + 3, unbounded, bounded, mixed);
    CHECK(mixed[0] == 2.0f);
    pyes_normalize(2, outputs + 1, mean, inverse, 5.0f, out);
    CHECK(out[0] == 4.0f && out[1] == 5.0f);
    pyes_collect(2, outputs + 1, sums);
    CHECK(sums[0] == 3.0 && sums[2] == 9.0);
}

void test_board(void)
{
    int64_t cursor = 99;
    int32_t *states = buffer(3, sizeof *states);
    pyes_board_withhold(3, states);
    pyes_board_offer(0, 3, &cursor, states);
    CHECK(pyes_board_claim(3, 0, &cursor, states) == 0);
    CHECK(pyes_board_claim(3, 1, &cursor, states) == 1);
    pyes_board_release(3, 0, states);
    CHECK(pyes_board_claim(3, 1, &cursor, states) == 2);
    CHECK(pyes_board_claim(3, 1, &cursor, states) == 0);
    CHECK(pyes_board_claim(3, 1, &cursor, states) == -1);
    CHECK(pyes_board_finish(0, 0, states) == 0 && pyes_board_finish(0, 1, states) == 1);
    CHECK(pyes_board_remaining(3, states) == 2);
    int64_t members[3] = {0};
    CHECK(pyes_board_collect(3, states, members) == 1 && members[0] == 0);
    CHECK(pyes_board_collect(3, states, members) == 0);
    pyes_board_withhold(3, states);
    CHECK(pyes_board_remaining(3, states) == 0 && pyes_board_claim(3, 0, &cursor, states) == -1);
    pyes_board_offer(1, 3, &cursor, states);
    CHECK(pyes_board_claim(3, 0, &cursor, states) == 1);
    pyes_board_withdraw(0, 3, states);
    CHECK(pyes_board_claim(3, 0, &cursor, states) == -1 && pyes_board_remaining(3, states) == 1);
    free(states);
}

void test_rays(void)
{
    const double offsets[8] = {0.0, -8.0, 8.0, 0.0, -8.0, 0.0, 0.0, 0.0};
    /* a floor at y = -2; the same from the other side; no longer than a point; another one behind it */
    const float segments[16] = {-9, -2, 9, -2, 9, -2, -9, -2, 1, 1, 1, 1, -9, -4, 9, -4};
    const float square[16] = {4, -1, 0, -1, 6, -1, 1, 0, 6, 1, 0, 1, 4, 1, -1, 0}; /* x from 4 to 6 */
    float out[4];
    pyes_ray_fractions(4, offsets, 0.0f, 0.0f, 4, segments, 1, square, out);
    CHECK(out[0] == 0.25f && out[1] == 0.5f && out[2] == 1.0f && out[3] == 1.0f);
    pyes_ray_fractions(4, offsets, 5.0f, 0.0f, 0, segments, 1, square, out); /* from inside nothing is met */
    CHECK(out[0] == 1.0f && out[1] == 1.0f && out[2] == 1.0f);
    pyes_ray_fractions(1, offsets, NAN, 0.0f, 4, segments, 1, square, out);
    CHECK(out[0] == 1.0f || out[0] != out[0]);
}
