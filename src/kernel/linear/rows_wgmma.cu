/* rows_wgmma.cu - some rows times a matrix by tensor cores, as rows_mma.cu does it, with the
 * products of GPUs of compute capability 9.0, of which a group of four warps makes one together.
 *
 * A block makes a tile of 64 rows x K_COLUMNS. Its two groups make the whole tile each, of chunks
 * along k (K_ROWS_WGMMA_CHUNK bytes of a row of A) that they take in turn, so that one's products
 * go on while the other waits; each has a ring of stages in shared memory for itself. B is asked
 * for before the kernel before has ended, where it is constant. Where there are few tiles, the
 * blocks of a cluster take chunks of one tile in turn, too.
 *
 * In a stage lie lines of 128 bytes as group_matrix.h wants them: rows of A, then of B its columns
 * where it is stored turned, else rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/group_matrix.h"
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/linear/linear_args.h"

#if K_GROUP_MATRIX

enum { R_LANES = K_ROWS_WGMMA_LANES };
#include "kernel/linear/group_lines.h"
#include "kernel/linear/rows_end.h"

enum {
    W_GROUPS = R_LANES / L_GROUP,
    W_B_STEP = K_TURNED ? L_STEP : L_STEP / R_SIZE * L_CHUNK, /* from a product's B to the next */
    W_A = K_ROWS * L_CHUNK,
    W_B_LINES = K_TURNED ? K_COLUMNS : L_DEPTH,
    R_STAGE = K_ROWS_WGMMA_STAGE(K_COLUMNS),
    R_AHEAD = K_ROWS_WGMMA_AHEAD(K_COLUMNS),
    R_PARTS = W_GROUPS,
    R_BROUGHT = 4, /* chunks of B, behind those, that are on their way to a cache */
};

/* What a lane has of its group's sums. */
typedef float r_lane_sums[K_COLUMNS / 2];

/* What a lane does: the block's tile, which chunks its group takes, and what it copies. */
typedef struct r_place {
    r_tile tile;
    uint8_t *ring; /* the group's own part */
    int32_t group, lane;
    int32_t chunk, turn, chunks; /* the group's first, from one to the next, and all there are */
    int32_t along;               /* the lane's piece of a line, in bytes */
    int32_t spot;                /* where it lies in a stage */
    int32_t a_load;              /* in bytes, as spot */
    l_side a, b;
} r_place;

K_FN r_place r_place_of(const mp_rows_mma_args *args, uint8_t *shared) {
    const int32_t lane = (int32_t)threadIdx.x % L_GROUP;
    const int64_t b_pitch = args->ldb * R_SIZE;
    r_place at;
    at.tile = r_tile_of(args);
    at.group = k_group_number();
    at.lane = lane;
    at.ring = shared + at.group * (R_AHEAD * R_STAGE);
    at.chunk = at.tile.rank * W_GROUPS + at.group;
    at.turn = W_GROUPS << args->splits_log;
    at.chunks = (args->k_bytes + L_CHUNK - 1) / L_CHUNK;
    at.along = lane % L_PIECES * L_PIECE;
    at.spot = l_spot(lane / L_PIECES, lane % L_PIECES);
    at.a_load = l_left_of(lane);
    at.a = l_side_of(args->a, args->lda * R_SIZE, at.tile.row, at.tile.rows, lane);
    if (K_TURNED) {
        at.b = l_side_of(args->b, b_pitch, at.tile.column, at.tile.columns, lane);
    } else {
        at.b = l_side_of((const T *)args->b + at.tile.column, b_pitch, 0, args->k_bytes / R_SIZE,
                         lane);
        at.b.chunk = L_DEPTH * b_pitch;
    }
    return at;
}

/* ---- into shared memory ---- */

K_FN void r_fill_a(const r_place *at, int32_t chunk, uint8_t *stage) {
    if (chunk < at->chunks) {
        l_fill(&at->a, chunk, K_ROWS, at->a.left,
               chunk * L_CHUNK + at->along < at->tile.args->k_bytes, stage + at->spot);
    }
}

K_FN void r_fill_b(const r_place *at, int32_t chunk, uint8_t *stage) {
    if (chunk >= at->chunks) {
        return;
    }
    if (K_TURNED) {
        l_fill(&at->b, chunk, W_B_LINES, at->b.left,
               chunk * L_CHUNK + at->along < at->tile.args->k_bytes, stage + W_A + at->spot);
    } else {
        l_fill(&at->b, chunk, W_B_LINES, at->b.left - chunk * L_DEPTH,
               at->along < at->tile.columns * R_SIZE, stage + W_A + at->spot);
    }
}

/* Has B of a chunk brought nearer. */
K_FN void r_bring_b(const r_place *at, int32_t chunk) {
    const mp_rows_mma_args *args = at->tile.args;
    const uint8_t *b = (const uint8_t *)args->b;
    const int64_t pitch = args->ldb * R_SIZE;
    if (at->lane >= W_B_LINES) {
        return;
    }
    if (K_TURNED && at->lane < at->tile.columns) {
        k_bring(b + (at->tile.column + at->lane) * pitch + (int64_t)chunk * L_CHUNK);
    } else if (!K_TURNED && chunk * L_DEPTH + at->lane < args->k_bytes / R_SIZE) {
        k_bring(b + (chunk * L_DEPTH + at->lane) * pitch + (int64_t)at->tile.column * R_SIZE);
    }
}

/* ---- products ---- */

#if K_TURNED
#define w_product K_JOIN(K_JOIN(k_group_, K_T0), K_JOIN(_, K_COLUMNS))
#else
#define w_product K_JOIN(K_JOIN(k_group_rows_, K_T0), K_JOIN(_, K_COLUMNS))
#endif

/* All chunks of this group, the first of which are on their way. A stage is filled again once the
 * group has met behind its products. */
K_FN void r_sum(const r_place *at, float *sum) {
    const uint32_t ring = (uint32_t)__cvta_generic_to_shared(at->ring);
    int32_t place = 0, before = R_AHEAD - 1;
    K_ONE_COPY
    for (int32_t chunk = at->chunk; chunk < at->chunks; chunk += at->turn) {
        uint32_t a[L_STEPS][4];
        const uint64_t b = k_group_operand(ring + (uint32_t)(place * R_STAGE + W_A));
        if (chunk == at->chunk) {
            K_COPIES_WAIT(R_AHEAD - 1);
        } else {
            K_COPIES_WAIT(R_AHEAD - 2);
        }
        k_group_copies_seen();
        k_group_meet(at->group);
        l_load(at->ring + place * R_STAGE, at->a_load, a);
        k_group_begin();
        K_UNROLL
        for (int32_t step = 0; step < L_STEPS; step++) {
            w_product(sum, a[step], b + (uint64_t)(step * W_B_STEP >> 4));
        }
        if (chunk != at->chunk) {
            const int32_t next = chunk + (R_AHEAD - 1) * at->turn;
            r_fill_b(at, next, at->ring + before * R_STAGE);
            r_fill_a(at, next, at->ring + before * R_STAGE);
            k_copies_group();
        }
        k_group_end();
        before = place;
        place = place + 1 < R_AHEAD ? place + 1 : 0;
    }
    k_group_meet(at->group);
}

/* Puts the group's tile where its ring was. */
K_FN void r_put(const r_place *at, const float *sum) {
    const int32_t lane = at->lane % 32, row = at->lane / 32 * 16 + lane / 4;
    float *to = (float *)(void *)at->ring + row * R_PITCH + lane % 4 * 2;
    K_UNROLL
    for (int32_t i = 0; i < K_COLUMNS / 8 * 4; i++) {
        to[i / 2 % 2 * 8 * R_PITCH + i / 4 * 8 + i % 2] = sum[i];
    }
}

#include "kernel/linear/rows_run.h"

#endif

/* Blocks on a multiprocessor: so many that those of the next kernel find room beside. */
#define W_BLOCKS 2

K_BLOCK_KERNEL_LATE_OF(K_ROWS_WGMMA_LANES, W_BLOCKS, mp_rows_mma_args, args) {
#if K_GROUP_MATRIX
    K_SHARED(uint8_t, shared);
    if (!args.constant) {
        k_wait();
    }
    r_run(&args, l_ring(shared));
#else
    (void)args;
#endif
}
