/* moe_mma.h - a tile of K_ROWS routes and K_MOE_COLUMNS columns of their expert by tensor cores:
 * what a lane of its block does, products of what lies in shared memory, and what becomes of them.
 *
 * Lines, K_MOE_LINE bytes along k of a route's row of A or of a column of weights, lie one behind
 * the other, their pieces of 16 bytes in an order that changes from line to line, so that eight
 * lines lie in different banks.
 *
 * Tiles of K_MOE_MANY routes of elements of two bytes are products of groups of warps where there
 * are such.
 *
 * The kernel is here, too; what includes this says how all chunks of a tile are multiplied (m_sum).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MOE_MMA_H
#define MP_KERNEL_MOE_MMA_H

#include "kernel/core/group_matrix.h"
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/quantize/moe_sums.h"

#if K_WARP_MATRIX

enum {
    M_GROUPS = K_GROUP_MATRIX && K_ROWS == K_MOE_MANY && sizeof(T) == 2,
    M_WARP = 32,
    M_WARPS = K_MOE_LANES / M_WARP,
    M_PIECE = 16,
    M_PIECES = K_MOE_LINE / M_PIECE,
    M_SIZE = sizeof(T),
    M_DEPTH = K_MOE_LINE / M_SIZE, /* elements of a line */
    M_PACK = M_PIECE / M_SIZE,     /* of a piece */
    M_STEP = 32,                   /* bytes along k of a product */
    M_A = K_ROWS * K_MOE_LINE,
    M_W = K_MOE_COLUMNS * K_MOE_LINE,
    M_EACH = K_MOE_LANES / M_PIECES, /* lines that the block copies at once, ... */
    M_APART = M_EACH * K_MOE_LINE,   /* ... which have the same order as the next ones */
    M_ROWS = K_ROWS / M_EACH,        /* lines of A and of weights that a lane copies a piece of */
    M_COLUMNS = K_MOE_COLUMNS / M_EACH,
    M_ABOVE = M_GROUPS              ? M_WARPS /* warps one above the other */
              : K_ROWS > K_MOE_SOME ? 2
                                    : 1,
    M_BESIDE = M_WARPS / M_ABOVE,
    M_STEPS = K_MOE_LINE / M_STEP,
    M_HIGH = K_ROWS / M_ABOVE / 16, /* left and right operands of a warp */
    M_WIDE = K_MOE_COLUMNS / M_BESIDE / 8,
    M_PLAIN = K_WEIGHTS == K_NBITS_PLAIN,
};
static_assert(K_ROWS * M_PITCH * 4 <= K_MOE_HELD(K_ROWS, 0) &&
                  K_ROWS * M_PITCH * 4 <= K_MOE_HELD(K_ROWS, 1),
              "sums find room where the ring was");

/* A piece. */
typedef struct K_ALIGN(16) m_words {
    uint32_t at[M_PIECE / 4];
} m_words;

/* What a lane does. */
typedef struct m_place {
    const mp_moe_product_args *args;
    m_tile tile;
    uint8_t *ring;
    int64_t column; /* the block's first */
    int32_t part;   /* of K, and its chunks: */
    int32_t first, chunks;
    int32_t line, piece; /* its first one of those that it copies, and which piece of each */
    int32_t row, across; /* of the tile: the first of its warp */
    int32_t a_load, w_load;
    int32_t lane;
    uint32_t a[M_ROWS];    /* pieces before the rows that it copies; M_NONE for none */
    uint32_t w[M_COLUMNS]; /* before its columns, which are the last one where there is none */
} m_place;
#define M_NONE 0xffffffffu

/* Where piece `piece` of line `line` lies. */
K_FN int32_t m_spot(int32_t line, int32_t piece) {
    return line * K_MOE_LINE + (piece ^ (line & 7)) * M_PIECE;
}

K_FN m_place m_place_of(const mp_moe_product_args *args, const m_tile *tile, uint8_t *ring,
                        int64_t column, int32_t part) {
    const int32_t warp = (int32_t)threadIdx.x / M_WARP;
    m_place at;
    at.args = args;
    at.tile = *tile;
    at.ring = ring;
    at.column = column;
    const int64_t chunks = (args->w.k + M_DEPTH - 1) / M_DEPTH;
    at.part = part;
    at.first = (int32_t)(chunks * part / args->parts);
    at.chunks = (int32_t)(chunks * (part + 1) / args->parts) - at.first;
    at.line = (int32_t)threadIdx.x / M_PIECES;
    at.piece = (int32_t)threadIdx.x % M_PIECES;
    at.lane = (int32_t)threadIdx.x % M_WARP;
    at.row = warp / M_BESIDE * (K_ROWS / M_ABOVE);
    at.across = warp % M_BESIDE * (K_MOE_COLUMNS / M_BESIDE);
    at.a_load = m_spot(at.row + at.lane % 16, at.lane / 16);
    at.w_load = m_spot(at.across + at.lane / 16 * 8 + at.lane % 8, at.lane / 8 % 2);
    const uint32_t a_row = (uint32_t)(args->w.k / M_PACK), last = (uint32_t)(args->w.n - 1);
    const uint32_t w_row = M_PLAIN ? a_row : 1, first = (uint32_t)(tile->expert * args->w.n);
    K_UNROLL
    for (int32_t j = 0; j < M_ROWS; j++) {
        const int64_t r = at.line + j * M_EACH;
        at.a[j] =
            r < tile->count ? (uint32_t)(tile->routes[r].index / args->share) * a_row : M_NONE;
    }
    K_UNROLL
    for (int32_t j = 0; j < M_COLUMNS; j++) {
        const uint32_t own = (uint32_t)column + (uint32_t)(at.line + j * M_EACH);
        at.w[j] = (first + (own < last ? own : last)) * w_row;
    }
    return at;
}

/* Where the ring begins: lines lie as group_matrix.h wants them. */
K_FN uint8_t *m_ring(uint8_t *shared) {
#if K_GROUP_MATRIX
    shared += -(uint32_t)__cvta_generic_to_shared(shared) & (K_MOE_ALIGN - 1);
#endif
    return shared;
}

/* ---- into shared memory ---- */

/* Where a lane's piece of the part's chunk `chunk` begins along k; beyond the end for none. */
K_FN int64_t m_begin(const m_place *at, int32_t chunk) {
    return (int64_t)(at->first + chunk) * M_DEPTH + at->piece * M_PACK;
}

/* Begins to copy a chunk of A. */
K_FN void m_fill_a(const m_place *at, int32_t chunk, uint8_t *to) {
    const m_words *a = (const m_words *)at->args->a;
    const uint32_t piece = (uint32_t)((at->first + chunk) * M_PIECES + at->piece);
    const int is = m_begin(at, chunk) < at->args->w.k;
    to += m_spot(at->line, at->piece);
    K_UNROLL
    for (int32_t j = 0; j < M_ROWS; j++) {
        const int there = is && at->a[j] != M_NONE;
        k_copy_begin(to + j * M_APART, a + (there ? at->a[j] + piece : 0), there ? M_PIECE : 0);
    }
}

/* ---- products ---- */

#define m_product K_JOIN(k_mma_, K_T0)

/* Four words of an operand, as they are multiplied. */
K_FN void m_load(uint32_t *words, const uint8_t *from) {
    k_matrices_load(words, from);
    K_UNROLL
    for (int32_t i = 0; M_SIZE == 4 && i < 4; i++) {
        words[i] = k_near_tf32(k_float_of_bits(words[i]));
    }
}

K_FN void m_multiply_alone(const m_place *at, const uint8_t *a_lines, const uint8_t *w_lines,
                           float (*sum)[M_WIDE][4]) {
    K_UNROLL
    for (int32_t step = 0; step < M_STEPS; step++) {
        uint32_t a[M_HIGH][4], w[M_WIDE / 2][4];
        K_UNROLL
        for (int32_t i = 0; i < M_HIGH; i++) {
            m_load(a[i], a_lines + (at->a_load ^ step * M_STEP) + i * 16 * K_MOE_LINE);
        }
        K_UNROLL
        for (int32_t j = 0; j < M_WIDE / 2; j++) {
            m_load(w[j], w_lines + (at->w_load ^ step * M_STEP) + j * 16 * K_MOE_LINE);
        }
        K_UNROLL
        for (int32_t i = 0; i < M_HIGH * M_WIDE; i++) {
            const int32_t j = i % M_WIDE;
            m_product(sum[i / M_WIDE][j], a[i / M_WIDE], w[j / 2] + j % 2 * 2);
        }
    }
}

#if K_GROUP_MATRIX
#define m_group_product K_JOIN(K_JOIN(k_group_, K_T0), _64)

K_FN void m_begin_group(const m_place *at, const uint8_t *a_lines, const uint8_t *w_lines,
                        uint32_t (*a)[4], float (*sum)[4]) {
    const uint64_t w = k_group_operand((uint32_t)__cvta_generic_to_shared(w_lines));
    K_UNROLL
    for (int32_t step = 0; step < M_STEPS; step++) {
        k_matrices_load(a[step], a_lines + (at->a_load ^ step * M_STEP));
    }
    k_group_begin();
    K_UNROLL
    for (int32_t i = 0; i < 2 * M_STEPS; i++) {
        const int32_t side = i % 2 * 64, step = i / 2;
        m_group_product(sum[side / 8], a[step],
                        w + (uint64_t)((side * K_MOE_LINE + step * M_STEP) >> 4));
    }
    k_group_batch();
}
#endif

/* Begins to multiply a chunk: `a` and the lines stay as they are until the end. */
K_FN void m_begin_product(const m_place *at, const uint8_t *a_lines, const uint8_t *w_lines,
                          uint32_t (*a)[4], float (*sum)[M_WIDE][4]) {
#if K_GROUP_MATRIX
    if (M_GROUPS) {
        m_begin_group(at, a_lines, w_lines, a, sum[0]);
        return;
    }
#endif
    (void)a;
    m_multiply_alone(at, a_lines, w_lines, sum);
}

K_FN void m_end_product(void) {
#if K_GROUP_MATRIX
    if (M_GROUPS) {
        k_group_wait();
    }
#endif
}

/* The lanes of a block meet: what each has put to shared memory, or has waited for, is there. */
K_FN void m_meet(void) {
#if K_GROUP_MATRIX
    k_group_copies_seen();
#endif
    __syncthreads();
}

/* ---- the end ---- */

/* The tile's sums. */
K_FN void m_put_all(const m_place *at, float (*sum)[M_WIDE][4]) {
    const int32_t g = at->lane / 4, t = at->lane % 4;
    float *all = (float *)(void *)at->ring;
    K_COPIES_WAIT(0);
    __syncthreads();
    K_UNROLL
    for (int32_t i = 0; i < M_HIGH * 2 * M_WIDE; i++) {
        const int32_t row = i / M_WIDE, j = i % M_WIDE;
        m_two two;
        two.at[0] = sum[row / 2][j][row % 2 * 2];
        two.at[1] = sum[row / 2][j][row % 2 * 2 + 1];
        *(m_two *)(void *)(all + (at->row + row * 8 + g) * M_PITCH + at->across + j * 8 + t * 2) =
            two;
    }
    __syncthreads();
    m_put_sums(at->args, &at->tile, at->part, at->column, all);
}

/* All chunks of a tile; of the kernel that includes this. */
K_FN void m_sum(const m_place *at, float (*sum)[M_WIDE][4]);

/* The block's tiles, one after the other. */
K_FN void m_make_all(const mp_moe_product_args *args, uint8_t *shared) {
    const int64_t across = args->tiles_across, parts = args->parts;
    for (int64_t i = blockIdx.x; i < args->tiles_max * across * parts; i += gridDim.x) {
        const m_tile tile = m_tile_at(args, i / parts / across, K_ROWS);
        if (tile.count > 0) { /* the same for all lanes */
            const m_place at = m_place_of(args, &tile, shared, i / parts % across * K_MOE_COLUMNS,
                                          (int32_t)(i % parts));
            float sum[M_HIGH][M_WIDE][4] = {{{0}}};
            m_sum(&at, sum);
            m_put_all(&at, sum);
        }
        __syncthreads();
    }
}

#endif

/* Blocks on a multiprocessor. */
#define M_BLOCKS 2

K_BLOCK_KERNEL_LATE_OF(K_MOE_LANES, M_BLOCKS, mp_moe_product_args, args) {
#if K_WARP_MATRIX
    K_SHARED(uint8_t, shared);
    k_wait();
    m_make_all(&args, m_ring(shared));
#else
    (void)args;
#endif
}

#endif
