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
#include "kernel/linear/rows_end.h"

enum {
    W_GROUP = 128,
    W_GROUPS = R_LANES / W_GROUP,
    W_CHUNK = K_ROWS_WGMMA_CHUNK,
    W_PIECE = 16, /* bytes of a copy */
    W_PIECES = W_CHUNK / W_PIECE,
    W_LINES = W_GROUP / W_PIECES, /* that a group copies at once */
    W_DEPTH = W_CHUNK / R_SIZE,
    W_STEP = 32, /* bytes along k of a product */
    W_STEPS = W_CHUNK / W_STEP,
    W_B_STEP = K_TURNED ? W_STEP : W_STEP / R_SIZE * W_CHUNK, /* from a product's B to the next */
    W_A = K_ROWS * W_CHUNK,
    W_B_LINES = K_TURNED ? K_COLUMNS : W_DEPTH,
    W_STAGE = K_ROWS_WGMMA_STAGE(K_COLUMNS),
    W_AHEAD = K_ROWS_WGMMA_AHEAD(K_COLUMNS),
    W_BROUGHT = 4, /* chunks of B, behind those, that are on their way to a cache */
};

/* Lines that a lane copies a piece of each: where that of its first line of the first chunk lies,
 * what it is to W_LINES lines further and to the next chunk, and how many lines, from the lane's
 * first on, there are. */
typedef struct w_side {
    const uint8_t *from;
    int64_t lines, chunk;
    int32_t left;
} w_side;

/* What a lane does: the block's tile, which chunks its group takes, and what it copies. */
typedef struct w_place {
    r_tile tile;
    uint8_t *ring; /* the group's own part */
    int32_t group, lane;
    int32_t chunk, turn, chunks; /* the group's first, from one to the next, and all there are */
    int32_t along;               /* the lane's piece of a line, in bytes */
    int32_t spot;                /* where it lies in a stage */
    int32_t a_load;              /* in bytes, as spot */
    w_side a, b;
} w_place;

/* Within lines: where piece `piece` of line `line` lies. */
K_FN int32_t w_spot(int32_t line, int32_t piece) {
    return line * W_CHUNK + (piece ^ (line & 7)) * W_PIECE;
}

/* Lines from `first` on, `pitch` bytes apart, that a chunk has W_CHUNK bytes of. */
K_FN w_side w_side_of(const void *matrix, int64_t pitch, int32_t first, int32_t count,
                      int32_t lane) {
    const int32_t line = lane / W_PIECES, piece = lane % W_PIECES;
    w_side x;
    x.from = (const uint8_t *)matrix + (first + line) * pitch + piece * W_PIECE;
    x.lines = W_LINES * pitch;
    x.chunk = W_CHUNK;
    x.left = count - line;
    return x;
}

K_FN w_place w_place_of(const mp_rows_mma_args *args, uint8_t *shared) {
    const int32_t lane = (int32_t)threadIdx.x % W_GROUP, one = lane % 32;
    const int64_t b_pitch = args->ldb * R_SIZE;
    w_place at;
    at.tile = r_tile_of(args);
    at.group = k_group_number();
    at.lane = lane;
    at.ring = shared + at.group * (W_AHEAD * W_STAGE);
    at.chunk = at.tile.rank * W_GROUPS + at.group;
    at.turn = W_GROUPS << args->splits_log;
    at.chunks = (args->k_bytes + W_CHUNK - 1) / W_CHUNK;
    at.along = lane % W_PIECES * W_PIECE;
    at.spot = w_spot(lane / W_PIECES, lane % W_PIECES);
    at.a_load = w_spot(lane / 32 * 16 + one % 16, one / 16);
    at.a = w_side_of(args->a, args->lda * R_SIZE, at.tile.row, at.tile.rows, lane);
    if (K_TURNED) {
        at.b = w_side_of(args->b, b_pitch, at.tile.column, at.tile.columns, lane);
    } else {
        at.b = w_side_of((const T *)args->b + at.tile.column, b_pitch, 0, args->k_bytes / R_SIZE,
                         lane);
        at.b.chunk = W_DEPTH * b_pitch;
    }
    return at;
}

/* ---- into shared memory ---- */

/* `count` lines of a chunk; those that are not there become 0, and all of them where `is` is 0. */
K_FN void w_fill(const w_place *at, const w_side *side, int32_t chunk, int32_t count, int32_t left,
                 int is, uint8_t *to) {
    const uint8_t *from = side->from + chunk * side->chunk;
    to += at->spot;
    left = is ? left : 0;
    K_UNROLL
    for (int32_t i = 0; i < count; i += W_LINES) {
        const int there = i < left;
        k_copy_begin(to + i * W_CHUNK, there ? from : side->from, there ? W_PIECE : 0);
        from += side->lines;
    }
}

K_FN void w_fill_a(const w_place *at, int32_t chunk, uint8_t *stage) {
    if (chunk < at->chunks) {
        w_fill(at, &at->a, chunk, K_ROWS, at->a.left,
               chunk * W_CHUNK + at->along < at->tile.args->k_bytes, stage);
    }
}

K_FN void w_fill_b(const w_place *at, int32_t chunk, uint8_t *stage) {
    if (chunk >= at->chunks) {
        return;
    }
    if (K_TURNED) {
        w_fill(at, &at->b, chunk, W_B_LINES, at->b.left,
               chunk * W_CHUNK + at->along < at->tile.args->k_bytes, stage + W_A);
    } else {
        w_fill(at, &at->b, chunk, W_B_LINES, at->b.left - chunk * W_DEPTH,
               at->along < at->tile.columns * R_SIZE, stage + W_A);
    }
}

/* Has B of a chunk brought nearer. */
K_FN void w_bring_b(const w_place *at, int32_t chunk) {
    const mp_rows_mma_args *args = at->tile.args;
    const uint8_t *b = (const uint8_t *)args->b;
    const int64_t pitch = args->ldb * R_SIZE;
    if (K_TURNED && at->lane < at->tile.columns) {
        k_bring(b + (at->tile.column + at->lane) * pitch + (int64_t)chunk * W_CHUNK);
    } else if (!K_TURNED && chunk * W_DEPTH + at->lane < args->k_bytes / R_SIZE) {
        k_bring(b + (chunk * W_DEPTH + at->lane) * pitch + (int64_t)at->tile.column * R_SIZE);
    }
}

/* ---- products ---- */

#if K_TURNED
#define w_product K_JOIN(K_JOIN(k_group_, K_T0), K_JOIN(_, K_COLUMNS))
#else
#define w_product K_JOIN(K_JOIN(k_group_rows_, K_T0), K_JOIN(_, K_COLUMNS))
#endif

/* The left operands of a stage: of floats what TF32 keeps, and of B the products see no more. */
K_FN void w_load(const w_place *at, const uint8_t *stage, uint32_t (*a)[4]) {
    K_UNROLL
    for (int32_t step = 0; step < W_STEPS; step++) {
        k_matrices_load(a[step], stage + (at->a_load ^ step * W_STEP));
    }
    K_UNROLL
    for (int32_t i = 0; R_SIZE == 4 && i < W_STEPS * 4; i++) {
        a[i / 4][i % 4] = k_near_tf32(k_float_of_bits(a[i / 4][i % 4]));
    }
}

/* All chunks of this group, the first of which are on their way. A stage is filled again once the
 * group has met behind its products. */
K_FN void w_sum(const w_place *at, float *sum) {
    const uint32_t ring = (uint32_t)__cvta_generic_to_shared(at->ring);
    int32_t place = 0, before = W_AHEAD - 1;
    K_ONE_COPY
    for (int32_t chunk = at->chunk; chunk < at->chunks; chunk += at->turn) {
        uint32_t a[W_STEPS][4];
        const uint64_t b = k_group_operand(ring + (uint32_t)(place * W_STAGE + W_A));
        if (chunk == at->chunk) {
            K_COPIES_WAIT(W_AHEAD - 1);
        } else {
            K_COPIES_WAIT(W_AHEAD - 2);
        }
        k_group_copies_seen();
        k_group_meet(at->group);
        w_load(at, at->ring + place * W_STAGE, a);
        k_group_begin();
        K_UNROLL
        for (int32_t step = 0; step < W_STEPS; step++) {
            w_product(sum, a[step], b + (uint64_t)(step * W_B_STEP >> 4));
        }
        if (chunk != at->chunk) {
            const int32_t next = chunk + (W_AHEAD - 1) * at->turn;
            w_fill_b(at, next, at->ring + before * W_STAGE);
            w_fill_a(at, next, at->ring + before * W_STAGE);
            k_copies_group();
        }
        k_group_end();
        before = place;
        place = place + 1 < W_AHEAD ? place + 1 : 0;
    }
    k_group_meet(at->group);
}

/* Puts the group's tile where its ring was. */
K_FN void w_put(const w_place *at, const float *sum) {
    const int32_t lane = at->lane % 32, row = at->lane / 32 * 16 + lane / 4;
    float *to = (float *)(void *)at->ring + row * R_PITCH + lane % 4 * 2;
    K_UNROLL
    for (int32_t i = 0; i < K_COLUMNS / 8 * 4; i++) {
        to[i / 2 % 2 * 8 * R_PITCH + i / 4 * 8 + i % 2] = sum[i];
    }
}

K_FN void w_run(const mp_rows_mma_args *args, uint8_t *shared) {
    const w_place at = w_place_of(args, shared);
    const r_sums sums = {(float *)(void *)shared, W_GROUPS,
                         W_AHEAD * W_STAGE / (int32_t)sizeof(float)};
    float sum[K_COLUMNS / 2] = {};
    r_added added;
    if (args->splits_log > 0) {
        k_cluster_begin();
    }
    K_ONE_COPY
    for (int32_t i = 0; i < W_AHEAD; i++) {
        w_fill_b(&at, at.chunk + i * at.turn, at.ring + i * W_STAGE);
    }
    if (args->constant) { /* else the time for it is over */
        K_ONE_COPY
        for (int32_t i = W_AHEAD; i < W_AHEAD + W_BROUGHT; i++) {
            if (at.lane < W_B_LINES && at.chunk + i * at.turn < at.chunks) {
                w_bring_b(&at, at.chunk + i * at.turn);
            }
        }
    }
    k_wait();
    K_ONE_COPY
    for (int32_t i = 0; i < W_AHEAD; i++) {
        w_fill_a(&at, at.chunk + i * at.turn, at.ring + i * W_STAGE);
        k_copies_group();
    }
    if (R_EARLY) {
        r_ask_all(&at.tile, &added);
    }
    w_sum(&at, sum);
    w_put(&at, sum);
    r_finish(&at.tile, sums, (float *)(void *)(shared + W_GROUPS * W_AHEAD * W_STAGE), &added);
}

#endif

/* Blocks on a multiprocessor: so many that those of the next kernel find room beside. */
#define W_BLOCKS 2

K_BLOCK_KERNEL_LATE_OF(K_ROWS_WGMMA_LANES, W_BLOCKS, mp_rows_mma_args, args) {
#if K_GROUP_MATRIX
    K_SHARED(uint8_t, shared);
    const uint32_t place = (uint32_t)__cvta_generic_to_shared(shared);
    if (!args.constant) {
        k_wait();
    }
    w_run(&args, shared + (-place & (K_ROWS_WGMMA_ALIGN - 1)));
#else
    (void)args;
#endif
}
