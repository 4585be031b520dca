/* sort.cu - one digit of a stable radix sort of entries, tile by tile. A tile is sorted by the
 * digit's two halves in shared memory, so that it is written to the output in runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block_scan.h"
#include "kernel/core/shared_count.h"
#include "kernel/rows/sort_args.h"

#if K_WORDS
typedef uint64_t entry;
#define KEY_OF(e) ((e) >> 32)
#else
typedef k_pair entry;
#define KEY_OF(e) ((e).key)
#endif

enum { HALF = 16 }; /* values of half a digit */
enum { RUN = K_SORT_RUN_BYTES / sizeof(entry), TILE = RUN * K_SORT_LANES };

K_FN uint32_t digit_of(entry e, int32_t shift) {
    return (uint32_t)(KEY_OF(e) >> shift) & (K_DIGITS - 1);
}

/* Where entry i of a tile is in shared memory: lanes have runs of neighbours, and with a gap after
 * each run those of all lanes come from different banks. */
K_FN int64_t slot(int64_t i) {
    return i + i / RUN;
}

/* Stable: a lane has a run of neighbours, and of each half digit the lanes' counts stand in the
 * order of the lanes. */
K_FN void sort_half(const entry *from, entry *to, uint16_t *count, int64_t size, int32_t shift) {
    const int64_t lanes = blockDim.x, lane = threadIdx.x;
    const int64_t run = (TILE + lanes - 1) / lanes;
    const int64_t first = lane * run;
    const int64_t end = first + run < size ? first + run : size;
    for (int h = 0; h < HALF; h++) {
        count[h * lanes + lane] = 0;
    }
    for (int64_t i = first; i < end; i++) {
        count[(KEY_OF(from[slot(i)]) >> shift & (HALF - 1)) * lanes + lane]++;
    }
    __syncthreads();
    int64_t sum = 0, all = 0;
    for (int h = 0; h < HALF; h++) {
        sum += count[lane * HALF + h];
    }
    int64_t before = k_block_scan(sum, &all);
    for (int h = 0; h < HALF; h++) {
        const uint16_t mine = count[lane * HALF + h];
        count[lane * HALF + h] = (uint16_t)before;
        before += mine;
    }
    __syncthreads();
    for (int64_t i = first; i < end; i++) {
        const entry e = from[slot(i)];
        to[slot(count[(KEY_OF(e) >> shift & (HALF - 1)) * lanes + lane]++)] = e;
    }
    __syncthreads();
}

K_FN void count_tile(const entry *in, int64_t size, int32_t shift, int64_t *out, int64_t step,
                     uint32_t *seen) {
    K_BLOCK_LOOP(d, K_DIGITS) {
        seen[d] = 0;
    }
    __syncthreads();
    K_BLOCK_LOOP(i, size) {
        k_shared_add(&seen[digit_of(in[i], shift)], 1);
    }
    __syncthreads();
    K_BLOCK_LOOP(d, K_DIGITS) {
        out[d * step] = seen[d];
    }
    __syncthreads();
}

/* From where on in the row each digit's entries of this tile go, less where they begin in the tile:
 * behind all smaller digits, and those of the tiles before. `begin` is of each digit. */
K_FN void place_digits(const int64_t *totals, const int64_t *base, int64_t tiles,
                       const uint32_t *begin, int64_t *to) {
    int64_t before = 0;
    for (int64_t i = 0; i < K_DIGITS; i += blockDim.x) {
        const int64_t digit = i + threadIdx.x;
        int64_t all = 0;
        const int64_t sum = k_block_scan(digit < K_DIGITS ? totals[digit] : 0, &all);
        if (digit < K_DIGITS) {
            to[digit] = before + sum + base[digit * tiles] - (int64_t)begin[digit];
        }
        before += all;
    }
    __syncthreads();
}

K_BLOCK_KERNEL(mp_sort_args, args) {
    K_SHARED(entry, list);
    entry *other = list + TILE + K_SORT_LANES;
    uint16_t *count = (uint16_t *)(other + TILE + K_SORT_LANES);
    uint32_t *seen = (uint32_t *)list;
    uint32_t *begin = (uint32_t *)count; /* once the tile is sorted */
    int64_t *to = (int64_t *)other;
    for (int64_t number = blockIdx.x; number < args.rows * args.tiles; number += gridDim.x) {
        const int64_t row = number / args.tiles, tile = number - row * args.tiles;
        const int64_t left = args.columns - tile * TILE;
        const int64_t size = left < TILE ? left : TILE;
        const entry *in = (const entry *)args.in + row * args.columns + tile * TILE;
        int64_t *base = args.counts + row * K_DIGITS * args.tiles + tile;
        if (args.stage == K_SORT_COUNT) {
            count_tile(in, size, args.shift, base, args.tiles, seen);
            continue;
        }
        K_BLOCK_LOOP(i, size) {
            list[slot(i)] = in[i];
        }
        __syncthreads();
        sort_half(list, other, count, size, args.shift);
        sort_half(other, list, count, size, args.shift + 4);
        K_BLOCK_LOOP(i, size) {
            const uint32_t digit = digit_of(list[slot(i)], args.shift);
            if (i == 0 || digit_of(list[slot(i - 1)], args.shift) != digit) {
                begin[digit] = (uint32_t)i;
            }
        }
        __syncthreads();
        place_digits(args.totals + row * K_DIGITS, base, args.tiles, begin, to);
        entry *out = (entry *)args.out + row * args.columns;
        K_BLOCK_LOOP(i, size) {
            const entry e = list[slot(i)];
            const int64_t at = to[digit_of(e, args.shift)] + i;
            if (at < args.columns) {
                out[at] = e;
            }
        }
        __syncthreads();
    }
}
