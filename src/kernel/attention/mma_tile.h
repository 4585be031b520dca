/* mma_tile.h - tiles of queries, keys and values on their way into shared memory, for
 * attention_mma.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_TILE_H
#define MP_KERNEL_MMA_TILE_H

#include "kernel/attention/mma.h"
#include "kernel/core/warp_matrix.h"

enum {
    ROWS = K_MMA_ROWS,
    SIDE = 8, /* keys or elements that a product gives */
    STEP = 16,
    DEPTH = 32 / sizeof(T), /* elements of a head that a product sums up */
    PIECES = HEAD / PIECE,
    KEY_SIDES = KEYS / SIDE,
    HEAD_SIDES = HEAD / SIDE,
    KEEP_Q = HEAD <= 128, /* otherwise there are no registers for it */
    LANES = 32
};
static_assert(HEAD % STEP == 0 && KEYS % STEP == 0, "sizes are multiples of a step");

#define MMA_LOG2_E 1.44269504F
#define MMA_ALL    0xffffffffu

/* What a lane has of its rows g and g + 8. */
typedef struct mma_state {
    float out[HEAD_SIDES][4];
    float top[2], total[2];
} mma_state;

/* Which piece of a row a lane copies, of which rows: all lanes of `rows` rows at a time, the others
 * have none. */
typedef struct mma_share {
    int32_t row, rows, d;
} mma_share;

K_FN mma_share mma_shared_out(void) {
    mma_share share;
    share.rows = (int32_t)blockDim.x / PIECES;
    share.row = (int32_t)threadIdx.x / PIECES;
    share.d = (int32_t)threadIdx.x % PIECES * PIECE;
    return share;
}

/* Rows from `first` of K or V into shared memory, 0 from `end` on. */
K_FN void mma_copy_keys(T *to, const T *from, int64_t stride, int32_t size, int32_t first,
                        int32_t count, int32_t end) {
    const mma_share share = mma_shared_out();
    const T *source = from + (int64_t)(first + share.row) * stride + share.d;
    if (share.row >= share.rows) {
        return;
    }
    K_ONE_COPY for (int32_t r = share.row; r < count; r += share.rows) {
        const int32_t there = first + r < end && share.d < size;
        k_copy_begin(to + r * PITCH + share.d, there ? source : from, there ? 16 : 0);
        source += share.rows * stride;
    }
}

K_FN void mma_copy_queries(const mp_attention_args *args, const mma_block *at, T *to) {
    const mma_share share = mma_shared_out();
    const T *q = (const T *)args->q + at->entry * args->q_stride[0];
    if (share.row >= share.rows) {
        return;
    }
    K_ONE_COPY for (int32_t r = share.row; r < args->tile_rows; r += share.rows) {
        const mma_line line = mma_line_at(&args->rule, at, r);
        const int64_t place = line.head * args->q_stride[1] + line.query * args->q_stride[2];
        const int32_t there = share.d < args->head_size;
        k_copy_begin(to + r * PITCH + share.d, q + place + (there ? share.d : 0), there ? 16 : 0);
    }
}

#endif
