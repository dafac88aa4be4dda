/* The board: which worker holds which member of the generation.
 *
 * Owns the states of members in memory shared by processes. Must not know what a member is.
 * Invariant: a member is withheld, free, held by one worker, or done, and every change is one atomic instruction on one
 * word; so a process killed between any two instructions can lose nothing but its own claim, which pyes_board_release
 * undoes. */
#include "../pyes_kernels.h"

#ifdef _MSC_VER
#include <intrin.h>
static int64_t load64(const int64_t *p) { return _InterlockedCompareExchange64((volatile int64_t *)p, 0, 0); }
static int64_t add_one64(int64_t *p) { return _InterlockedExchangeAdd64((volatile int64_t *)p, 1); }
static void store64(int64_t *p, int64_t x) { _InterlockedExchange64((volatile int64_t *)p, x); }
static int32_t load32(const int32_t *p) { return _InterlockedCompareExchange((volatile long *)p, 0, 0); }
static void store32(int32_t *p, int32_t x) { _InterlockedExchange((volatile long *)p, x); }
static int swap32(int32_t *p, int32_t old, int32_t new_)
{
    return _InterlockedCompareExchange((volatile long *)p, new_, old) == old;
}
#else
/* Compiler builtins on plain words, since _Atomic int32_t need not have the layout of an int32_t array. */
static int64_t load64(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static int64_t add_one64(int64_t *p) { return __atomic_fetch_add(p, 1, __ATOMIC_ACQ_REL); }
static void store64(int64_t *p, int64_t x) { __atomic_store_n(p, x, __ATOMIC_RELEASE); }
static int32_t load32(const int32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void store32(int32_t *p, int32_t x) { __atomic_store_n(p, x, __ATOMIC_RELEASE); }
static int swap32(int32_t *p, int32_t old, int32_t new_)
{
    return __atomic_compare_exchange_n(p, &old, new_, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
#endif

enum { FREE = 0, DONE = -1, WITHHELD = -2 };

int64_t pyes_board_claim(int64_t count, int32_t worker, int64_t *cursor, int32_t *states)
{
    while (load64(cursor) < count) {
        const int64_t m = add_one64(cursor);
        if (m < count && swap32(&states[m], FREE, worker + 1))
            return m;
    }
    /* Past the end: a member is still free if it was released, or if a worker died before it could claim it. */
    for (int64_t m = 0; m < count; m++)
        if (load32(&states[m]) == FREE && swap32(&states[m], FREE, worker + 1))
            return m;
    return -1;
}

int pyes_board_finish(int64_t member, int32_t worker, int32_t *states)
{
    return swap32(&states[member], worker + 1, DONE);
}

void pyes_board_release(int64_t count, int32_t worker, int32_t *states)
{
    for (int64_t m = 0; m < count; m++)
        swap32(&states[m], worker + 1, FREE);
}

int64_t pyes_board_remaining(int64_t count, const int32_t *states)
{
    int64_t remaining = 0;
    for (int64_t m = 0; m < count; m++)
        remaining += load32(&states[m]) >= FREE;
    return remaining;
}

void pyes_board_withhold(int64_t count, int32_t *states)
{
    for (int64_t m = 0; m < count; m++)
        store32(&states[m], WITHHELD);
}

void pyes_board_offer(int64_t begin, int64_t end, int64_t *cursor, int32_t *states)
{
    for (int64_t m = begin; m < end; m++)
        swap32(&states[m], WITHHELD, FREE);
    /* The cursor is a hint: a claim that misses a free member by a race with this line finds it in its final scan. */
    if (load64(cursor) > begin)
        store64(cursor, begin);
}

void pyes_board_withdraw(int64_t begin, int64_t end, int32_t *states)
{
    for (int64_t m = begin; m < end; m++)
        swap32(&states[m], FREE, WITHHELD);
}

int64_t pyes_board_collect(int64_t count, int32_t *states, int64_t *members)
{
    int64_t collected = 0;
    for (int64_t m = 0; m < count; m++)
        if (load32(&states[m]) == DONE && swap32(&states[m], DONE, WITHHELD))
            members[collected++] = m;
    return collected;
}
