/* deinterleave_steps.h - strided copies that take apart what lies in turns in the source: the space
 * to depth of an image, its colours one by one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_DEINTERLEAVE_STEPS_H
#define MP_OP_DEINTERLEAVE_STEPS_H

#include "kernel/move/move_args.h"
#include "op/core/plan.h"

typedef struct mp_deinterleave {
    mp_deinterleave_args args;
    int by;      /* elements that lie in turns */
    size_t size; /* of each, in bytes */
    mp_ref from, to;
} mp_deinterleave;

/* Whether a copy of elements of `size` bytes is one, and so aligned that packs can be moved. View 0
 * of the space is the source, view 1 the target. */
bool mp_deinterleave_of(const mp_planner *p, const mp_space *space, size_t size, mp_ref from,
                        mp_ref to, mp_deinterleave *out);

mp_status mp_plan_deinterleave(mp_planner *p, const mp_deinterleave *step);

#endif
