/* rows_end.h - what becomes of the sums of a tile of a product: those of the block's parts, then of
 * the blocks of a cluster, are added in a fixed order, with what follows, and written.
 *
 * Before it is included: R_LANES, of a block; K_ROWS, K_COLUMNS, of a tile.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROWS_END_H
#define MP_KERNEL_ROWS_END_H

#include "kernel/core/meet.h"
#include "kernel/core/word.h"
#include "kernel/linear/conv_tail.h"
#include "kernel/linear/rows_tile.h"

enum {
    R_MINE = K_ROWS * R_ACROSS / R_LANES, /* units of a lane */
    R_EARLY = R_MINE <= 4, /* registers are left for what is added while the sums are made */
};

/* The sums of a tile in shared memory: several, to be added, `apart` floats from one to the next.
 */
typedef struct r_sums {
    float *at;
    int32_t parts, apart;
} r_sums;

/* Adds up `parts` tiles, `apart` floats from one to the next, of units that begin at `from`. */
K_FN void r_add(const float *const *from, int32_t parts, int32_t apart, float (*total)[R_UNIT]) {
    K_UNROLL
    for (int32_t i = 0; i < R_MINE * R_UNIT; i++) {
        total[i / R_UNIT][i % R_UNIT] = 0;
    }
    K_ONE_COPY
    for (int32_t part = 0; part < parts; part++) {
        K_UNROLL
        for (int32_t i = 0; i < R_MINE; i++) {
            const r_four four = *(const r_four *)(const void *)(from[i] + part * apart);
            K_UNROLL
            for (int32_t e = 0; e < R_UNIT; e++) {
                total[i][e] += four.at[e];
            }
        }
    }
}

/* Unit i of a lane, of those that its block finishes: its place among the block's, and in the tile.
 * Rows are dealt to the blocks of a tile in turn. */
typedef struct r_unit {
    int32_t place; /* floats, in the block's rows */
    int32_t is;    /* whether the block has it */
    int32_t row, column;
} r_unit;

K_FN r_unit r_unit_of(const r_tile *at, int32_t i) {
    const int32_t number = i * R_LANES + (int32_t)threadIdx.x, log = at->args->splits_log;
    const int32_t own = number / R_ACROSS;
    r_unit u;
    u.column = (number - own * R_ACROSS) * R_UNIT;
    u.is = own < K_ROWS >> log;
    u.place = u.is ? own * R_PITCH + u.column : K_COLUMNS; /* behind a row: nobody's */
    u.row = (own << log) + at->rank;
    return u;
}

/* Gives each block of the tile what this one has of its rows. */
K_FN void r_give(const r_tile *at, const r_sums *own, float *slots) {
    const int32_t log = at->args->splits_log, rows = K_ROWS >> log;
    const float *from[R_MINE];
    float total[R_MINE][R_UNIT];
    K_UNROLL
    for (int32_t i = 0; i < R_MINE; i++) {
        const int32_t number = i * R_LANES + (int32_t)threadIdx.x;
        from[i] = own->at + number / R_ACROSS * R_PITCH + number % R_ACROSS * R_UNIT;
    }
    r_add(from, own->parts, own->apart, total);
    k_cluster_wait(); /* all blocks have begun */
    K_UNROLL
    for (int32_t i = 0; i < R_MINE; i++) {
        const int32_t number = i * R_LANES + (int32_t)threadIdx.x;
        const int32_t row = number / R_ACROSS;
        float *slot =
            slots + (at->rank * rows + (row >> log)) * R_PITCH + number % R_ACROSS * R_UNIT;
        k_cluster_store_four(slot, row & ((1 << log) - 1), total[i]);
    }
    k_cluster_arrive();
}

/* What is added to a lane's units, as it comes from memory: to convert it would be to wait for it.
 */
typedef struct r_added {
    r_words d[R_MINE], bias[R_MINE];
} r_added;

/* `from` may be NULL, the same for all lanes. */
K_FN void r_ask(const r_tile *at, const void *from, int64_t pitch, r_words *words) {
    const r_words none = {};
    K_UNROLL
    for (int32_t i = 0; i < R_MINE; i++) {
        words[i] = none;
    }
    if (from == 0) {
        return;
    }
    K_UNROLL
    for (int32_t i = 0; i < R_MINE; i++) {
        const r_unit u = r_unit_of(at, i);
        if (u.is && u.row < at->rows && u.column < at->columns) {
            words[i] =
                *(const r_words *)(const void *)((const T *)from + (at->row + u.row) * pitch +
                                                 at->column + u.column);
        }
    }
}

K_FN void r_ask_all(const r_tile *at, r_added *added) {
    r_ask(at, at->args->bias, 0, added->bias);
    r_ask(at, at->args->d, at->args->ldc, added->d);
}

/* All sums with what is added to them; they lie in the first tile then. */
K_FN void r_join(const r_tile *at, const r_sums *sums, const r_added *added) {
    const mp_rows_mma_args *args = at->args;
    const float *from[R_MINE];
    float total[R_MINE][R_UNIT];
    K_UNROLL
    for (int32_t i = 0; i < R_MINE; i++) {
        from[i] = sums->at + r_unit_of(at, i).place;
    }
    r_add(from, sums->parts, sums->apart, total);
    K_UNROLL
    for (int32_t i = 0; i < R_MINE; i++) {
        const r_unit u = r_unit_of(at, i);
        float d[R_UNIT], bias[R_UNIT];
        r_four y;
        K_UNROLL
        for (int32_t w = 0; w < R_WORDS; w++) {
            T_unpack(added->d[i].at[w], d + w * K_WORD);
            T_unpack(added->bias[i].at[w], bias + w * K_WORD);
        }
        K_UNROLL
        for (int32_t e = 0; e < R_UNIT; e++) {
            y.at[e] = args->alpha * total[i][e] + args->beta * d[e] + bias[e];
        }
        if (u.is) {
            *(r_four *)(void *)(sums->at + u.place) = y;
        }
    }
}

/* Each lane has made itself what it takes. One copy of the text, of which an activation has much.
 */
K_FN void r_store(const r_tile *at, const float *sums) {
    const mp_rows_mma_args *args = at->args;
    K_ONE_COPY
    for (int32_t i = 0; i < R_MINE; i++) {
        const r_unit u = r_unit_of(at, i);
        r_four y;
        r_words words;
        if (!u.is || u.row >= at->rows || u.column >= at->columns) {
            continue;
        }
        y = *(const r_four *)(const void *)(sums + u.place);
        c_activate_four(args->activation, args->activation_alpha, args->activation_beta, y.at);
        K_UNROLL
        for (int32_t w = 0; w < R_WORDS; w++) {
            words.at[w] = T_repack(y.at + w * K_WORD);
        }
        *(r_words *)(void *)((T *)args->out + (at->row + u.row) * args->ldc + at->column +
                             u.column) = words;
    }
}

/* The sums of this block become results, its own or those of its rows of the cluster's tile.
 * `slots`: for what other blocks give, if there are any. `added`: where R_EARLY, asked for. */
K_FN void r_finish(const r_tile *at, r_sums sums, float *slots, r_added *added) {
    const int32_t splits = 1 << at->args->splits_log;
    if (!R_EARLY) {
        r_ask_all(at, added);
    }
    __syncthreads();
    if (splits > 1) {
        r_give(at, &sums, slots);
        sums.at = slots;
        sums.parts = splits;
        sums.apart = (K_ROWS >> at->args->splits_log) * R_PITCH;
        k_cluster_wait();
    }
    r_join(at, &sums, added);
    r_store(at, sums.at);
}

#endif
