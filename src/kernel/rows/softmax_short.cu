/* softmax_short.cu - exp(x - max) / sum over each short row of neighbours, wherever it begins. As
 * in norm_short.cu there is little text: a lane asks for all of its elements at once, every
 * `width`-th one, so that lanes side by side read neighbours; then the lanes of the row meet twice.
 *
 * The emulated device, which has one lane a row, reads the elements again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/rows/row_args.h"
#include "kernel/rows/softmax.h"

#if K_HOST
#define S_EACH(k, t, end) for (int32_t k = 0; (int32_t)(t.lane + k * t.width) < (end); k++)
#else
#define S_EACH(k, t, end) \
    K_UNROLL              \
    for (int32_t k = 0; k < K_SOFTMAX_SHORT_KEPT; k++)
#endif

/* Element `k` of the lane; -inf where the row, which ends at `end`, has none. */
K_FN S s_element(const T *x, k_round t, int32_t k, int32_t end) {
    const int32_t c = (int32_t)(t.lane + (uint32_t)k * t.width);
    return c < end ? (S)T_load(x[c]) : -(S)K_INF;
}

K_FN void s_short_row(const T *x, T *out, int32_t end, k_round t) {
    S largest = -(S)K_INF, sum = 0;
#if K_HOST
#define S_KEPT(k)  s_element(x, t, k, end)
#define S_POWER(k) s_exp(S_KEPT(k) - base)
#else
    T element[K_SOFTMAX_SHORT_KEPT];
    S keep[K_SOFTMAX_SHORT_KEPT];
#define S_KEPT(k)  keep[k]
#define S_POWER(k) keep[k]
    S_EACH(k, t, end) {
        const int32_t c = (int32_t)(t.lane + k * t.width);
        element[k] = T_store(-(TC)K_INF);
        if (c < end) {
            element[k] = x[c];
        }
    }
    S_EACH(k, t, end) {
        keep[k] = (S)T_load(element[k]);
    }
#endif
    S_EACH(k, t, end) {
        largest = s_larger(largest, S_KEPT(k));
    }
    const S base = s_base((S)k_group_max((K_SUM)largest, t.width));
    S_EACH(k, t, end) {
        const S power = s_exp(S_KEPT(k) - base);
        sum += power;
#if !K_HOST
        keep[k] = power;
#endif
    }
    const S factor = (S)1 / (S)k_group_sum((K_SUM)sum, t.width);
    S_EACH(k, t, end) {
        const int32_t c = (int32_t)(t.lane + (uint32_t)k * t.width);
        if (c < end) {
            out[c] = T_store((TC)(S_POWER(k) * factor));
        }
    }
}

K_BLOCK_KERNEL_IN_64(K_ROW_LANES_MAX, mp_softmax_args, args) {
    const k_round t = k_rounds(args.width);
    K_ROUND_LOOP(first, t, args.rows) {
        const int64_t row = first + t.group, start = row * args.columns;
        const int32_t end = row < args.rows ? (int32_t)args.columns : 0;
        s_short_row((const T *)args.x + start, (T *)args.out + start, end, t);
    }
}
