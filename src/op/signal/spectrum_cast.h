/* spectrum_cast.h - narrow floats are transformed in float.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SPECTRUM_CAST_H
#define MP_OP_SPECTRUM_CAST_H

#include "op/core/plan.h"

/* The type that elements of `type` are transformed in. */
mp_dtype mp_spectrum_type(mp_dtype type);

/* Input i in that type: itself, or scratch memory. */
mp_status mp_spectrum_widen(mp_planner *p, int i, mp_ref *out);

/* `count` elements of that type at `x` as elements of `type` at `out`; at least one. */
mp_status mp_spectrum_narrow(mp_planner *p, mp_ref x, mp_ref out, mp_dtype type, int64_t count);

#endif
