/* spectrum_cast.c - see spectrum_cast.h.
 * Kernel: pointwise/cast.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/signal/spectrum_cast.h"

#include "kernel/pointwise/pointwise_args.h"

mp_dtype mp_spectrum_type(mp_dtype type) {
    return type == MP_F64 ? MP_F64 : MP_F32;
}

static mp_status plan_cast(mp_planner *p, mp_ref x, mp_dtype from, mp_ref out, mp_dtype to,
                           int64_t count) {
    enum { PER_LANE = 4 };
    const mp_pointwise1_args args = {.count = count};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "cast_%s_%s", mp_dtype_word(from), mp_dtype_word(to)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, PER_LANE), args,
                     MP_BIND(mp_pointwise1_args, x, x), MP_BIND(mp_pointwise1_args, out, out));
}

mp_status mp_spectrum_widen(mp_planner *p, int i, mp_ref *out) {
    const mp_dtype type = p->in[i].type, wide = mp_spectrum_type(type);
    const int64_t count = mp_shape_count(&p->in[i].shape);
    *out = MP_IN(i);
    if (type == wide) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_of(p, count, wide, out));
    return count > 0 ? plan_cast(p, MP_IN(i), type, *out, wide, count) : MP_OK;
}

mp_status mp_spectrum_narrow(mp_planner *p, mp_ref x, mp_ref out, mp_dtype type, int64_t count) {
    return plan_cast(p, x, mp_spectrum_type(type), out, type, count);
}
