/* host_input.h - small integer lists that an operator takes as an attribute in old versions and as
 * an input on the host in new ones.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_HOST_INPUT_H
#define MP_OP_HOST_INPUT_H

#include "op/core/op.h"

/* Values of input `i` (int32 or int64, a list or a scalar) into out[0..*count). `what` names it in
 * messages. An absent input gives *count = -1. Fails: INVALID_ARGUMENT for more than `most`,
 * UNSUPPORTED for an input that the operator's row does not have in host memory. */
mp_status mp_host_ints(const mp_planner *p, int i, const char *what, int most, int64_t *out,
                       int *count);

/* The list `name`: the attribute where the node has it, otherwise input `i` (pass -1 for none).
 * Absent: *count = -1. */
mp_status mp_listed_ints(const mp_planner *p, const char *name, int i, int most, int64_t *out,
                         int *count);

/* The same for axes of a tensor of `rank`: made non-negative and set as bits of `*mask`. Absent or
 * empty: *count is -1 or 0 and the mask 0. Fails: INVALID_ARGUMENT for one that is out of range or
 * named twice. */
mp_status mp_listed_axes(const mp_planner *p, const char *name, int i, int rank, uint32_t *mask,
                         int *count);

#endif
