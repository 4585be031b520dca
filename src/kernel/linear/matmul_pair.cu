/* matmul_pair.cu - two products of rows with an activation between them, as blocks of networks for
 * images end, in one launch: what is between never goes to memory.
 *
 *     out = (activation(x w1' + b1) w2' + b2) * scale + residual
 *
 * A block has K_ROWS rows of x in shared memory. It makes some columns of what is between at a
 * time, keeps them there, as they would be in memory, and multiplies them at once, by tensor cores;
 * its sums of the result stay in registers. Of the weights, lines along k of either product, slices
 * come in turn through a ring of stages, whichever product they belong to, so that the next is on
 * its way while one is multiplied; those of the beginning are asked for before the kernel before
 * has ended. Where rows are few the blocks of a cluster share the columns between the products;
 * their sums are added in a fixed order, and each block finishes some of the rows.
 *
 * Two warps side by side have all rows, four such pairs share columns. Floats are rounded to TF32:
 * x once, what is between when it is made, weights when they are multiplied.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/linear/matmul_pair_args.h"

#include "kernel/core/index.h"
#include "kernel/core/late.h"
#include "kernel/core/meet.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"
#include "kernel/linear/conv_tail.h"

#if K_WARP_MATRIX

enum {
    LANES = K_PAIR_LANES,
    WARP = 32,
    DOWN = 2,                     /* warps that have other rows, ... */
    ACROSS = LANES / WARP / DOWN, /* ... and that have other columns */
    SIZE = sizeof(T),
    PIECE = 16, /* bytes of a copy */
    LINE_PIECES = K_PAIR_SLICE / PIECE,
    LINES = LANES / LINE_PIECES, /* that the block copies at once */
    LINE = K_PAIR_LINE,
    AHEAD = K_PAIR_STAGES - 1,
    STEPS = K_PAIR_SLICE / K_PAIR_STEP,
    HIGH = K_ROWS / DOWN / 16, /* tiles of 16 rows that a warp has, */
    TILE = 8,                  /* ... and of so many columns: */
    INNER = K_PAIR_INNER_MAX / TILE / ACROSS,
    OUTER = K_PAIR_OUTER_MAX(K_ROWS) / TILE / ACROSS,
    UNIT = K_PAIR_UNIT,
    UNIT_WORDS = UNIT * SIZE / 4,
    MINE = K_ROWS * K_PAIR_OUTER_MAX(K_ROWS) / UNIT / LANES, /* units of a lane, at most */
    SOME = 4,                                                /* that it finishes at once */
};

typedef struct K_ALIGN(UNIT * sizeof(T)) p_words {
    uint32_t at[UNIT_WORDS];
} p_words;

typedef struct K_ALIGN(16) p_four {
    float at[4];
} p_four;

typedef struct K_ALIGN(8) p_two {
    float at[2];
} p_two;

/* What a lane does, in numbers that stay. */
typedef struct p_place {
    const mp_pair_args *args;
    uint8_t *shared;
    int32_t lane, warp_row, warp_column; /* the warp among those below and beside each other */
    int32_t rank, row, rows;             /* in the cluster; the block's first row, and how many */
    int32_t begin, end;                  /* columns between the products that the block makes */
    int32_t slices1, slices2;            /* of a part of them, of either product */
    int32_t part, slice, to;             /* what is copied next, and to which stage */
} p_place;

/* Columns of a warp, in tiles, of `count` columns that there are. */
typedef struct p_tiles {
    int32_t first, count;
} p_tiles;

K_FN p_tiles p_tiles_of(const p_place *at, int32_t columns) {
    const int32_t tiles = columns / TILE, each = (tiles + ACROSS - 1) / ACROSS;
    p_tiles mine;
    mine.first = at->warp_column * each;
    mine.count = tiles - mine.first < each ? tiles - mine.first : each;
    return mine;
}

K_FN p_place p_place_of(const mp_pair_args *args, uint8_t *shared) {
    /* The warp's number is had from its first lane so that the compiler knows it to be the same for
     * all: registers are few. */
    const int32_t warp = __shfl_sync(0xffffffffU, (int32_t)threadIdx.x / WARP, 0);
    const int32_t block = (int32_t)blockIdx.x;
    p_place at;
    at.args = args;
    at.shared = shared;
    at.lane = (int32_t)threadIdx.x % WARP;
    at.warp_row = warp % DOWN * HIGH * 16;
    at.warp_column = warp / DOWN;
    at.rank = block & ((1 << args->splits_log) - 1);
    at.row = (block >> args->splits_log) * K_ROWS;
    at.rows = args->rows - at.row;
    at.begin = at.rank * args->share;
    at.end = at.begin + args->share < args->inner ? at.begin + args->share : args->inner;
    at.slices1 = (args->from * SIZE + K_PAIR_SLICE - 1) / K_PAIR_SLICE;
    at.slices2 = (args->part * SIZE + K_PAIR_SLICE - 1) / K_PAIR_SLICE;
    at.part = at.begin;
    at.slice = at.to = 0;
    return at;
}

/* ---- into shared memory ---- */

/* A slice of `lines` lines of a matrix, `pitch` bytes apart, of which those from `there` on are
 * zeros, and so is what lies behind byte `length`. */
K_FN void p_copy_slice(const void *matrix, int64_t pitch, int32_t first, int32_t lines,
                       int32_t there, int32_t byte, int32_t length, uint8_t *to) {
    const int32_t line = (int32_t)threadIdx.x / LINE_PIECES;
    const int32_t piece = (int32_t)threadIdx.x % LINE_PIECES * PIECE;
    const uint8_t *from = (const uint8_t *)matrix + (first + line) * pitch + byte + piece;
    const int is_piece = byte + piece < length;
    K_ONE_COPY
    for (int32_t j = line; j < lines; j += LINES) {
        const int is = is_piece & (j < there);
        k_copy_begin(to + j * LINE + piece, is ? (const void *)from : matrix, is ? PIECE : 0);
        from += LINES * pitch;
    }
}

/* The next slice, if there is one, goes to the next stage. */
K_FN void p_copy_next(p_place *at) {
    const mp_pair_args *args = at->args;
    uint8_t *to = at->shared + args->at_ring + at->to * args->stage;
    if (at->part >= at->end) {
        return;
    }
    if (at->slice < at->slices1) {
        p_copy_slice(args->w1, (int64_t)args->from * SIZE, at->part, args->part, at->end - at->part,
                     at->slice * K_PAIR_SLICE, args->from * SIZE, to);
    } else {
        p_copy_slice(args->w2, (int64_t)args->inner * SIZE, 0, args->to, args->to,
                     at->part * SIZE + (at->slice - at->slices1) * K_PAIR_SLICE, at->end * SIZE,
                     to);
    }
    at->to = at->to + 1 < K_PAIR_STAGES ? at->to + 1 : 0;
    at->slice++;
    if (at->slice == at->slices1 + at->slices2) {
        at->slice = 0;
        at->part += args->part;
    }
}

/* Number i of a row as a float, or what stands for it. */
K_FN float p_number(const void *row, int32_t i, int is, float other) {
    return row != 0 && is ? (float)T_load(((const T *)row)[i]) : other;
}

/* Biases and the scale: the first bias for whole parts, then what is of the result. */
K_FN float *p_rows_of(const p_place *at) {
    return (float *)(void *)at->shared + at->args->at_rows;
}

K_FN void p_hold_rows(const p_place *at) {
    const mp_pair_args *args = at->args;
    const int32_t room = K_PAIR_ROOM(args->share, args->part);
    float *first = p_rows_of(at), *second = first + room, *scale = second + args->to;
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < room || i < args->to; i += LANES) {
        const int32_t column = at->begin + i;
        const float one = p_number(args->b1, column, column < at->end, 0);
        const float two = p_number(args->b2, i, i < args->to, 0);
        const float times = p_number(args->scale, i, i < args->to, 1);
        if (i < room) {
            first[i] = one;
        }
        if (i < args->to) {
            second[i] = two;
            scale[i] = times;
        }
    }
}

/* Rows of x, of which a lane copies what it later rounds. */
K_FN void p_copy_rows(const p_place *at) {
    const int32_t length = at->args->from * SIZE, pitch = K_PAIR_PITCH(length);
    const int32_t first = (int32_t)threadIdx.x / LINE_PIECES;
    const uint8_t *x = (const uint8_t *)at->args->x + (int64_t)at->row * length;
    K_ONE_COPY
    for (int32_t piece = (int32_t)threadIdx.x % LINE_PIECES * PIECE; piece < pitch - PIECE;
         piece += K_PAIR_SLICE) {
        K_UNROLL
        for (int32_t line = 0; line < K_ROWS; line += LINES) {
            const int32_t row = first + line;
            const int is = piece < length && row < at->rows;
            k_copy_begin(at->shared + row * pitch + piece, is ? x + row * length + piece : x,
                         is ? PIECE : 0);
        }
    }
}

K_FN void p_round_rows(const p_place *at) {
    const int32_t pitch = K_PAIR_PITCH(at->args->from * SIZE);
    const int32_t first = (int32_t)threadIdx.x / LINE_PIECES;
    K_ONE_COPY
    for (int32_t piece = (int32_t)threadIdx.x % LINE_PIECES * PIECE; piece < pitch - PIECE;
         piece += K_PAIR_SLICE) {
        K_UNROLL
        for (int32_t line = 0; line < K_ROWS; line += LINES) {
            p_four *four = (p_four *)(void *)(at->shared + (first + line) * pitch + piece);
            p_four x = *four;
            K_UNROLL
            for (int32_t e = 0; e < 4; e++) {
                x.at[e] = k_float_of_bits(k_tf32(x.at[e]));
            }
            *four = x;
        }
    }
}

/* ---- products ---- */

#define p_mma K_JOIN(k_mma_, K_T0)

/* What a lane has of a step of four words along k: left operands of both halves of it, and the
 * right ones of a tile. */
typedef uint32_t p_left[2][HIGH][4];
typedef uint32_t p_right[4];

K_FN void p_load_left(const uint8_t *rows, int32_t pitch, uint32_t (*left)[HIGH][4]) {
    K_UNROLL
    for (int32_t i = 0; i < 2 * HIGH; i++) {
        k_matrices_load(left[i / HIGH][i % HIGH],
                        rows + i % HIGH * 16 * pitch + i / HIGH * (K_PAIR_STEP / 2));
    }
}

K_FN void p_load_right(const uint8_t *lines, uint32_t *right) {
    k_matrices_load(right, lines);
    K_UNROLL
    for (int32_t i = 0; K_WORD == 1 && i < 4; i++) {
        right[i] = k_near_tf32(k_float_of_bits(right[i]));
    }
}

/* sums += left rows x lines of a stage, of `steps` steps along k. The operands of a tile are on
 * their way while the one before is multiplied. `rows` and `lines`: where the lane reads. */
#define P_MULTIPLY(name, wide)                                                              \
    K_FN void name(const uint8_t *rows, int32_t pitch, const uint8_t *lines, int32_t steps, \
                   int32_t tiles, float(*sums)[HIGH][4]) {                                  \
        K_UNROLL                                                                            \
        for (int32_t step = 0; step < STEPS; step++) {                                      \
            p_left left;                                                                    \
            p_right right[2];                                                               \
            if (step >= steps || tiles <= 0) {                                              \
                return;                                                                     \
            }                                                                               \
            p_load_left(rows + step * K_PAIR_STEP, pitch, left);                            \
            p_load_right(lines + step * K_PAIR_STEP, right[0]);                             \
            K_UNROLL                                                                        \
            for (int32_t j = 0; j < (wide); j++) {                                          \
                if (j < tiles) {                                                            \
                    const int32_t next = j + 1 < tiles ? j + 1 : j;                         \
                    p_load_right(lines + next * (TILE * LINE) + step * K_PAIR_STEP,         \
                                 right[(j + 1) % 2]);                                       \
                    K_UNROLL                                                                \
                    for (int32_t i = 0; i < 2 * HIGH; i++) {                                \
                        p_mma(sums[j][i % HIGH], left[i / HIGH][i % HIGH],                  \
                              right[j % 2] + i / HIGH * 2);                                 \
                    }                                                                       \
                }                                                                           \
            }                                                                               \
        }                                                                                   \
    }
P_MULTIPLY(p_multiply_inner, INNER)
P_MULTIPLY(p_multiply_outer, OUTER)

/* Steps of slice `slice` of so many bytes. */
K_FN int32_t p_steps(int32_t bytes, int32_t slice) {
    return (bytes - slice * K_PAIR_SLICE + K_PAIR_STEP - 1) / K_PAIR_STEP;
}

/* The next slice is there, in stage `*stage`, and what lanes have stored is seen; another one is on
 * its way to where the slice before was. Where a lane reads lines of its warp's tiles. */
K_FN const uint8_t *p_turn(p_place *at, const p_tiles *tiles, int32_t *stage) {
    const uint8_t *lines = at->shared + at->args->at_ring + *stage * at->args->stage;
    K_COPIES_WAIT(AHEAD - 1);
    __syncthreads();
    p_copy_next(at);
    k_copies_group();
    *stage = *stage + 1 < K_PAIR_STAGES ? *stage + 1 : 0;
    return lines + (tiles->first * TILE + at->lane % 8) * LINE + at->lane / 8 * PIECE;
}

/* Where a lane reads left operands of its warp's rows. */
K_FN const uint8_t *p_rows_at(const p_place *at, int32_t byte, int32_t pitch) {
    return at->shared + byte + (at->warp_row + at->lane % 16) * pitch + at->lane / 16 * PIECE;
}

/* ---- what is between ---- */

K_FN void p_begin_inner(const p_place *at, const p_tiles *tiles, int32_t part,
                        float (*sums)[HIGH][4]) {
    const float *bias = p_rows_of(at) + (part - at->begin) + tiles->first * TILE + at->lane % 4 * 2;
    K_UNROLL
    for (int32_t j = 0; j < INNER; j++) {
        p_two two = {{0, 0}};
        if (j < tiles->count) {
            two = *(const p_two *)(const void *)(bias + j * TILE);
        }
        K_UNROLL
        for (int32_t i = 0; i < HIGH * 4; i++) {
            sums[j][i / 4][i % 4] = two.at[i % 2];
        }
    }
}

/* Two neighbours, as the next product reads them. */
K_FN void p_put_two(uint8_t *to, const TC *made) {
    if (K_WORD == 1) {
        p_two two;
        two.at[0] = k_float_of_bits(k_tf32(made[0]));
        two.at[1] = k_float_of_bits(k_tf32(made[1]));
        *(p_two *)(void *)to = two;
    } else {
        *(uint32_t *)(void *)to = T_repack(made);
    }
}

/* The sums become what is between. Those of a tile come to the front in turn, to have one copy of
 * the activations' text. */
K_FN void p_put_inner(const p_place *at, const p_tiles *tiles, int32_t part,
                      float (*sums)[HIGH][4]) {
    const mp_pair_args *args = at->args;
    const int32_t there = (at->end - part) / TILE - tiles->first; /* the others are zeros */
    const int32_t pitch = K_PAIR_PITCH(args->part * SIZE);
    uint8_t *to = at->shared + args->at_inner + (at->warp_row + at->lane / 4) * pitch +
                  (tiles->first * TILE + at->lane % 4 * 2) * SIZE;
    K_ONE_COPY
    for (int32_t tile = 0; tile < tiles->count; tile++) {
        TC made[HIGH * 4];
        K_UNROLL
        for (int32_t k = 0; k < HIGH * 4; k++) {
            made[k] = sums[0][k / 4][k % 4];
        }
        c_activate_some(args->activation, args->alpha, args->beta, made, HIGH * 4);
        K_UNROLL
        for (int32_t k = 0; k < HIGH * 4; k++) {
            made[k] = tile < there ? made[k] : 0;
        }
        K_UNROLL
        for (int32_t k = 0; k < HIGH * 2; k++) {
            p_put_two(to + k * 8 * pitch, made + k * 2);
        }
        K_UNROLL
        for (int32_t k = 0; k < (INNER - 1) * HIGH * 4; k++) {
            sums[k / (HIGH * 4)][k / 4 % HIGH][k % 4] =
                sums[k / (HIGH * 4) + 1][k / 4 % HIGH][k % 4];
        }
        to += TILE * SIZE;
    }
}

/* All of it that the block makes, multiplied. */
K_FN void p_multiply_all(p_place *at, const p_tiles *outer, float (*sums)[HIGH][4]) {
    const mp_pair_args *args = at->args;
    const p_tiles inner = p_tiles_of(at, args->part);
    const int32_t x_pitch = K_PAIR_PITCH(args->from * SIZE);
    const int32_t inner_pitch = K_PAIR_PITCH(args->part * SIZE);
    const uint8_t *x = p_rows_at(at, 0, x_pitch);
    const uint8_t *between = p_rows_at(at, args->at_inner, inner_pitch);
    int32_t stage = 0;
    K_ONE_COPY
    for (int32_t part = at->begin; part < at->end; part += args->part) {
        float made[INNER][HIGH][4];
        K_ONE_COPY
        for (int32_t slice = 0; slice < at->slices1; slice++) {
            const uint8_t *lines = p_turn(at, &inner, &stage);
            if (slice == 0) {
                p_begin_inner(at, &inner, part, made);
            }
            p_multiply_inner(x + slice * K_PAIR_SLICE, x_pitch, lines,
                             p_steps(args->from * SIZE, slice), inner.count, made);
        }
        p_put_inner(at, &inner, part, made);
        K_ONE_COPY
        for (int32_t slice = 0; slice < at->slices2; slice++) {
            const uint8_t *lines = p_turn(at, outer, &stage);
            p_multiply_outer(between + slice * K_PAIR_SLICE, inner_pitch, lines,
                             p_steps(args->part * SIZE, slice), outer->count, sums);
        }
    }
}

/* ---- the result ---- */

/* Puts the warp's sums where the rows of x were. */
K_FN void p_put_sums(const p_place *at, const p_tiles *tiles, float (*sums)[HIGH][4]) {
    const int32_t pitch = K_PAIR_SUM_PITCH(at->args->to);
    float *to = (float *)(void *)at->shared + (at->warp_row + at->lane / 4) * pitch +
                tiles->first * TILE + at->lane % 4 * 2;
    K_UNROLL
    for (int32_t j = 0; j < OUTER; j++) {
        K_UNROLL
        for (int32_t k = 0; k < HIGH * 2; k++) {
            if (j < tiles->count) {
                p_two two;
                two.at[0] = sums[j][k / 2][k % 2 * 2];
                two.at[1] = sums[j][k / 2][k % 2 * 2 + 1];
                *(p_two *)(void *)(to + k * 8 * pitch + j * TILE) = two;
            }
        }
    }
}

/* Unit i of a lane, of the rows that its block finishes, which are dealt to the blocks of a cluster
 * in turn: its place among the block's own, and in the tensors. */
typedef struct p_unit {
    int32_t is, own, row, column;
} p_unit;

K_FN p_unit p_unit_of(const p_place *at, int32_t i) {
    const int32_t number = i * LANES + (int32_t)threadIdx.x, log = at->args->splits_log;
    p_unit u;
    u.own = (int32_t)k_divide((uint32_t)number, at->args->by_units);
    u.column = number * UNIT - u.own * at->args->to;
    u.row = (u.own << log) + at->rank;
    u.is = u.own < K_ROWS >> log && u.row < at->rows;
    return u;
}

K_FN uint64_t *p_box(const p_place *at) {
    return (uint64_t *)(void *)((float *)(void *)at->shared + at->args->at_box);
}

/* Gives each block of the cluster the sums of its rows. */
K_FN void p_give(const p_place *at) {
    const mp_pair_args *args = at->args;
    const int32_t pitch = K_PAIR_SUM_PITCH(args->to), log = args->splits_log;
    const float *sums = (const float *)(const void *)at->shared;
    float *given =
        (float *)(void *)at->shared + args->at_given + at->rank * (K_ROWS >> log) * pitch;
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < K_ROWS * (args->to / UNIT); i += LANES) {
        const int32_t row = (int32_t)k_divide((uint32_t)i, args->by_units);
        const int32_t column = i * UNIT - row * args->to;
        const p_four four = *(const p_four *)(const void *)(sums + row * pitch + column);
        k_box_send_four(p_box(at), given + (row >> log) * pitch + column, row & ((1 << log) - 1),
                        four.at);
    }
}

/* The residual, as it comes from memory: to convert it would be to wait for it. */
K_FN void p_ask(const p_place *at, p_words *words) {
    const mp_pair_args *args = at->args;
    const T *from = (const T *)args->residual + (int64_t)at->row * args->to;
    const p_words none = {};
    K_UNROLL
    for (int32_t i = 0; i < MINE; i++) {
        words[i] = none;
    }
    if (args->residual == 0) {
        return;
    }
    K_UNROLL
    for (int32_t i = 0; i < MINE; i++) {
        const p_unit u = p_unit_of(at, i);
        if (u.is) {
            words[i] = *(const p_words *)(const void *)(from + u.row * args->to + u.column);
        }
    }
}

/* `sums`: `parts` of them, `apart` floats from one to the next. */
K_FN void p_finish(const p_place *at, const p_unit *u, const p_words *added, const float *sums,
                   int32_t parts, int32_t apart) {
    const mp_pair_args *args = at->args;
    const float *from = sums + u->own * K_PAIR_SUM_PITCH(args->to) + u->column;
    const float *bias = p_rows_of(at) + K_PAIR_ROOM(args->share, args->part) + u->column;
    const p_four second = *(const p_four *)(const void *)bias;
    const p_four scale = *(const p_four *)(const void *)(bias + args->to);
    float total[UNIT] = {0}, residual[UNIT];
    p_words words;
    K_ONE_COPY
    for (int32_t part = 0; part < parts; part++) {
        const p_four four = *(const p_four *)(const void *)(from + part * apart);
        K_UNROLL
        for (int32_t e = 0; e < UNIT; e++) {
            total[e] += four.at[e];
        }
    }
    K_UNROLL
    for (int32_t w = 0; w < UNIT_WORDS; w++) {
        T_unpack(added->at[w], residual + w * K_WORD);
    }
    K_UNROLL
    for (int32_t e = 0; e < UNIT; e++) {
        total[e] = (total[e] + second.at[e]) * scale.at[e] + residual[e];
    }
    K_UNROLL
    for (int32_t w = 0; w < UNIT_WORDS; w++) {
        words.at[w] = T_repack(total + w * K_WORD);
    }
    *(p_words *)(void *)((T *)args->out + (int64_t)(at->row + u->row) * args->to + u->column) =
        words;
}

/* The sums become results; what is added comes to the front in turn, to have one copy of the text.
 */
K_FN void p_store_all(const p_place *at) {
    const mp_pair_args *args = at->args;
    const int32_t log = args->splits_log, own = K_ROWS >> log;
    const int32_t apart = own * K_PAIR_SUM_PITCH(args->to);
    const float *sums = (const float *)(const void *)at->shared + (log > 0 ? args->at_given : 0);
    p_words added[MINE];
    p_ask(at, added);
    __syncthreads();
    if (log > 0) {
        k_cluster_wait(); /* all blocks have begun */
        p_give(at);
        k_box_wait(p_box(at));
    }
    K_ONE_COPY
    for (int32_t i = 0; i * LANES < own * (args->to / UNIT); i += SOME) {
        K_UNROLL
        for (int32_t k = 0; k < SOME; k++) {
            const p_unit u = p_unit_of(at, i + k);
            if (u.is) {
                p_finish(at, &u, &added[k], sums, 1 << log, apart);
            }
        }
        K_UNROLL
        for (int32_t k = 0; k < MINE - SOME; k++) {
            added[k] = added[k + SOME];
        }
    }
}

K_FN void p_run(const mp_pair_args *args, uint8_t *shared) {
    p_place at = p_place_of(args, shared);
    const p_tiles outer = p_tiles_of(&at, args->to);
    float sums[OUTER][HIGH][4] = {};
    if (args->splits_log > 0) {
        k_box_open(p_box(&at), (uint32_t)(K_ROWS * args->to) * (uint32_t)sizeof(float));
        k_cluster_begin();
    }
    K_ONE_COPY
    for (int32_t i = 0; i < AHEAD; i++) {
        p_copy_next(&at);
    }
    p_hold_rows(&at);
    k_wait();
    p_copy_rows(&at);
    k_copies_group(); /* all of the beginning; groups of one slice follow */
    K_ONE_COPY
    for (int32_t i = 1; i < AHEAD; i++) {
        k_copies_group();
    }
    if (K_WORD == 1) {
        K_COPIES_WAIT(AHEAD - 1);
        p_round_rows(&at);
    }
    p_multiply_all(&at, &outer, sums);
    K_COPIES_WAIT(0); /* where there is nothing to multiply, rows of x may still be on their way */
    __syncthreads();  /* nobody reads operands any more */
    p_put_sums(&at, &outer, sums);
    p_store_all(&at);
}

#endif

/* Blocks on a multiprocessor: so many that those of the next kernel find room beside. */
#define BLOCKS 2

K_BLOCK_KERNEL_LATE_OF(K_PAIR_LANES, BLOCKS, mp_pair_args, args) {
#if K_WARP_MATRIX
    K_SHARED(uint8_t, shared);
    if (!args.constant) {
        k_wait();
    }
    p_run(&args, shared);
#else
    (void)args;
#endif
}
