/* concat_split.h - what tensors side by side are like.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CONCAT_SPLIT_H
#define MP_OP_CONCAT_SPLIT_H

#include "op/core/plan.h"

/* The shape of all inputs side by side along `axis` of the first. Fails: INVALID_ARGUMENT. */
mp_status mp_joined_shape(const mp_planner *p, int axis, mp_shape *shape);

#endif
