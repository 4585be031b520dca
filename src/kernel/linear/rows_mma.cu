/* rows_mma.cu - some rows, a dozen to some hundred, times a matrix by tensor cores, with what
 * follows: such products are as short as their launches, so that what counts is that all
 * multiprocessors have a block, that a block has much on its way at once, and that nothing is left
 * for a kernel behind.
 *
 * A block makes a tile of K_ROWS x K_COLUMNS. Its warps make the whole tile each, of chunks along k
 * (K_ROWS_MMA_CHUNK bytes of a row of A) that they take in turn; each has a ring of stages in
 * shared memory for itself, so that warps do not wait for one another before the end. B is asked
 * for before the kernel before has ended, where it is constant. Where there are few tiles, the
 * blocks of a cluster take chunks of one tile in turn, too, and each finishes some of its rows.
 * Sums of warps, then those of blocks, are added in a fixed order.
 *
 * Lines that are chunks along k (rows of A; columns of B where it is stored turned) lie one behind
 * the other, their four pieces of 16 bytes in an order that changes every two lines, so that eight
 * lines lie in different banks. Rows of B along n are a little further apart than they are long.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/linear/linear_args.h"

#if K_WARP_MATRIX

enum { R_LANES = K_ROWS_MMA_LANES };
#include "kernel/linear/rows_end.h"

enum {
    R_WARP = 32,
    R_WARPS = R_LANES / R_WARP,
    R_CHUNK = K_ROWS_MMA_CHUNK,
    R_DEPTH = R_CHUNK / R_SIZE,
    R_STEP = 32, /* bytes along k of a product */
    R_STEPS = R_CHUNK / R_STEP,
    R_HIGH = K_ROWS / 16,
    R_WIDE = K_COLUMNS / 8,
    R_PIECE = 16, /* bytes of a copy */
    R_A = K_ROWS * R_CHUNK,
    R_STAGE = K_ROWS_MMA_STAGE(K_ROWS, K_COLUMNS, K_TURNED, R_SIZE),
    R_AHEAD = K_ROWS_MMA_AHEAD(K_ROWS, K_COLUMNS),
    R_PARTS = R_WARPS,
    R_BROUGHT = 8,               /* chunks of B, behind those, that are on their way to a cache */
    R_LINE = K_COLUMNS * R_SIZE, /* of B, where it is not turned */
    R_LINE_PITCH = K_ROWS_MMA_LINE(K_COLUMNS, R_SIZE),
    R_LINE_PIECES = R_LINE / R_PIECE,
    R_LINES = R_LINE_PIECES > 8   ? 2
              : R_LINE_PIECES > 4 ? 4
                                  : 8, /* that a warp copies at once */
};

/* What a lane has of its warp's sums. */
typedef float r_lane_sums[R_HIGH][R_WIDE][4];

/* What a lane does: the block's tile, which chunks its warp takes, and where what it copies and
 * loads lies, in bytes. */
typedef struct r_place {
    r_tile tile;
    uint8_t *ring; /* the warp's own part */
    int32_t lane, warp;
    int32_t chunk, turn, chunks; /* the warp's first, from one to the next, and all there are */
    int64_t a_pitch, b_pitch;
    int32_t a_load, b_load;
} r_place;

/* Within lines of a chunk: where piece `piece` of line `line` lies. */
K_FN int32_t r_spot(int32_t line, int32_t piece) {
    return line * R_CHUNK + (piece ^ (line / 2 & 3)) * R_PIECE;
}

K_FN r_place r_place_of(const mp_rows_mma_args *args, uint8_t *shared) {
    r_place at;
    at.tile = r_tile_of(args);
    at.lane = (int32_t)threadIdx.x % R_WARP;
    at.warp = (int32_t)threadIdx.x / R_WARP;
    at.ring = shared + at.warp * (R_AHEAD * R_STAGE);
    at.chunks = args->k_bytes / R_CHUNK;
    at.chunk = at.tile.rank * R_WARPS + at.warp;
    at.turn = R_WARPS << args->splits_log;
    at.a_pitch = args->lda * R_SIZE;
    at.b_pitch = args->ldb * R_SIZE;
    at.a_load = r_spot(at.lane % 16, at.lane / 16);
    if (K_TURNED) {
        at.b_load = r_spot(at.lane / 16 * 8 + at.lane % 8, at.lane / 8 % 2);
    } else if (R_SIZE == 2) {
        at.b_load = at.lane % 16 * R_LINE_PITCH + at.lane / 16 * R_PIECE;
    } else {
        at.b_load = at.lane % 4 * R_LINE_PITCH + at.lane / 4 * R_SIZE;
    }
    return at;
}

/* ---- into shared memory ---- */

/* All of what follows happens where `there` is not 0, and without branches, so that it takes place
 * while products are made. */

/* A chunk of `lines` lines, of which there are `left`; the others become 0. `from` is the first
 * one's beginning. */
K_FN void r_fill_lines(const r_place *at, int there, const uint8_t *from, int64_t pitch,
                       int32_t lines, int32_t left, uint8_t *to) {
    enum { EACH = 8 };
    const int32_t line = at->lane / 4, piece = at->lane % 4;
    const uint8_t *source = from + line * pitch + piece * R_PIECE;
    to += r_spot(line, piece);
    K_UNROLL
    for (int32_t j = 0; j < lines; j += EACH) {
        const int is = line + j < left;
        k_copy_begin_if(there, to + j * R_CHUNK, is ? source : from, is ? R_PIECE : 0);
        source += EACH * pitch;
    }
}

/* R_DEPTH rows of the tile's columns of B, of which those that there are not become 0. */
K_FN void r_fill_rows(const r_place *at, int there, const uint8_t *from, uint8_t *to) {
    const int32_t line = at->lane / R_LINE_PIECES, piece = at->lane % R_LINE_PIECES;
    const int is = piece * (R_PIECE / R_SIZE) < at->tile.columns;
    const uint8_t *source = from + line * at->b_pitch + (is ? piece * R_PIECE : 0);
    to += line * R_LINE_PITCH + piece * R_PIECE;
    K_UNROLL
    for (int32_t r = 0; r < R_DEPTH; r += R_LINES) {
        k_copy_begin_if(there && line < R_LINES, to + r * R_LINE_PITCH, source, is ? R_PIECE : 0);
        source += R_LINES * at->b_pitch;
    }
}

K_FN void r_fill_a(const r_place *at, int32_t chunk, uint8_t *stage) {
    const uint8_t *a = (const uint8_t *)at->tile.args->a + at->tile.row * at->a_pitch;
    r_fill_lines(at, chunk < at->chunks, a + (int64_t)chunk * R_CHUNK, at->a_pitch, K_ROWS,
                 at->tile.rows, stage);
}

K_FN void r_fill_b(const r_place *at, int32_t chunk, uint8_t *stage) {
    const uint8_t *b = (const uint8_t *)at->tile.args->b;
    const int there = chunk < at->chunks;
    if (K_TURNED) {
        b += at->tile.column * at->b_pitch + (int64_t)chunk * R_CHUNK;
        r_fill_lines(at, there, b, at->b_pitch, K_COLUMNS, at->tile.columns, stage + R_A);
    } else {
        b += (int64_t)chunk * R_DEPTH * at->b_pitch + (int64_t)at->tile.column * R_SIZE;
        r_fill_rows(at, there, b, stage + R_A);
    }
}

/* Has B of a chunk brought nearer. The blocks' columns lie side by side, so that a place in every
 * 128 bytes is enough. */
K_FN void r_bring_b(const r_place *at, int32_t chunk) {
    const uint8_t *b = (const uint8_t *)at->tile.args->b;
    enum { EACH = K_TURNED ? 1 : R_WARP / R_DEPTH }; /* places of a line */
    const int32_t line = at->lane / EACH, piece = at->lane % EACH;
    if (!K_TURNED) {
        const int32_t column = piece * (K_COLUMNS / EACH);
        b += ((int64_t)chunk * R_DEPTH + line) * at->b_pitch;
        if (column < at->tile.columns) {
            k_bring(b + (int64_t)(at->tile.column + column) * R_SIZE);
        }
        return;
    }
    b += (int64_t)chunk * R_CHUNK;
    K_UNROLL
    for (int32_t j = 0; j < K_COLUMNS; j += R_WARP) {
        if (line + j < K_COLUMNS && line + j < at->tile.columns) {
            k_bring(b + (at->tile.column + line + j) * at->b_pitch);
        }
    }
}

/* ---- products ---- */

#define r_product K_JOIN(k_mma_, K_T0)

/* An operand as it is multiplied. */
K_FN void r_round(uint32_t *words) {
    K_UNROLL
    for (int32_t i = 0; R_SIZE == 4 && i < 4; i++) {
        words[i] = k_near_tf32(k_float_of_bits(words[i]));
    }
}

/* What a lane has of a step: left operands of 16 rows each, right ones of 16 columns each. */
typedef struct r_operands {
    uint32_t a[R_HIGH][4], b[R_WIDE / 2][4];
} r_operands;

/* The right operands of columns 16 j to 16 j + 15. */
K_FN void r_load_b(const r_place *at, const uint8_t *b, int32_t step, int32_t j, uint32_t *words) {
    if (K_TURNED) {
        k_matrices_load(words, b + (at->b_load ^ step * R_STEP) + j * 16 * R_CHUNK);
    } else if (R_SIZE == 2) {
        k_matrices_load_turned(words, b + at->b_load + step * 16 * R_LINE_PITCH + j * 32);
    } else {
        const uint8_t *from = b + at->b_load + step * 8 * R_LINE_PITCH + j * 64;
        K_UNROLL
        for (int32_t i = 0; i < 4; i++) {
            words[i] =
                *(const uint32_t *)(const void *)(from + i % 2 * 4 * R_LINE_PITCH + i / 2 * 32);
        }
    }
}

K_FN void r_load(const r_place *at, const uint8_t *stage, int32_t step, r_operands *x) {
    K_UNROLL
    for (int32_t i = 0; i < R_HIGH; i++) {
        k_matrices_load(x->a[i], stage + (at->a_load ^ step * R_STEP) + i * 16 * R_CHUNK);
    }
    K_UNROLL
    for (int32_t j = 0; j < R_WIDE / 2; j++) {
        r_load_b(at, stage + R_A, step, j, x->b[j]);
    }
}

K_FN void r_multiply(r_operands *x, float (*sum)[R_WIDE][4]) {
    K_UNROLL
    for (int32_t i = 0; i < R_HIGH; i++) {
        r_round(x->a[i]);
    }
    K_UNROLL
    for (int32_t j = 0; j < R_WIDE / 2; j++) {
        r_round(x->b[j]);
    }
    K_UNROLL
    for (int32_t i = 0; i < R_HIGH * R_WIDE; i++) {
        const int32_t j = i % R_WIDE;
        r_product(sum[i / R_WIDE][j], x->a[i / R_WIDE], x->b[j / 2] + j % 2 * 2);
    }
}

/* All chunks of this warp, the first of which are on their way. */
K_FN void r_sum(const r_place *at, float (*sum)[R_WIDE][4]) {
    const int32_t chunks = at->chunks;
    int32_t place = 0;
    K_ONE_COPY
    for (int32_t chunk = at->chunk; chunk < chunks; chunk += at->turn) {
        uint8_t *stage = at->ring + place * R_STAGE;
        const int32_t next = chunk + R_AHEAD * at->turn;
        r_operands x[R_STEPS];
        K_COPIES_WAIT(R_AHEAD - 1);
        __syncwarp(); /* the copies of all lanes are there */
        K_UNROLL
        for (int32_t step = 0; step < R_STEPS; step++) {
            r_load(at, stage, step, &x[step]);
        }
        __syncwarp(); /* all lanes have read it */
        r_fill_b(at, next, stage);
        r_fill_a(at, next, stage);
        k_copies_group();
        K_UNROLL
        for (int32_t step = 0; step < R_STEPS; step++) {
            r_multiply(&x[step], sum);
        }
        place = place + 1 < R_AHEAD ? place + 1 : 0;
    }
}

/* ---- what becomes of the sums ---- */

/* Puts the warp's tile where its ring was. */
K_FN void r_put(const r_place *at, float (*sum)[R_WIDE][4]) {
    float *to = (float *)(void *)at->ring + at->lane / 4 * R_PITCH + at->lane % 4 * 2;
    K_UNROLL
    for (int32_t i = 0; i < R_HIGH * R_WIDE; i++) {
        const float *from = sum[i / R_WIDE][i % R_WIDE];
        float *place = to + i / R_WIDE * 16 * R_PITCH + i % R_WIDE * 8;
        K_UNROLL
        for (int32_t e = 0; e < 4; e++) {
            place[e / 2 * 8 * R_PITCH + e % 2] = from[e];
        }
    }
}

#include "kernel/linear/rows_run.h"

#endif

/* Blocks on a multiprocessor: so many that those of the next kernel find room beside. */
#define R_BLOCKS 2

K_BLOCK_KERNEL_LATE_OF(K_ROWS_MMA_LANES, R_BLOCKS, mp_rows_mma_args, args) {
#if K_WARP_MATRIX
    K_SHARED(uint8_t, shared);
    if (!args.constant) {
        k_wait();
    }
    r_run(&args, shared);
#else
    (void)args;
#endif
}
