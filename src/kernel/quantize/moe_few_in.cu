/* moe_few_in.cu - the first products of a few routes, with what comes between: each group of lanes
 * finds out for itself which expert its route goes to, and takes some columns of that, so that no
 * kernel has to sort the routes before. Where the result is gated, K_DOTS is 2, and a group makes
 * half as many of its columns from two each. Bound by how soon the weights come.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/moe_between.h"
#include "kernel/quantize/moe_few.h"

enum { F_SUMS = K_MOE_FEW_SUMS(K_BITS, (int)sizeof(T)), F_COLUMNS = F_SUMS / K_DOTS };

/* A chunk of each sum's column, and of the row. */
typedef struct f_turn {
    f_chunk chunk[F_SUMS];
    k_pack x[F_PACKS];
} f_turn;

/* Which matrix, and which of its columns, sum `i` of a group's columns is of. */
typedef struct f_source {
    const k_moe_few *m;
    int32_t column;
} f_source;

K_FN f_source f_source_of(const mp_moe_few_args *args, int32_t column, int i) {
    const int32_t c = column + i / K_DOTS;
    const int32_t at = (c < args->columns ? c : args->columns - 1) * args->stride;
    f_source from;
    from.m = i % K_DOTS ? &args->other : &args->first;
    from.column = at + i % K_DOTS * args->apart;
    return from;
}

K_FN float f_bias(const f_source *from, int32_t expert) {
    const T *bias = (const T *)from->m->bias;
    return bias != 0 ? T_load(bias[(int64_t)expert * from->m->n + from->column]) : 0;
}

/* Number `i` of some that are in registers. */
K_FN float f_number(const float *sum, int32_t i) {
    float number = sum[0];
    K_UNROLL
    for (int j = 1; j < F_SUMS; j++) {
        number = i == j ? sum[j] : number;
    }
    return number;
}

/* Writes what the sums, which all lanes have, make of the columns from `column` on. */
K_FN void f_put(const mp_moe_few_args *args, const k_round *t, int32_t expert, int32_t column,
                const float *sum, T *out) {
    K_ONE_COPY
    for (int32_t c = (int32_t)t->lane; c < F_COLUMNS; c += (int32_t)t->width) {
        float of[K_DOTS];
        K_UNROLL
        for (int i = 0; i < K_DOTS; i++) {
            const f_source from = f_source_of(args, column + c, i);
            of[i] = f_number(sum, c * K_DOTS + i) + f_bias(&from, expert);
        }
        if (column + c < args->columns) {
            out[column + c] = T_store(m_made(&args->between, of, K_DOTS));
        }
    }
}

K_FN int32_t f_expert(const mp_moe_few_args *args, const k_round *t, int32_t route) {
    const int32_t row = route / args->from.k;
    const e_scores scores = e_scores_of(&args->from, row);
    e_walk walk = e_begin();
    for (int32_t j = row * args->from.k; j <= route; j++) {
        walk.last = e_next(t, &scores, walk.last);
    }
    return walk.last.expert;
}

K_FN void f_ask(const mp_moe_few_args *args, int32_t expert, int32_t column, const T *row,
                int32_t chunk, f_turn *out) {
    const int is = chunk < args->first.chunks;
    K_UNROLL
    for (int i = 0; i < F_SUMS; i++) {
        const f_source from = f_source_of(args, column, i);
        f_load(from.m, expert, from.column, chunk, is, &out->chunk[i]);
    }
    f_row(row, chunk, is, out->x);
}

K_FN void f_use(const mp_moe_few_args *args, int32_t column, int32_t chunk, const f_turn *turn,
                K_SUM *sum) {
    float base[F_SUMS];
    K_UNROLL
    for (int i = 0; i < F_SUMS; i++) {
        const f_source from = f_source_of(args, column, i);
        base[i] = f_base(from.m, from.column, chunk, turn->chunk[i].zero);
    }
    f_add(F_SUMS, base, turn->chunk, turn->x, sum);
}

K_BLOCK_KERNEL_LATE_OF(K_MOE_FEW_LANES, 2, mp_moe_few_args, args) {
    const k_round t = k_rounds(F_GROUP);
    const int32_t sets = (args.columns + F_COLUMNS - 1) / F_COLUMNS;
    const int32_t all = args.rows * args.from.k * sets, chunks = args.first.chunks;
    k_wait();
    K_ONE_COPY
    for (int32_t first = (int32_t)t.first; first < all; first += (int32_t)t.step) {
        const int32_t item = first + (int32_t)t.group < all ? first + (int32_t)t.group : all - 1;
        const int32_t route = item / sets, column = (item - route * sets) * F_COLUMNS;
        const int32_t expert = f_expert(&args, &t, route), step = (int32_t)t.width;
        const T *row = (const T *)args.x + (int64_t)(route / args.from.k) * chunks * F_CHUNK;
        K_SUM sum[F_SUMS] = {0};
        float total[F_SUMS];
        f_turn now;
        f_ask(&args, expert, column, row, (int32_t)t.lane, &now);
        K_ONE_COPY
        for (int32_t k = (int32_t)t.lane; k < chunks; k += step) {
            f_turn next;
            f_ask(&args, expert, column, row, k + step, &next);
            f_use(&args, column, k, &now, sum);
            now = next;
        }
        K_UNROLL
        for (int i = 0; i < F_SUMS; i++) {
            total[i] = (float)k_group_sum(sum[i], t.width);
        }
        if (first + (int32_t)t.group < all) {
            f_put(&args, &t, expert, column, total, (T *)args.out + (int64_t)route * args.columns);
        }
    }
}
