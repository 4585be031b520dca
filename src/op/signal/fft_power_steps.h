/* fft_power_steps.h - transforms of rows whose length is a power of two.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FFT_POWER_STEPS_H
#define MP_OP_FFT_POWER_STEPS_H

#include "op/signal/spectrum_steps.h"

/* Whether the kernel for them takes these rows, of which `pairs` says what is taken two by two:
 * K_FFT_PAIRS_... */
bool mp_fft_power_fits(const mp_planner *p, const mp_spectrum *s, int32_t pairs);

/* out = transform of x, in one launch. */
mp_status mp_plan_fft_power(mp_planner *p, const mp_spectrum *s, int32_t pairs);

#endif
