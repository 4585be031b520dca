/* row_lanes.h - rows of contiguous elements shared by groups of lanes, each of which may keep its
 * part of the row in registers.
 *
 * A group is `width` neighbouring lanes, a power of two: part of a warp, or the whole block. All
 * groups of a block take the same number of turns, so that every lane comes to each barrier; a
 * group without a row has a row of no elements. SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROW_LANES_H
#define MP_KERNEL_ROW_LANES_H

#include "kernel/block.h"
#include "kernel/reduce_args.h"

enum {
    K_PACK = 16 / sizeof(T), /* elements of 16 bytes */
    K_KEEP = 16,             /* elements of a row that a lane keeps */
};

typedef struct K_ALIGN(16) k_pack {
    T at[K_PACK];
} k_pack;

#if K_HOST
#define K_UNROLL
#else
#define K_UNROLL _Pragma("unroll")
#endif

/* Visits c = the first of each `pack` columns that this lane keeps, as keep[k] and on. */
#define K_KEPT_LOOP(k, c, pack, lane, width)                               \
    K_UNROLL                                                               \
    for (int32_t k = 0, k##_column = (int32_t)(lane) * (pack); k < K_KEEP; \
         k += (pack), k##_column += (int32_t)(width) * (pack))             \
        for (int64_t c = k##_column, k##_once = 1; k##_once; k##_once = 0)

/* Combines over the lanes of a group; every lane of the block calls. Groups of more than 32 lanes
 * are the block. */
#if K_HOST
#define K_GROUP_REDUCE(name, type, block, combine)                \
    K_FN type name(type value, uint32_t width) {                  \
        type *slot = (type *)k_host_slots();                      \
        if (width == blockDim.x) {                                \
            return block(value);                                  \
        }                                                         \
        const uint32_t lane = threadIdx.x;                        \
        slot[lane] = value;                                       \
        __syncthreads();                                          \
        for (uint32_t half = width / 2; half > 0; half /= 2) {    \
            if (lane % width < half) {                            \
                const type a = slot[lane], b = slot[lane + half]; \
                slot[lane] = combine;                             \
            }                                                     \
            __syncthreads();                                      \
        }                                                         \
        value = slot[lane - lane % width];                        \
        __syncthreads();                                          \
        return value;                                             \
    }
#else
#define K_GROUP_REDUCE(name, type, block, combine)                               \
    K_FN type name(type value, uint32_t width) {                                 \
        if (width > 32) {                                                        \
            return block(value);                                                 \
        }                                                                        \
        for (uint32_t half = width / 2; half > 0; half /= 2) {                   \
            const type a = value, b = __shfl_xor_sync(0xffffffffu, value, half); \
            value = combine;                                                     \
        }                                                                        \
        return value;                                                            \
    }
#endif
K_GROUP_REDUCE(k_group_sum, K_SUM, k_block_sum, a + b)
K_GROUP_REDUCE(k_group_max, K_SUM, k_block_max, a != a ? a : b != b ? b : a > b ? a : b)

typedef struct k_turn {
    uint32_t lane, width; /* within the group */
    int64_t group, step;  /* the first row of this group, and how many rows a turn of all takes */
    int64_t first;        /* row of the block's first group: while it is below `rows`, all turn */
} k_turn;

K_FN k_turn k_turns(int32_t width) {
    k_turn t;
    t.width = (uint32_t)width < blockDim.x ? (uint32_t)width : blockDim.x;
    t.lane = threadIdx.x % t.width;
    const int64_t groups = blockDim.x / t.width;
    t.first = (int64_t)blockIdx.x * groups;
    t.group = threadIdx.x / t.width;
    t.step = (int64_t)gridDim.x * groups;
    return t;
}

#endif
