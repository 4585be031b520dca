/* select.cu - the k first elements of long rows without sorting them: the k-th key is found digit
 * by digit, from the top; then the elements before it are written, and of those equal to it as many
 * as are left.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/core/block_scan.h"
#include "kernel/core/shared_count.h"
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_key.h"

typedef struct tile {
    const T *x;
    int64_t row, start, size;
} tile;

K_FN tile tile_at(const mp_select_args *args, int64_t number) {
    tile t;
    t.row = number / args->tiles;
    t.start = (number - t.row * args->tiles) * args->tile;
    const int64_t left = args->columns - t.start;
    t.size = left < args->tile ? left : args->tile;
    t.x = (const T *)args->x + t.row * args->columns + t.start;
    return t;
}

/* The digits above the one at `shift`, of which the top one has none. */
K_FN uint64_t above(uint64_t key, int32_t shift) {
    return shift + 8 >= (int32_t)(sizeof(T) * 8) ? 0 : key >> (shift + 8);
}

K_FN void count_digits(const mp_select_args *args, tile t, int64_t number, uint32_t *seen) {
    const uint64_t prefix = above(args->state[t.row].prefix, args->shift);
    K_BLOCK_LOOP(d, K_DIGITS) {
        seen[d] = 0;
    }
    __syncthreads();
    K_BLOCK_LOOP(i, t.size) {
        const uint64_t key = k_order_key((uint64_t)t.x[i], args->order);
        if (above(key, args->shift) == prefix) {
            k_shared_add(&seen[key >> args->shift & (K_DIGITS - 1)], 1);
        }
    }
    __syncthreads();
    const int64_t at = t.row * K_DIGITS * args->tiles + (number - t.row * args->tiles);
    K_BLOCK_LOOP(d, K_DIGITS) {
        args->counts[at + d * args->tiles] = seen[d];
    }
    __syncthreads();
}

K_FN void tally(const mp_select_args *args, tile t, int64_t number) {
    const uint64_t last = args->state[t.row].prefix;
    int64_t below = 0, same = 0;
    K_BLOCK_LOOP(i, t.size) {
        const uint64_t key = k_order_key((uint64_t)t.x[i], args->order);
        below += key < last;
        same += key == last;
    }
    below = k_block_sum_i64(below);
    same = k_block_sum_i64(same);
    if (threadIdx.x == 0) {
        args->below[number] = below;
        args->same[number] = same;
    }
}

K_FN void write_pairs(const mp_select_args *args, tile t, int64_t number) {
    const k_select_state state = args->state[t.row];
    k_pair *pairs = args->pairs + t.row * args->k;
    int64_t below = args->below[number], same = args->same[number];
    for (int64_t i = 0; i < t.size; i += blockDim.x) {
        const int64_t mine = i + threadIdx.x;
        const uint64_t key = mine < t.size ? k_order_key((uint64_t)t.x[mine], args->order) : 0;
        const int64_t is_below = mine < t.size && key < state.prefix;
        const int64_t is_same = mine < t.size && key == state.prefix;
        int64_t all = 0; /* both counts in one scan: a tile has fewer than 2^32 elements */
        const int64_t before = k_block_scan(is_below << 32 | is_same, &all);
        const int64_t rank_same = same + (before & 0xffffffff);
        const int64_t taken_same = rank_same < state.left ? rank_same : state.left;
        const int64_t at = below + (before >> 32) + taken_same;
        if ((is_below || (is_same && rank_same < state.left)) && at < args->k) {
            pairs[at].key = key;
            pairs[at].index = t.start + mine;
        }
        below += all >> 32;
        same += all & 0xffffffff;
    }
}

K_BLOCK_KERNEL(mp_select_args, args) {
    K_SHARED(uint32_t, seen);
    for (int64_t number = blockIdx.x; number < args.rows * args.tiles; number += gridDim.x) {
        const tile t = tile_at(&args, number);
        if (args.stage == K_SELECT_DIGIT) {
            count_digits(&args, t, number, seen);
        } else if (args.stage == K_SELECT_TALLY) {
            tally(&args, t, number);
        } else {
            write_pairs(&args, t, number);
        }
    }
}
