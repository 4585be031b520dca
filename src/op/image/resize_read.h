/* resize_read.h - what a Resize or Upsample node asks for, read from its attributes and inputs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_RESIZE_READ_H
#define MP_OP_RESIZE_READ_H

#include "kernel/image/sample_args.h"
#include "op/core/op.h"

typedef enum mp_resize_mode { MP_RESIZE_NEAREST, MP_RESIZE_LINEAR, MP_RESIZE_CUBIC } mp_resize_mode;

/* Where a version of the operator has its inputs; 0 for none. */
typedef struct mp_resize_form {
    bool old_rules; /* of Upsample and Resize 10: asymmetric, no choice of rounding */
    int roi, scales, sizes;
} mp_resize_form;

typedef struct mp_resize {
    mp_resize_mode mode;
    bool antialias, exclude_outside, extrapolate;
    int32_t transform, nearest; /* K_HALF_PIXEL ..., K_FLOOR ... */
    float cubic_a, outside;
    mp_shape out;
    float scale[MP_RANK_MAX];
    float start[MP_RANK_MAX], end[MP_RANK_MAX]; /* the region to crop */
} mp_resize;

/* Reads everything and settles the output shape. Fails: INVALID_ARGUMENT. */
mp_status mp_resize_read(const mp_planner *p, const mp_resize_form *form, mp_resize *out);

#endif
