/* spectrum_steps.h - Fourier transforms as steps, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SPECTRUM_STEPS_H
#define MP_OP_SPECTRUM_STEPS_H

#include "kernel/signal/signal_args.h"
#include "op/core/plan.h"

/* What is to be transformed: each row of x, n elements of which those from `have` on are 0, to a
 * row of which the first `made` elements are kept. */
typedef struct mp_spectrum {
    mp_dtype type;             /* MP_F32 or MP_F64 */
    mp_dtype x_type, out_type; /* of x and the window, and of out: `type`, or narrower than float */
    mp_ref x, window, out;
    int64_t rows, minor_rows, n; /* at least 1 */
    int64_t have, made;
    mp_spectrum_side from, to; /* `aligned` is found out */
    bool inverse;
    bool hermitian; /* x is the first half of a spectrum whose other half mirrors it */
} mp_spectrum;

/* Whether the real numbers of a side are pairs as they lie there: side by side, each row from an
 * even place on. How far it is to the next row counts only where there is one. */
static inline bool mp_spectrum_is_even(const mp_spectrum *s, const mp_spectrum_side *side) {
    return side->step == 1 && (s->minor_rows == 1 || side->minor % 2 == 0) &&
           (s->minor_rows == s->rows || side->major % 2 == 0);
}

/* The type that elements of `type` are transformed in. */
mp_dtype mp_spectrum_type(mp_dtype type);

/* out = transform of x. Any length takes time n log n. */
mp_status mp_plan_spectrum(mp_planner *p, const mp_spectrum *spectrum);

#endif
