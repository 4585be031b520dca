/* softmax_end.h - what kernels share that take a softmax, or its logarithm (K_OP), in parts.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SOFTMAX_END_H
#define MP_KERNEL_SOFTMAX_END_H

#include "kernel/rows/softmax.h"

#define S_plain    0
#define S_log      1
#define S_biased   2
#define S_IS_LOG   (K_JOIN(S_, K_OP) == S_log)
#define S_HAS_BIAS (K_JOIN(S_, K_OP) == S_biased)

/* The largest element, and the sum of exp(x - largest). */
typedef struct s_total {
    S largest, sum;
} s_total;

typedef struct s_end {
    S factor, base, logarithm;
} s_end;

/* Of a row's largest element and sum; `share` is what exp(x - base) is multiplied by before. */
K_FN s_end s_end_from(S largest, S sum, S share) {
    s_end end;
#if S_IS_LOG
    (void)share;
    end.base = largest;
    end.factor = 1;
    end.logarithm = s_log(sum);
#else
    end.base = s_base(largest);
    end.factor = share / sum;
    end.logarithm = 0;
#endif
    return end;
}

/* Of exp(x - base), or of x where the logarithm is wanted. */
K_FN T s_result(S kept, s_end end) {
#if S_IS_LOG
    return T_store((TC)(kept - end.base - end.logarithm)); /* apart: the base may be large */
#else
    return T_store((TC)(kept * end.factor));
#endif
}

#endif
