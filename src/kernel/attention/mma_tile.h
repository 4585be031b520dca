/* mma_tile.h - tiles of queries, keys and values on their way into shared memory, for
 * attention_mma.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_TILE_H
#define MP_KERNEL_MMA_TILE_H

#include "kernel/attention/mma.h"
#include "kernel/core/warp_matrix.h"

enum {
    ROWS = K_MMA_ROWS, /* of a set; a warp has ROW_SETS of them */
    ROW_SETS = MMA_ROW_SETS,
    SIDE = 8, /* keys or elements that a product gives */
    STEP = 16,
    DEPTH = 32 / sizeof(T), /* elements of a head that a product sums up */
    PIECES = HEAD / PIECE,
    KEY_SIDES = KEYS / SIDE,
    HEAD_SIDES = HEAD / SIDE,
    KEEP_Q = MMA_KEEP_Q, /* otherwise there are no registers for it */
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

/* Which piece of a row a lane copies, of which rows: every so many from `row` on, of which there
 * are none for a lane without a share. */
typedef struct mma_share {
    int32_t row, rows, d;
} mma_share;

K_FN mma_share mma_shared_out(const mp_attention_args *args) {
    const uint32_t lane = threadIdx.x, rows = blockDim.x / PIECES, row = lane / PIECES;
    const int32_t most = args->tile_rows > args->tile_keys ? args->tile_rows : args->tile_keys;
    mma_share share;
    share.rows = (int32_t)rows;
    share.row = row < rows ? (int32_t)row : most;
    share.d = (int32_t)(lane % PIECES) * PIECE;
    K_HOLD(share.row);
    K_HOLD(share.d);
    return share;
}

/* Keys or values of a head, `size` elements each, and where the lane's first piece of the next tile
 * lies. */
typedef struct mma_side {
    const T *next;
    int64_t stride;
    int32_t size;
} mma_side;

K_FN mma_side mma_side_of(const mma_share *share, const T *first, int64_t stride, int32_t size) {
    mma_side side = {first + share->row * stride + share->d, stride, size};
    K_HOLD_PLACE(side.next);
    return side;
}

/* The next `count` rows into a tile, 0 from row `left` on. */
K_FN void mma_copy_keys(const mma_share *share, mma_side *side, int32_t count, int32_t left,
                        T *to) {
    const int32_t mine = share->d < side->size ? left : 0;
    const T *from = side->next;
    to += share->row * PITCH + share->d;
    K_ONE_COPY for (int32_t r = share->row; r < count; r += share->rows) {
        k_copy_begin(to, from, r < mine ? 16 : 0);
        to += share->rows * PITCH;
        from += share->rows * side->stride;
    }
    side->next += count * side->stride;
}

K_FN void mma_copy_queries(const mp_attention_args *args, const mma_block *at,
                           const mma_share *share, T *to) {
    const T *q = (const T *)args->q + at->entry * args->q_stride[0];
    const int32_t there = share->d < args->head_size;
    K_ONE_COPY for (int32_t r = share->row; r < args->tile_rows; r += share->rows) {
        const mma_line line = mma_line_at(args, at, r);
        const int64_t place = line.head * args->q_stride[1] + line.query * args->q_stride[2];
        k_copy_begin(to + r * PITCH + share->d, q + place + (there ? share->d : 0), there ? 16 : 0);
    }
}

#endif
