/* box_copy.h - strided copies by boxes: neither the dimension of neighbours in the source nor that
 * of neighbours in the target is long enough for tiles of the two, but several are together.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_BOX_COPY_H
#define MP_OP_BOX_COPY_H

#include "kernel/move/move_args.h"
#include "op/core/plan.h"

/* Whether a copy of elements of `size` bytes is one that boxes are for. View 0 of the space is the
 * source, view 1 the target. */
bool mp_box_copy_of(const mp_planner *p, const mp_space *space, size_t size, mp_ref from, mp_ref to,
                    mp_box_copy_args *out);

mp_status mp_plan_box_copy(mp_planner *p, const mp_box_copy_args *args, size_t size, mp_ref from,
                           mp_ref to);

#endif
