/* few_rows_mma.cu - up to K_ROWS rows times a matrix of 16-bit numbers by tensor cores: bound by
 * how soon the matrix comes. Weights are their left operand, 16 columns of the result at a time,
 * and rows of A their right one.
 *
 * A block has a strip of columns, its warps deal out k, and so do the blocks of a cluster. A lane
 * has eight loads of 16 bytes on their way, of a constant before the kernel before has ended; as
 * soon as they have been taken from their registers, those of the next round take their place.
 *     b [k][n]  a round is a piece of 32 rows, of 64 columns each: 128 bytes side by side. Tensor
 *               cores want pairs along k, so they pass through shared memory.
 *     b [n][k]  a round is four pieces of 32 numbers of each of 16 columns, two of them side by
 *               side. They are used as they come.
 * With t = lane % 4 a lane has of a row of A eight numbers of a piece, 8 t and what follows: the
 * order of k within a piece is anyone's choice. What warps have found is added in a fixed order.
 * The depth of k is a multiple of 32.
 * SPDX-License-Identifier: Apache-2.0 */
#define K_LETS_AT_ONCE 1
#include "kernel/core/late.h"
#include "kernel/core/row_lanes.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"
#include "kernel/linear/linear_args.h"
#include "kernel/rows/before.h"

#if K_WARP_MATRIX

#include "kernel/linear/few_rows_end.h"

#define m_product K_JOIN(k_mma_, K_T0)

enum {
    M_LANES = 32,
    M_WARPS = K_FEW_ROWS_LANES / M_LANES,
    M_SHIFT = K_TURNED ? K_FEW_ROWS_MATRIX_TURNED_SHIFT : K_FEW_ROWS_MATRIX_SHIFT,
    M_COLUMNS = 1 << M_SHIFT,
    M_TILES = M_COLUMNS / 16,
    M_CHAINS = K_TURNED ? 2 : 1, /* sums that do not wait for one another */
    M_SIDES = K_ROWS / 8,        /* right operands, of eight rows each */
    M_DEPTH = 32,                /* of a piece */
    M_PIECES = K_TURNED ? 4 : 1, /* of a round */
    M_BESIDE = K_TURNED ? 2 : 1, /* pieces side by side */
    M_LOADS = K_TURNED ? 2 : 8,  /* of a piece */
    M_FROM = K_TURNED ? 2 : 1,   /* places from which they come */
    M_ROW = M_COLUMNS * 2,       /* bytes of a row of a piece */
    M_AREA = K_FEW_ROWS_MATRIX_AREA(K_ROWS, K_TURNED),
    M_PITCH = K_ROWS + 1, /* from the sums of a column to those of the next */
    M_OUTS = (K_ROWS * M_COLUMNS + K_FEW_ROWS_LANES - 1) / K_FEW_ROWS_LANES, /* of a lane */
};

/* This lane's place. Columns and rows that there are not are others once more: nobody wants what
 * comes of them. */
typedef struct m_place {
    const mp_few_rows_args *args;
    const T *b[M_FROM], *a[M_SIDES]; /* what it loads, but for the depth */
    uint8_t *area;
    int32_t first, step; /* the depth of the warp's first piece, and from a few side by side on */
    uint32_t lane;
} m_place;

/* What a lane has of a round. */
typedef struct m_round {
    uint32_t w[M_PIECES][M_LOADS][4];
    uint32_t x[M_PIECES][M_SIDES][4];
} m_round;

K_FN m_place m_place_of(const mp_few_rows_args *args, const r_strip *strip, uint8_t *shared) {
    const int32_t warp = (int32_t)threadIdx.x / M_LANES;
    m_place at;
    at.args = args;
    at.area = shared + warp * M_AREA;
    at.first = (strip->block * M_WARPS + warp) * M_BESIDE * M_DEPTH;
    at.step = (M_WARPS << args->split) * M_BESIDE * M_DEPTH;
    at.lane = threadIdx.x % M_LANES;
    K_UNROLL
    for (int i = 0; i < M_FROM; i++) {
#if K_TURNED
        const int64_t column = strip->first + (int32_t)(at.lane / 4 + i * 8);
        at.b[i] = (const T *)args->b + (column < args->n ? column : 0) * args->k + at.lane % 4 * 8;
#else
        const int64_t column = strip->first + (int32_t)(at.lane % 8 * 8);
        at.b[i] = (const T *)args->b + at.lane / 8 * args->n + (column < args->n ? column : 0);
#endif
    }
    K_UNROLL
    for (int i = 0; i < M_SIDES; i++) {
        const int32_t row = i * 8 + (int32_t)(at.lane / 4);
        at.a[i] = (const T *)args->a + (row < args->m ? row : 0) * args->k + at.lane % 4 * 8;
    }
    return at;
}

/* Where piece `piece` of the round at `depth` begins, which is the first one's depth. */
K_FN int32_t m_depth(const m_place *at, int32_t depth, int piece) {
    return depth + piece / M_BESIDE * at->step + piece % M_BESIDE * M_DEPTH;
}

/* Whether that piece is there: it is so for all lanes of a warp. */
K_FN int m_is(const m_place *at, int32_t depth, int piece) {
    return m_depth(at, depth, piece) < (int32_t)at->args->k;
}

/* ---- loads ---- */

/* A piece: of b [k][n] four rows at a time, of which eight lanes side by side have one; of b [n][k]
 * columns g and g + 8. */
K_FN void m_load(const m_place *at, int32_t depth, uint32_t (*w)[4]) {
#if K_TURNED
    K_UNROLL
    for (int i = 0; i < M_LOADS; i++) {
        k_fetch_there(at->b[i] + depth, w[i]);
    }
#else
    const T *from = at->b[0] + depth * at->args->n;
    K_UNROLL
    for (int i = 0; i < M_LOADS; i++) {
        k_fetch_there(from, w[i]);
        from += 4 * at->args->n;
    }
#endif
}

/* Eight numbers of each row of A. */
K_FN void m_rows(const m_place *at, const k_pack *made, int32_t depth, uint32_t (*x)[4]) {
    K_UNROLL
    for (int side = 0; side < M_SIDES; side++) {
#if K_BEFORE == K_BEFORE_NOTHING
        (void)made;
        k_fetch_there(at->a[side] + depth, x[side]);
#else
        K_UNROLL
        for (int i = 0; i < 4; i++) {
            x[side][i] = made[depth / 8 + at->lane % 4].words.at[i];
        }
#endif
    }
}

/* ---- products ---- */

#if K_TURNED
K_FN void m_use(const m_place *at, const k_pack *made, int32_t depth, m_round *r,
                float (*sum)[M_SIDES][4]) {
    const int32_t next = depth + M_PIECES / M_BESIDE * at->step;
    K_UNROLL
    for (int p = 0; p < M_PIECES; p++) {
        if (m_is(at, depth, p)) {
            K_UNROLL
            for (int step = 0; step < 2; step++) {
                const uint32_t(*w)[4] = r->w[p];
                const uint32_t a[4] = {w[0][step * 2], w[1][step * 2], w[0][step * 2 + 1],
                                       w[1][step * 2 + 1]};
                K_UNROLL
                for (int side = 0; side < M_SIDES; side++) {
                    m_product(sum[step][side], a, r->x[p][side] + step * 2);
                }
            }
        }
        if (m_is(at, next, p)) {
            m_load(at, m_depth(at, next, p), r->w[p]);
            m_rows(at, made, m_depth(at, next, p), r->x[p]);
        }
    }
}
#else
/* Into shared memory, where the eight rows that a step reads at once are in other banks: the packs
 * of a row are exchanged, by the row's number within a step. */
K_FN void m_keep(const m_place *at, uint32_t (*w)[4]) {
    const uint32_t r = at->lane / 8, pack = at->lane % 8;
    const uint32_t place = r * M_ROW + (pack ^ r % 2) * 16;
    K_UNROLL
    for (uint32_t i = 0; i < M_LOADS; i++) {
        k_pack *to = (k_pack *)(void *)(at->area + (place ^ i / 2 * 32) + i * 4 * M_ROW);
        k_pack put;
        K_UNROLL
        for (int j = 0; j < 4; j++) {
            put.words.at[j] = w[i][j];
        }
        to->words = put.words;
    }
}

/* Step `step` of 16 rows has 8 t + 4 step and the three behind it of each t: the first two are rows
 * 2 t and 2 t + 1 of the upper matrices, the others those of the lower ones. */
K_FN void m_use(const m_place *at, const k_pack *made, int32_t depth, m_round *r,
                float (*sum)[M_SIDES][4]) {
    const uint32_t within = at->lane % 8, matrix = at->lane / 8;
    const uint32_t row = within / 2 * 8 + within % 2 + matrix / 2 * 2;
    const uint32_t place = row * M_ROW + (matrix % 2 ^ within) * 16;
    const int32_t next = depth + at->step;
    __syncwarp(); /* all lanes have read what was there */
    m_keep(at, r->w[0]);
    if (m_is(at, next, 0)) {
        m_load(at, next, r->w[0]);
    }
    __syncwarp();
    K_UNROLL
    for (uint32_t i = 0; i < 2 * M_TILES; i++) {
        const uint32_t tile = i % M_TILES, step = i / M_TILES;
        uint32_t a[4];
        k_matrices_load_turned(a, at->area + (place ^ tile * 32) + step * 4 * M_ROW);
        K_UNROLL
        for (int side = 0; side < M_SIDES; side++) {
            m_product(sum[tile][side], a, r->x[0][side] + step * 2);
        }
    }
    if (m_is(at, next, 0)) {
        m_rows(at, made, next, r->x[0]);
    }
}
#endif

/* ---- what a block does ---- */

/* The warp's sums to its area: those of a column side by side. */
K_FN void m_lay(const m_place *at, float (*sum)[M_SIDES][4]) {
    float *to = (float *)(void *)at->area;
    __syncwarp();
    K_UNROLL
    for (int i = 0; i < M_TILES * M_SIDES * 4; i++) {
        const int tile = i / (M_SIDES * 4), side = i / 4 % M_SIDES, e = i % 4;
        const int32_t column = tile * 16 + e / 2 * 8 + at->lane / 4;
        float total = sum[tile][side][e];
        if (M_CHAINS == 2) {
            total += sum[M_CHAINS - 1][side][e];
        }
        to[column * M_PITCH + side * 8 + at->lane % 4 * 2 + e % 2] = total;
    }
}

/* What all warps have of element `i` of the strip. */
K_FN float m_total(const uint8_t *shared, int32_t i) {
    const int32_t row = i / M_COLUMNS, column = i % M_COLUMNS;
    float total = 0;
    K_UNROLL
    for (int32_t warp = 0; warp < M_WARPS; warp++) {
        const float *part = (const float *)(const void *)(shared + warp * M_AREA);
        total += part[column * M_PITCH + row];
    }
    return total;
}

K_FN void m_end(const r_strip *strip, const uint8_t *shared, uint64_t *box) {
    const mp_few_rows_args *args = strip->args;
    const int32_t lane = (int32_t)threadIdx.x, alone = args->split == 0;
    r_more more[M_OUTS];
    K_UNROLL
    for (int o = 0; o < M_OUTS; o++) {
        more[o] = r_ask(args, r_element_of(strip, lane + o * K_FEW_ROWS_LANES));
    }
    k_cluster_wait(); /* all blocks have begun */
    __syncthreads();
    K_UNROLL
    for (int o = 0; o < M_OUTS; o++) {
        const int32_t i = lane + o * K_FEW_ROWS_LANES, row = i / M_COLUMNS;
        if (row < args->m) {
            const int32_t column = i % M_COLUMNS;
            float *room = r_room(strip, row, column);
            const float total = m_total(shared, i);
            if (alone) {
                *room = total;
            } else {
                k_box_send(box, room, r_owner(strip, column), total);
            }
        }
    }
    if (alone) {
        __syncthreads();
    } else {
        k_box_wait(box);
    }
    K_UNROLL
    for (int o = 0; o < M_OUTS; o++) {
        const int32_t i = lane + o * K_FEW_ROWS_LANES;
        const r_element e = r_element_of(strip, i);
        if (e.is) {
            r_put(args, e, r_given(strip, i), more[o]);
        }
    }
}

K_FN void m_run(const mp_few_rows_args *args, uint8_t *shared) {
    uint64_t *box = (uint64_t *)(void *)(shared + M_WARPS * M_AREA);
    float *given = (float *)(void *)(shared + M_WARPS * M_AREA + K_FEW_ROWS_BOX);
    const r_strip strip = r_strip_of(args, M_SHIFT, given);
    const m_place at = m_place_of(args, &strip, shared);
    k_pack *made = 0;
    float sum[M_TILES * M_CHAINS][M_SIDES][4] = {};
    m_round r;
    if (args->split > 0) {
        k_box_open(box, (uint32_t)args->m * M_COLUMNS * 4);
    }
    k_cluster_begin();
    K_UNROLL
    for (int p = 0; p < M_PIECES; p++) {
        if (m_is(&at, at.first, p)) {
            m_load(&at, m_depth(&at, at.first, p), r.w[p]);
        }
    }
#if K_BEFORE == K_BEFORE_NOTHING
    k_wait();
#else
    made = (k_pack *)(void *)(given + M_COLUMNS);
    b_make(&args->before, made, 0);
#endif
    K_UNROLL
    for (int p = 0; p < M_PIECES; p++) {
        if (m_is(&at, at.first, p)) {
            m_rows(&at, made, m_depth(&at, at.first, p), r.x[p]);
        }
    }
    K_ONE_COPY
    for (int32_t depth = at.first; m_is(&at, depth, 0); depth += M_PIECES / M_BESIDE * at.step) {
        m_use(&at, made, depth, &r, sum);
    }
    m_lay(&at, sum);
    m_end(&strip, shared, box);
}

#endif

/* Blocks on a multiprocessor: so many that those of the next kernel find room beside. */
#define M_BLOCKS (K_ROWS == 8 && K_BEFORE == K_BEFORE_NOTHING ? 3 : 2)

K_BLOCK_KERNEL_LATE_OF(K_FEW_ROWS_LANES, M_BLOCKS, mp_few_rows_args, args) {
#if K_WARP_MATRIX
    K_SHARED(uint8_t, shared);
    if (!args.constant) {
        k_wait();
    }
    m_run(&args, shared);
#else
    (void)args;
#endif
}
