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

/* The type that elements of `type` are transformed in. */
mp_dtype mp_spectrum_type(mp_dtype type);

/* out = transform of x. Any length takes time n log n. */
mp_status mp_plan_spectrum(mp_planner *p, const mp_spectrum *spectrum);

#endif
