/* topk_few_steps.h - the first elements of rows, where few are asked for of many.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_TOPK_FEW_STEPS_H
#define MP_OP_TOPK_FEW_STEPS_H

#include "op/rows/topk_steps.h"

/* Whether k is small enough beside a block's lanes, and rows are long enough. */
bool mp_topk_few_takes(const mp_topk *t);

/* In order, of contiguous rows. */
mp_status mp_plan_topk_few(mp_planner *p, const mp_topk *t);

#endif
