/* moe_few_out.cu - the last products of a few rows' routes, summed by their weights: a group of
 * lanes takes a column of a row, and its lanes the chunks of all experts of the row one after the
 * other. The experts are found anew from the scores, and the first chunks of weights are on their
 * way before moe_few_in.cu has ended: all but its result was there before it began.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/moe_few.h"

enum { F_AHEAD = K_BITS == 4 ? 8 : 4 };

/* An expert of a row, and how much of its result counts. */
typedef struct f_pick {
    float weight;
    int32_t expert;
} f_pick;

/* The experts of a row to shared memory. */
K_FN void f_choose(const mp_moe_few_args *args, const k_round *t, int32_t row, f_pick *picks) {
    const e_scores scores = e_scores_of(&args->from, row);
    e_walk walk = e_begin();
    float sum = 0;
    for (int32_t j = 0; j < args->from.k; j++) {
        const float share = e_step(t, &scores, &walk);
        if (t->lane == 0) {
            picks[j].weight = share;
            picks[j].expert = walk.last.expert;
        }
        sum += share;
    }
    for (int32_t j = 0; t->lane == 0 && args->from.normalize && sum > 0 && j < args->from.k; j++) {
        picks[j].weight /= sum;
    }
}

/* A chunk of a row's: of all chunks of its first expert, then of the next. */
typedef struct f_unit {
    int32_t route, chunk; /* route: of the row */
} f_unit;

K_FN f_unit f_unit_of(int32_t number, int32_t chunks) {
    f_unit unit;
    unit.route = number / chunks;
    unit.chunk = number - unit.route * chunks;
    return unit;
}

K_FN void f_ask(const mp_moe_few_args *args, const k_round *t, const f_pick *picks, int32_t column,
                int32_t first, f_chunk *ahead) {
    const int32_t chunks = args->first.chunks, units = args->from.k * chunks;
    K_UNROLL
    for (int j = 0; j < F_AHEAD; j++) {
        const int32_t number = first + j * (int32_t)t->width, is = number < units;
        const f_unit unit = f_unit_of(is ? number : 0, chunks);
        f_load(&args->first, picks[unit.route].expert, column, unit.chunk, is, &ahead[j]);
    }
}

/* Uses what was asked for, one chunk after the other. */
K_FN void f_use(const mp_moe_few_args *args, const k_round *t, const f_pick *picks, int32_t row,
                int32_t column, int32_t first, f_chunk *ahead, K_SUM *sum) {
    const int32_t chunks = args->first.chunks, units = args->from.k * chunks;
    const int32_t step = (int32_t)t->width, past = first + F_AHEAD * step;
    K_ONE_COPY
    for (int32_t number = first; number < past && number < units; number += step) {
        const f_unit unit = f_unit_of(number, chunks);
        const int64_t route = (int64_t)row * args->from.k + unit.route;
        const float base = f_base(&args->first, column, unit.chunk, ahead[0].zero);
        k_pack x[F_PACKS];
        K_SUM of = 0;
        f_row((const T *)args->x + route * chunks * F_CHUNK, unit.chunk, 1, x);
        f_add(1, &base, &ahead[0], x, &of);
        *sum += of * (K_SUM)picks[unit.route].weight;
        K_UNROLL
        for (int j = 0; j + 1 < F_AHEAD; j++) { /* the next one's turn */
            ahead[j] = ahead[j + 1];
        }
    }
}

/* What the biases of the row's experts add to a column, as far as this lane has them. */
K_FN K_SUM f_biases(const mp_moe_few_args *args, const k_round *t, const f_pick *picks,
                    int32_t column) {
    const T *bias = (const T *)args->first.bias;
    K_SUM sum = 0;
    for (int32_t j = (int32_t)t->lane; bias != 0 && j < args->from.k; j += (int32_t)t->width) {
        sum += (K_SUM)picks[j].weight *
               (K_SUM)T_load(bias[(int64_t)picks[j].expert * args->first.n + column]);
    }
    return sum;
}

K_BLOCK_KERNEL_LATE_OF(K_MOE_FEW_LANES, 2, mp_moe_few_args, args) {
    K_SHARED(f_pick, shared);
    const k_round t = k_rounds(F_GROUP);
    f_pick *picks = shared + t.group * args.from.k;
    const int32_t all = args.rows * args.columns, units = args.from.k * args.first.chunks;
    int waited = 0;
    K_ONE_COPY
    for (int32_t first = (int32_t)t.first; first < all; first += (int32_t)t.step) {
        const int32_t item = first + (int32_t)t.group < all ? first + (int32_t)t.group : all - 1;
        const int32_t row = item / args.columns, column = item - row * args.columns;
        K_SUM sum = 0;
        f_choose(&args, &t, row, picks);
        __syncthreads();
        sum += f_biases(&args, &t, picks, column);
        K_ONE_COPY
        for (int32_t k = (int32_t)t.lane; k < units; k += F_AHEAD * (int32_t)t.width) {
            f_chunk ahead[F_AHEAD];
            f_ask(&args, &t, picks, column, k, ahead);
            if (!waited) {
                k_wait();
                waited = 1;
            }
            f_use(&args, &t, picks, row, column, k, ahead, &sum);
        }
        if (!waited) { /* lanes beyond the last unit */
            k_wait();
            waited = 1;
        }
        const float total = (float)k_group_sum(sum, t.width);
        if (t.lane == 0 && first + (int32_t)t.group < all) {
            ((T *)args.out)[item] = T_store(total);
        }
        __syncthreads(); /* all picks are read before the next ones are written */
    }
    if (!waited) {
        k_wait();
    }
}
