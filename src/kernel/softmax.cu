/* softmax.cu - exp(x - max) / sum over each row, or its logarithm. A row that fits the registers of
 * its lanes is read once. Of a longer one maximum and sum are found together, and it is read again
 * for the result. Rows that are neighbours in memory are dealt to one lane each.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/reduce_args.h"
#include "kernel/row_lanes.h"

#define S_plain  0
#define S_log    1
#define S_IS_LOG K_JOIN(S_, K_OP)

#if T_DOUBLE
typedef double S;
#define s_exp exp
#define s_log log
#else
typedef float S;
#define s_exp expf
#define s_log logf
#endif

/* The largest element, and the sum of exp(x - largest). */
typedef struct s_total {
    S largest, sum;
} s_total;

/* Where a lane has seen nothing, or only -inf, its sum is 0 and must stay so. */
K_FN S s_rescale(S sum, S from, S to) {
    return sum == 0 ? 0 : sum * s_exp(from - to);
}

K_FN s_total s_add(s_total t, S value) {
    if (value > t.largest) {
        t.sum = s_rescale(t.sum, t.largest, value);
        t.largest = value;
    }
    t.sum += value == -(S)K_INF ? 0 : s_exp(value - t.largest); /* a NaN stays one */
    return t;
}

K_FN T s_result(S value, s_total all, S factor) {
#if S_IS_LOG
    return T_store((TC)(value - all.largest - factor)); /* apart: the largest may be large */
#else
    return T_store((TC)(s_exp(value - all.largest) * factor));
#endif
}

K_FN S s_factor(S sum) {
#if S_IS_LOG
    return s_log(sum);
#else
    return (S)1 / sum;
#endif
}

K_FN void s_load(const T *x, int pack, S *value) {
    if (pack == 1) {
        value[0] = (S)T_load(x[0]);
        return;
    }
    const k_pack packed = *(const k_pack *)x;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        value[i] = (S)T_load(packed.at[i]);
    }
}

K_FN void s_store(T *out, int pack, const S *value, s_total all, S factor) {
    if (pack == 1) {
        out[0] = s_result(value[0], all, factor);
        return;
    }
    k_pack packed;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        packed.at[i] = s_result(value[i], all, factor);
    }
    *(k_pack *)out = packed;
}

K_FN void s_kept(const T *x, T *out, int64_t columns, k_turn t, int pack) {
    S keep[K_KEEP];
    s_total all = {-(S)K_INF, 0};
    K_KEPT_LOOP(k, c, pack, t.lane, t.width) {
        if (c < columns) {
            s_load(x + c, pack, keep + k);
            K_UNROLL
            for (int i = 0; i < pack; i++) {
                all.largest = keep[k + i] > all.largest ? keep[k + i] : all.largest;
            }
        }
    }
    all.largest = (S)k_group_max((K_SUM)all.largest, t.width);
    K_KEPT_LOOP(k, c, pack, t.lane, t.width) {
        K_UNROLL
        for (int i = 0; i < pack && c < columns; i++) {
            all.sum += s_exp(keep[k + i] - all.largest);
        }
    }
    const S factor = s_factor((S)k_group_sum((K_SUM)all.sum, t.width));
    K_KEPT_LOOP(k, c, pack, t.lane, t.width) {
        if (c < columns) {
            s_store(out + c, pack, keep + k, all, factor);
        }
    }
}

/* `inner` is the step from one column to the next; packs have 1. */
K_FN void s_read_again(const T *x, T *out, int64_t columns, int64_t inner, k_turn t, int pack) {
    const int64_t first = (int64_t)t.lane * pack, step = (int64_t)t.width * pack;
    S value[K_PACK];
    s_total mine = {-(S)K_INF, 0};
    for (int64_t c = first; c < columns; c += step) {
        s_load(x + c * inner, pack, value);
        for (int i = 0; i < pack; i++) {
            mine = s_add(mine, value[i]);
        }
    }
    s_total all;
    all.largest = (S)k_group_max((K_SUM)mine.largest, t.width);
    all.sum = (S)k_group_sum((K_SUM)s_rescale(mine.sum, mine.largest, all.largest), t.width);
    const S factor = s_factor(all.sum);
    for (int64_t c = first; c < columns; c += step) {
        s_load(x + c * inner, pack, value);
        s_store(out + c * inner, pack, value, all, factor);
    }
}

K_BLOCK_KERNEL_UP_TO(K_ROW_LANES_MAX, mp_softmax_args, args) {
    const k_turn t = k_turns(args.width);
    const int kept = args.inner == 1 && args.columns <= (int64_t)t.width * K_KEEP;
    for (int64_t first = t.first; first < args.rows; first += t.step) {
        const int64_t row = first + t.group;
        const int64_t columns = row < args.rows ? args.columns : 0;
        const int64_t outer = row / args.inner;
        const int64_t start = outer * args.columns * args.inner + (row - outer * args.inner);
        const T *x = (const T *)args.x + start;
        T *out = (T *)args.out + start;
        if (kept && args.packed) {
            s_kept(x, out, columns, t, K_PACK);
        } else if (kept) {
            s_kept(x, out, columns, t, 1);
        } else if (args.packed) {
            s_read_again(x, out, columns, 1, t, K_PACK);
        } else {
            s_read_again(x, out, columns, args.inner, t, 1);
        }
    }
}
