/* halves_args.h - arguments of kernels that make a row of both its halves.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_HALVES_ARGS_H
#define MP_OP_HALVES_ARGS_H

#include "kernel/pointwise/pointwise_args.h"
#include "op/core/plan.h"

/* For a result of this type and shape, which has at least one element. */
static inline mp_halves mp_halves_of(const mp_planner *p, mp_dtype type, const mp_shape *out) {
    const int64_t pack = 16 / (int64_t)mp_dtype_size(type), count = mp_shape_count(out);
    mp_halves h = {.half = out->dim[out->rank - 1]};
    h.packed = p->align >= 16 && h.half % pack == 0;
    h.per_row = h.packed ? h.half / pack : h.half;
    h.count = h.packed ? count / pack : count;
    h.wide = h.count > INT32_MAX;
    h.by_row = mp_divider(h.wide ? 1 : (uint32_t)h.per_row);
    return h;
}

#endif
