/* spectrum_steps.h - Fourier transforms as steps, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SPECTRUM_STEPS_H
#define MP_OP_SPECTRUM_STEPS_H

#include "kernel/spectrum_args.h"
#include "op/plan.h"

/* What is to be transformed. `args` says all but the pointers and the bits of fft.cu. */
typedef struct mp_spectrum {
    mp_dtype type; /* MP_F32 or MP_F64 */
    mp_ref x, window, out;
    mp_spectrum_args args; /* n, rows and minor_rows are at least 1 */
} mp_spectrum;

/* out = transform of x, by the way that suits the length. */
mp_status mp_plan_spectrum(mp_planner *p, const mp_spectrum *spectrum);

#endif
