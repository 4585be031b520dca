/* spectrum_cast.c - see spectrum_cast.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/signal/spectrum_cast.h"

#include "op/pointwise/cast_steps.h"

mp_dtype mp_spectrum_type(mp_dtype type) {
    return type == MP_F64 ? MP_F64 : MP_F32;
}

static mp_status cast(mp_planner *p, mp_typed from, mp_typed to, int64_t count) {
    const mp_shape all = {.rank = 1, .dim = {count}};
    return mp_plan_cast(p, from, to, &all, (mp_narrowing){0});
}

mp_status mp_spectrum_widen(mp_planner *p, int i, mp_ref *out) {
    const mp_typed in = {p->in[i].type, MP_IN(i)};
    mp_typed wide = {.type = mp_spectrum_type(in.type)};
    const int64_t count = mp_shape_count(&p->in[i].shape);
    *out = in.ref;
    if (in.type == wide.type) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_of(p, count, wide.type, &wide.ref));
    *out = wide.ref;
    return cast(p, in, wide, count);
}

mp_status mp_spectrum_narrow(mp_planner *p, mp_ref x, mp_ref out, mp_dtype type, int64_t count) {
    return cast(p, (mp_typed){mp_spectrum_type(type), x}, (mp_typed){type, out}, count);
}
