/* lp_norm.cu - each row of neighbours over its norm; a row of zeros stays. A row that fits the
 * registers of its lanes is read once; a longer one is read again, and much of it is in cache then.
 *
 * Packed rows are packs of 16 aligned bytes, few enough to be kept. An instance apart has them, so
 * that nothing of what other rows need takes its registers.
 * SPDX-License-Identifier: Apache-2.0 */
#define K_LONG_PACKS
#include "kernel/core/row_lanes.h"
#include "kernel/rows/lp_norm.h"
#include "kernel/rows/row_args.h"

#define L_edged  0
#define L_packed 1
enum { L_WHOLE = K_JOIN(L_, K_ROWS) && !K_HOST };

K_FN void l_load(const k_span *s, const T *x, int how, K_SUM *keep) {
    k_pack pack[K_KEEP_PACKS];
    K_PACK_LOOP(k, s) {
        pack[k] = k_span_pack(s, x, k, how, T_store(0));
    }
    K_PACK_LOOP(k, s) {
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            keep[k * K_PACK + i] = (K_SUM)T_load(pack[k].at[i]);
        }
    }
}

K_FN K_SUM l_sum(const k_span *s, const K_SUM *keep, int32_t p) {
    K_SUM sum[2] = {0}; /* which need not wait for each other */
    K_PACK_LOOP(k, s) {
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            sum[i % 2] += l_term(keep[k * K_PACK + i], p);
        }
    }
    return sum[0] + sum[1];
}

K_FN void l_store(const k_span *s, T *out, int how, const K_SUM *keep, l_norm norm) {
    K_SPAN_LOOP(k, s) {
        k_pack pack;
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            pack.at[i] = T_store((TC)l_over(keep[k * K_PACK + i], norm));
        }
        k_span_put(s, out, k, how, pack);
    }
}

K_FN void l_row(const mp_lp_norm_args *args, int64_t start, int64_t columns, k_round t) {
    const T *x = (const T *)args->x + start;
    T *out = (T *)args->out + start;
    const int32_t shift = k_row_shift(x);
    const int64_t most = (int64_t)t.width * K_KEEP, end = columns > 0 ? columns + shift : 0;
    const int put = shift == k_row_shift(out) ? K_INSIDE : K_SINGLE;
    K_SUM keep[K_KEEP], sum = 0;
    K_ONE_COPY
    for (int64_t from = 0; from < end; from += most) {
        const k_span s = k_span_at(shift, columns, from, t.lane, t.width);
        l_load(&s, x + s.at, K_INSIDE, keep);
        sum += l_sum(&s, keep, args->p);
    }
    const l_norm norm = l_norm_of(k_group_sum(sum, t.width), args);
    K_ONE_COPY
    for (int64_t from = 0; from < end; from += most) {
        const k_span s = k_span_at(shift, columns, from, t.lane, t.width);
        if (end > most) {
            l_load(&s, x + s.at, K_INSIDE, keep);
        }
        l_store(&s, out + s.at, put, keep, norm);
    }
}

/* The same for a packed row. */
K_FN void l_row_packed(const mp_lp_norm_args *args, int64_t start, int64_t columns, k_round t) {
    const k_span s = k_span_at(0, columns, 0, t.lane, t.width);
    K_SUM keep[K_KEEP];
    l_load(&s, (const T *)args->x + start + s.at, K_WHOLE, keep);
    const K_SUM sum = k_group_sum(l_sum(&s, keep, args->p), t.width);
    l_store(&s, (T *)args->out + start + s.at, K_WHOLE, keep, l_norm_of(sum, args));
}

K_BLOCK_KERNEL_IN_64(K_ROW_LANES_MAX, mp_lp_norm_args, args) {
    const k_round t = k_rounds(args.width);
    K_ROUND_LOOP(first, t, args.rows) {
        const int64_t row = first + t.group;
        const int64_t columns = row < args.rows ? args.columns : 0;
        if (L_WHOLE) {
            l_row_packed(&args, row * args.columns, columns, t);
        } else {
            l_row(&args, row * args.columns, columns, t);
        }
    }
}
