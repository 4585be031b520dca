/* softmax.cu - exp(x - max) / sum over each row of neighbours, or its logarithm, or of x with a
 * bias. A row that fits the registers of its lanes is read once; each lane takes its elements
 * relative to the largest of them, so that a longer row has its maximum and sum after one reading,
 * and is read again for the result.
 *
 * Rows that are kept and are packs of 16 aligned bytes have an instance apart, so that nothing of
 * what other rows need takes its registers.
 * SPDX-License-Identifier: Apache-2.0 */
#define K_LONG_PACKS
#include "kernel/core/row_lanes.h"
#include "kernel/rows/row_args.h"
#include "kernel/rows/softmax_end.h"

/* exp(x - base) of what a lane keeps of a span, and their sum. For a softmax they take the place of
 * the elements; its logarithm needs the elements. */
K_FN S s_powers(const k_span *s, S base, S *keep) {
    S sum = 0;
    K_SPAN_LOOP(k, s) {
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            const S power = s_exp(keep[k * K_PACK + i] - base);
            sum += power;
#if !S_IS_LOG
            keep[k * K_PACK + i] = power;
#endif
        }
    }
    return sum;
}

K_FN s_total s_add(s_total t, const k_span *s, S *keep) {
    s_total both = t;
    K_SPAN_LOOP(k, s) {
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            both.largest = s_larger(both.largest, keep[k * K_PACK + i]);
        }
    }
    const S base = s_base(both.largest);
    both.sum = s_powers(s, base, keep);
    both.sum += t.sum == 0 ? 0 : t.sum * s_exp(t.largest - base);
    return both;
}

/* What makes a result of what a lane keeps, which is relative to `mine` where the row was kept. */
K_FN s_end s_end_of(s_total mine, int kept, uint32_t width) {
    const S largest = (S)k_group_max((K_SUM)mine.largest, width);
    const S share = s_exp(mine.largest - s_base(largest));
    const S sum = (S)k_group_sum((K_SUM)(mine.sum == 0 ? 0 : mine.sum * share), width);
    return s_end_from(largest, sum, kept ? share : (S)1);
}

K_FN void s_load(const k_span *s, const T *x, int how, S *keep) {
    const T none = T_store(-(TC)K_INF);
    k_pack pack[K_KEEP_PACKS];
    K_PACK_LOOP(k, s) {
        pack[k] = k_span_pack(s, x, k, how, none);
    }
    K_PACK_LOOP(k, s) {
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            keep[k * K_PACK + i] = (S)T_load(pack[k].at[i]);
        }
    }
}

/* Adds the same part of a row of the bias. Beside the row x is -inf and stays so. */
K_FN void s_load_bias(const k_span *s, const T *bias, int how, S *keep) {
    K_PACK_LOOP(k, s) {
        const k_pack pack = k_span_pack(s, bias, k, how, T_store((TC)0));
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            keep[k * K_PACK + i] += (S)T_load(pack.at[i]);
        }
    }
}

K_FN void s_store(const k_span *s, T *out, int how, const S *keep, s_end end) {
    K_SPAN_LOOP(k, s) {
        k_pack pack;
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            pack.at[i] = s_result(keep[k * K_PACK + i], end);
        }
        k_span_put(s, out, k, how, pack);
    }
}

K_FN void s_load_row(const k_span *s, const T *x, const T *bias, int whole, S *keep) {
    s_load(s, x + s->at, whole ? K_WHOLE : K_INSIDE, keep);
#if S_HAS_BIAS
    const int alike = k_row_shift(x) == k_row_shift(bias);
    s_load_bias(s, bias + s->at, whole ? K_WHOLE : alike ? K_INSIDE : K_SINGLE, keep);
#else
    (void)bias;
#endif
}

K_FN void s_row(const T *x, const T *bias, T *out, int64_t columns, k_round t, int whole) {
    const int32_t shift = k_row_shift(x);
    const int64_t most = (int64_t)t.width * K_KEEP, end = columns > 0 ? columns + shift : 0;
    const int put = whole ? K_WHOLE : shift == k_row_shift(out) ? K_INSIDE : K_SINGLE;
    const int kept = end <= most;
    S keep[K_KEEP];
    s_total mine = {-(S)K_INF, 0};
    K_ONE_COPY
    for (int64_t from = 0; from < end; from += most) {
        const k_span s = k_span_at(shift, columns, from, t.lane, t.width);
        s_load_row(&s, x, bias, whole, keep);
        mine = s_add(mine, &s, keep);
    }
    const s_end result = s_end_of(mine, kept, t.width);
    K_ONE_COPY
    for (int64_t from = 0; from < end; from += most) {
        const k_span s = k_span_at(shift, columns, from, t.lane, t.width);
        if (!kept) {
            s_load_row(&s, x, bias, whole, keep);
            (void)s_powers(&s, result.base, keep);
        }
        s_store(&s, out + s.at, put, keep, result);
    }
}

/* The same for a row of packs that is kept. */
K_FN void s_row_kept(const T *x, const T *bias, T *out, int64_t columns, k_round t) {
    const k_span s = k_span_at(0, columns, 0, t.lane, t.width);
    const s_total none = {-(S)K_INF, 0};
    S keep[K_KEEP];
    s_load_row(&s, x, bias, 1, keep);
    const s_total mine = s_add(none, &s, keep);
    s_store(&s, out + s.at, K_WHOLE, keep, s_end_of(mine, 1, t.width));
}

K_FN const T *s_bias_of(const mp_softmax_args *args, int64_t row) {
#if S_HAS_BIAS
    const int64_t its = row / args->bias_share % args->bias_rows;
    return (const T *)args->bias + its * args->columns;
#else
    (void)row;
    return (const T *)args->bias;
#endif
}

K_BLOCK_KERNEL_IN_64(K_SOFTMAX_LANES_MAX, mp_softmax_args, args) {
    const k_round t = k_rounds(args.width);
    K_ROUND_LOOP(first, t, args.rows) {
        const int64_t row = first + t.group;
        const int64_t columns = row < args.rows ? args.columns : 0;
        const T *x = (const T *)args.x;
        T *out = (T *)args.out;
        const int64_t start = row * args.columns;
        const T *bias = s_bias_of(&args, columns > 0 ? row : 0);
        if (K_KEPT && !K_HOST) {
            s_row_kept(x + start, bias, out + start, columns, t);
        } else if (args.packed && !K_HOST) {
            s_row(x + start, bias, out + start, columns, t, 1);
        } else {
            s_row(x + start, bias, out + start, columns, t, 0);
        }
    }
}
