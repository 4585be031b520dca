/* before_steps.h - rows that are made before they are multiplied: by the product's own kernel where
 * there is one row, else by a step before it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_BEFORE_STEPS_H
#define MP_OP_BEFORE_STEPS_H

#include "kernel/rows/before_args.h"
#include "op/core/op.h"

/* x + skip over its root mean square, times the scale; or an activation of the left half of x times
 * its right half. */
typedef struct mp_before {
    k_before args;
    bool is_gate;
    mp_ref x, skip, scale, sum; /* MP_NOWHERE for no skip, and where nobody wants the sum */
    mp_tensor in[2];            /* x and skip */
    mp_tensor made;             /* what is multiplied: its type and shape */
} mp_before;

/* The pointers of `before` in arguments that have a k_before of that name. */
#define MP_BEFORE_BINDS(args_type, from)                                                    \
    MP_BIND(args_type, before.x, (from)->x), MP_BIND(args_type, before.skip, (from)->skip), \
        MP_BIND(args_type, before.scale, (from)->scale),                                    \
        MP_BIND(args_type, before.sum, (from)->sum)

/* Of a node whose input 0 is x, with skip (or nothing) and the scale as inputs `first` and the next
 * one, `epsilon` as an attribute and the sum as output 1, which it declares. Fails:
 * INVALID_ARGUMENT. */
mp_status mp_before_read(mp_planner *p, int first, mp_before *out);

/* Of a node whose input 0 has both halves, with the attributes of GatedHalves. Fails:
 * INVALID_ARGUMENT. */
mp_status mp_before_read_gate(const mp_planner *p, mp_before *out);

/* In the names of kernels. */
static inline const char *mp_before_word(const mp_before *before) {
    return before->is_gate ? "gate" : "norm";
}

/* Whether a kernel of so many lanes a block can make what is multiplied: one row. */
bool mp_before_fits(const mp_planner *p, const mp_before *before, int64_t lanes);

/* Steps of its own. `*out`: where the rows are then. */
mp_status mp_plan_before(mp_planner *p, const mp_before *before, mp_ref *out);

#endif
