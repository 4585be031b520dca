/* einsum_text.h - the equation of an Einsum, read and checked.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_EINSUM_TEXT_H
#define MP_OP_EINSUM_TEXT_H

#include "op/core/plan.h"

/* Labels: letters first, then the dimensions of an ellipsis, counted from its last one. */
enum { MP_LABEL_DOTS = 52, MP_LABELS = MP_LABEL_DOTS + MP_RANK_MAX };

/* Labels in the order of the dimensions of a tensor. */
typedef struct mp_labels {
    int count;
    int at[MP_RANK_MAX];
} mp_labels;

typedef struct mp_equation {
    int64_t dim[MP_LABELS]; /* of each label that is used; otherwise -1 */
    mp_labels out;
} mp_equation;

/* Reads the equation for the inputs of `p`. Gives: `in[i]`, the labels of each input's dimensions;
 * a label may be there twice, and a dimension of one may stand for any size. Fails:
 * INVALID_ARGUMENT for what is not an equation or does not fit the shapes. */
mp_status mp_einsum_read(const mp_planner *p, const char *text, mp_labels *in, mp_equation *out);

#endif
