/* narrow.h - types of MP_NARROW_LIST, and integers beside them, as kernels want them described.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_NARROW_H
#define MP_OP_NARROW_H

#include "kernel/pointwise/narrow_args.h"
#include "op/core/plan.h"

#include <stdbool.h>

/* How values beyond the range of a float type end, and how they become powers of two. */
typedef struct mp_narrowing {
    bool saturate;
    int32_t round; /* K_ROUND_... */
} mp_narrowing;

/* `dtype` is one of MP_NARROW_LIST or an integer of up to 32 bits. */
k_narrow mp_narrow(mp_dtype dtype, mp_narrowing how);

/* What the code `bits` of a float type of MP_NARROW_LIST means. */
float mp_narrow_value(mp_dtype dtype, uint32_t bits);

static inline bool mp_is_narrow(mp_dtype dtype) {
    return (MP_BIT(dtype) & MP_NARROW) != 0;
}

/* out[i] of the bools = whether x[i], of a float8 type, is NaN. */
mp_status mp_plan_narrow_isnan(mp_planner *p, mp_dtype dtype, mp_ref x, mp_ref out, int64_t count);

/* The same for infinities; only one of the types has any. */
mp_status mp_plan_narrow_isinf(mp_planner *p, mp_dtype dtype, bool positive, bool negative,
                               mp_ref x, mp_ref out, int64_t count);

#endif
