/* select.cu - the k first elements of long rows without sorting them: the k-th key is found digit
 * by digit, from the top; then the elements before it are written, and of those equal to it as many
 * as are left.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/core/block_scan.h"
#include "kernel/core/shared_count.h"
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_entry.h"
#include "kernel/rows/sort_key.h"

enum { AT_ONCE = K_HOST ? 1 : 8 }; /* elements on their way to a lane */

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

/* The same number, which the compiler knows nothing of: it would put each load where what was
 * loaded is used, since both have the same condition. */
K_FN int64_t anew(int64_t size) {
#if !K_HOST
    asm volatile("" : "+l"(size));
#endif
    return size;
}

/* The keys of elements first, first + apart, ... of a tile, all asked for at once; that of `other`
 * where there are no more. Gives the tile's size, to compare their places with. */
K_FN int64_t load_keys(const mp_select_args *args, tile t, int64_t first, int64_t apart,
                       int64_t other, uint64_t *key) {
    T element[AT_ONCE];
    K_UNROLL
    for (int i = 0; i < AT_ONCE; i++) {
        const int64_t at = first + i * apart;
        element[i] = t.x[at < t.size ? at : other];
    }
    const int64_t size = anew(t.size);
    K_UNROLL
    for (int i = 0; i < AT_ONCE; i++) {
        key[i] = k_order_key((uint64_t)element[i], args->order);
    }
    return size;
}

#define SOME_LOOP(first, t) \
    for (int64_t first = threadIdx.x; first < (t).size; first += (int64_t)AT_ONCE * blockDim.x)

/* Sums of integers come out the same in any order. */
K_FN void add_to(int64_t *total, uint32_t count) {
#if K_HOST
    __atomic_fetch_add(total, (int64_t)count, __ATOMIC_RELAXED);
#else
    atomicAdd((unsigned long long *)total, (unsigned long long)count);
#endif
}

K_FN void count_digits(const mp_select_args *args, tile t, uint32_t *seen) {
    const uint64_t prefix = above(args->state[t.row].prefix, args->shift);
    K_BLOCK_LOOP(d, K_DIGITS) {
        seen[d] = 0;
    }
    __syncthreads();
    SOME_LOOP(first, t) {
        uint64_t key[AT_ONCE];
        const int64_t size = load_keys(args, t, first, blockDim.x, first, key);
        K_UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            if (first + (int64_t)i * blockDim.x < size && above(key[i], args->shift) == prefix) {
                k_shared_add(&seen[key[i] >> args->shift & (K_DIGITS - 1)], 1);
            }
        }
    }
    __syncthreads();
    K_BLOCK_LOOP(d, K_DIGITS) {
        if (seen[d] > 0) {
            add_to(&args->counts[t.row * K_DIGITS + d], seen[d]);
        }
    }
    __syncthreads();
}

K_FN void tally(const mp_select_args *args, tile t, int64_t number) {
    const uint64_t last = args->state[t.row].prefix;
    int64_t below = 0, same = 0;
    SOME_LOOP(first, t) {
        uint64_t key[AT_ONCE];
        const int64_t size = load_keys(args, t, first, blockDim.x, first, key);
        K_UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            const int counts = first + (int64_t)i * blockDim.x < size;
            below += counts && key[i] < last;
            same += counts && key[i] == last;
        }
    }
    below = k_block_sum_i64(below);
    same = k_block_sum_i64(same);
    if (threadIdx.x == 0) {
        args->below[number] = below;
        args->same[number] = same;
    }
}

/* A lane has neighbours, so that the lanes before it have what is before them in the row. */
K_FN void write_entries(const mp_select_args *args, tile t, int64_t number) {
    const k_select_state state = args->state[t.row];
    int64_t below = args->below[number], same = args->same[number];
    for (int64_t from = 0; from < t.size; from += (int64_t)AT_ONCE * blockDim.x) {
        const int64_t mine = from + (int64_t)threadIdx.x * AT_ONCE;
        uint64_t key[AT_ONCE];
        const int64_t size = load_keys(args, t, mine, 1, 0, key);
        int64_t here = 0, all = 0; /* both counts in one: a tile has fewer than 2^32 elements */
        K_UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            const int64_t counts = mine + i < size;
            here += (counts && key[i] < state.prefix ? (int64_t)1 << 32 : 0) +
                    (counts && key[i] == state.prefix);
        }
        const int64_t before = k_block_scan(here, &all);
        int64_t at_below = below + (before >> 32), at_same = same + (before & 0xffffffff);
        K_UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            const int is_below = mine + i < size && key[i] < state.prefix;
            const int is_same = mine + i < size && key[i] == state.prefix;
            const int64_t at = at_below + (at_same < state.left ? at_same : state.left);
            if ((is_below || (is_same && at_same < state.left)) && at < args->k) {
                k_entry_put(args->entries, args->words, t.row * args->k + at, key[i],
                            t.start + mine + i);
            }
            at_below += is_below;
            at_same += is_same;
        }
        below += all >> 32;
        same += all & 0xffffffff;
    }
}

K_BLOCK_KERNEL_IN_64(K_SELECT_LANES, mp_select_args, args) {
    K_SHARED(uint32_t, seen);
    for (int64_t number = blockIdx.x; number < args.rows * args.tiles; number += gridDim.x) {
        const tile t = tile_at(&args, number);
        if (args.stage == K_SELECT_DIGIT) {
            count_digits(&args, t, seen);
        } else if (args.stage == K_SELECT_TALLY) {
            tally(&args, t, number);
        } else {
            write_entries(&args, t, number);
        }
    }
}
