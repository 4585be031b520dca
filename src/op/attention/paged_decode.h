/* paged_decode.h - attention of new tokens, as many of each entry, that reads keys where they lie
 * in the blocks of caches.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PAGED_DECODE_H
#define MP_OP_PAGED_DECODE_H

#include "op/attention/paged_steps.h"

/* Plans that where it can be done, which `done` says; the result is output 0. `attention` and
 * `store` of `r` are filled in. */
mp_status mp_plan_paged_decoded(mp_planner *p, const mp_paged *r, bool *done);

#endif
