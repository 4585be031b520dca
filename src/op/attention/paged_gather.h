/* paged_gather.h - attention over caches in blocks whose keys and values are put one behind the
 * other first, so that it goes the way of any other.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PAGED_GATHER_H
#define MP_OP_PAGED_GATHER_H

#include "op/attention/paged_steps.h"

/* Whether there is enough work for that, and room: of caches in blocks whose keys all tokens see.
 */
bool mp_paged_gathers(const mp_paged *r);

/* The result is output 0. */
mp_status mp_plan_paged_gathered(mp_planner *p, const mp_paged *r);

#endif
