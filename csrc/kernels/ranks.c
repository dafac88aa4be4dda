/* Centered ranks of returns. Owns the order of returns: NaN lowest, equal returns tied. */
#include "unguarded.h"
#include "wide.h"

PYES_INLINE int is_nan(double x)
{
    return x != x;
}

/* Whether return a ranks strictly lower than return b; all NaN tie with each other, below everything else. */
PYES_INLINE int lower(const double *returns, int64_t a, int64_t b)
{
    return is_nan(returns[a]) ? !is_nan(returns[b]) : returns[a] < returns[b];
}

PYES_INLINE void merge(const double *returns, const int64_t *in, int64_t first, int64_t middle, int64_t last,
                       int64_t *out)
{
    int64_t left = first, right = middle;
    for (int64_t k = first; k < last; k++) {
        const int take_right = left == middle || (right < last && lower(returns, in[right], in[left]));
        out[k] = take_right ? in[right++] : in[left++];
    }
}

/* Bottom-up stable merge sort of indices; returns which of the two halves of `workspace` holds the result. */
PYES_INLINE const int64_t *sorted_order(int64_t n, const double *returns, int64_t *workspace)
{
    int64_t *in = workspace, *out = workspace + n;
    for (int64_t i = 0; i < n; i++)
        in[i] = i;
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t first = 0; first < n; first += 2 * run) {
            const int64_t middle = first + run < n ? first + run : n;
            const int64_t last = first + 2 * run < n ? first + 2 * run : n;
            merge(returns, in, first, middle, last, out);
        }
        int64_t *swap = in;
        in = out;
        out = swap;
    }
    return in;
}

void pyes_centered_ranks_unguarded(int64_t n, const double *returns, int64_t *workspace, float *out)
{
    const int64_t *order = sorted_order(n, returns, workspace);
    for (int64_t first = 0, last; first < n; first = last) {
        last = first + 1;
        while (last < n && !lower(returns, order[first], order[last]))
            last++;
        /* Ranks first .. last-1 are tied: their mean is (first + last - 1) / 2. */
        const double rank = 0.5 * (double)(first + last - 1);
        const float centered = n > 1 ? (float)(rank / (double)(n - 1) - 0.5) : 0.0f;
        for (int64_t k = first; k < last; k++)
            out[order[k]] = centered;
    }
}
