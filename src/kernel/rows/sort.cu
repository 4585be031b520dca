/* sort.cu - one digit of a stable radix sort of pairs, tile by tile. A tile is sorted by the
 * digit's two halves in shared memory, so that it is written to the output in runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block_scan.h"
#include "kernel/core/shared_count.h"
#include "kernel/rows/sort_args.h"

enum { HALF = 16 }; /* values of half a digit */

K_FN uint32_t digit_of(k_pair pair, int32_t shift) {
    return (uint32_t)(pair.key >> shift) & (K_DIGITS - 1);
}

/* Stable: a lane has a run of neighbours, and of each half digit the lanes' counts stand in the
 * order of the lanes. */
K_FN void sort_half(const k_pair *from, k_pair *to, uint16_t *count, int64_t size, int32_t shift) {
    const int64_t lanes = blockDim.x, lane = threadIdx.x;
    const int64_t run = (K_SORT_TILE + lanes - 1) / lanes;
    const int64_t first = lane * run;
    const int64_t end = first + run < size ? first + run : size;
    for (int h = 0; h < HALF; h++) {
        count[h * lanes + lane] = 0;
    }
    for (int64_t i = first; i < end; i++) {
        count[(from[i].key >> shift & (HALF - 1)) * lanes + lane]++;
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
        to[count[(from[i].key >> shift & (HALF - 1)) * lanes + lane]++] = from[i];
    }
    __syncthreads();
}

K_FN void count_tile(const k_pair *in, int64_t size, int32_t shift, int64_t *out, int64_t step,
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

K_BLOCK_KERNEL(mp_sort_args, args) {
    K_SHARED(k_pair, pairs);
    k_pair *other = pairs + K_SORT_TILE;
    uint16_t *count = (uint16_t *)(other + K_SORT_TILE);
    uint32_t *seen = (uint32_t *)pairs;
    uint32_t *start = (uint32_t *)count; /* once the tile is sorted */
    for (int64_t number = blockIdx.x; number < args.rows * args.tiles; number += gridDim.x) {
        const int64_t row = number / args.tiles, tile = number - row * args.tiles;
        const int64_t left = args.columns - tile * K_SORT_TILE;
        const int64_t size = left < K_SORT_TILE ? left : K_SORT_TILE;
        const k_pair *in = args.in + row * args.columns + tile * K_SORT_TILE;
        int64_t *base = args.counts + row * K_DIGITS * args.tiles + tile;
        if (args.stage == K_SORT_COUNT) {
            count_tile(in, size, args.shift, base, args.tiles, seen);
            continue;
        }
        K_BLOCK_LOOP(i, size) {
            pairs[i] = in[i];
        }
        __syncthreads();
        sort_half(pairs, other, count, size, args.shift);
        sort_half(other, pairs, count, size, args.shift + 4);
        K_BLOCK_LOOP(i, size) {
            const uint32_t digit = digit_of(pairs[i], args.shift);
            if (i == 0 || digit_of(pairs[i - 1], args.shift) != digit) {
                start[digit] = (uint32_t)i;
            }
        }
        __syncthreads();
        k_pair *out = args.out + row * args.columns;
        K_BLOCK_LOOP(i, size) {
            const uint32_t digit = digit_of(pairs[i], args.shift);
            const int64_t at = base[digit * args.tiles] + (i - start[digit]);
            if (at < args.columns) {
                out[at] = pairs[i];
            }
        }
        __syncthreads();
    }
}
