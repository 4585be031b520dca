/* time_warp.cu - the cheapest way through a matrix of costs, by one block: diagonal by diagonal,
 * whose elements follow from those of the two before; then one lane goes back from the end.
 *
 *     d=0 1 2 3        an element is reached from its neighbour above (ROW), to the left (COLUMN)
 *       1 2 3 4        or from the one between these (BOTH); COLUMN where none is cheaper than
 *       2 3 4 5        both others
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/signal/signal_args.h"

/* Of element (r, c); `last` and `before` are the diagonals before its own. */
K_FN float w_reach(const float *last, const float *before, int64_t r, int64_t c, int8_t *from) {
    const float both = r > 0 && c > 0 ? before[r - 1] : r == 0 && c == 0 ? 0.0f : K_INF;
    const float row = r > 0 ? last[r - 1] : K_INF;
    const float column = c > 0 ? last[r] : K_INF;
    const int is_both = both < row && both < column;
    const int is_row = !is_both && row < both && row < column;
    *from = (int8_t)(is_both ? K_WARP_BOTH : is_row ? K_WARP_ROW : K_WARP_COLUMN);
    return is_both ? both : is_row ? row : column;
}

/* The path, from its end on, in the last places of each row of `path`. */
K_FN void w_trace(const mp_time_warp_args *args) {
    const int64_t most = args->rows + args->columns;
    int64_t r = args->rows - 1, c = args->columns - 1, place = most;
    while (r >= 0 && c >= 0) {
        const int8_t from = args->from[r * args->columns + c];
        place--;
        args->path[place] = (int32_t)r;
        args->path[most + place] = (int32_t)c;
        r -= from != K_WARP_COLUMN;
        c -= from != K_WARP_ROW;
    }
    *args->length = most - place;
}

K_BLOCK_KERNEL(mp_time_warp_args, args) {
    const int64_t rows = args.rows, columns = args.columns;
    float *now = args.best, *last = now + rows, *before = last + rows;
    for (int64_t d = 0; d < rows + columns - 1; d++) {
        const int64_t first = d < columns ? 0 : d - columns + 1;
        const int64_t end = d < rows ? d + 1 : rows;
        K_BLOCK_LOOP(i, end - first) {
            const int64_t r = first + i, at = r * columns + (d - r);
            int8_t from;
            const float reached = w_reach(last, before, r, d - r, &from);
            now[r] = reached + args.cost[at];
            args.from[at] = from;
        }
        __syncthreads();
        float *const oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    if (threadIdx.x == 0) {
        w_trace(&args);
    }
}
