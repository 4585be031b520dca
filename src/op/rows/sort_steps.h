/* sort_steps.h - sorting long rows, as steps for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SORT_STEPS_H
#define MP_OP_SORT_STEPS_H

#include "kernel/rows/sort_args.h"
#include "op/core/plan.h"

/* Scratch memory for `count` pairs. Fails: INVALID_ARGUMENT where that is too large. */
mp_status mp_plan_pair_memory(mp_planner *p, int64_t count, mp_ref *out);

/* Pairs of each element of `x`: `rows` contiguous rows of `columns`. */
mp_status mp_plan_pairs(mp_planner *p, mp_dtype dtype, k_order order, mp_ref x, int64_t rows,
                        int64_t columns, mp_ref pairs);

/* `rows` rows of `length` counts become the sums of those before, within the row. */
mp_status mp_plan_scan_counts(mp_planner *p, mp_ref counts, int64_t rows, int64_t length);

/* Sorts each row of pairs by the low `bits` of their keys, a multiple of 8; equal keys keep their
 * order. `*pairs` is where they are, and then where the sorted ones are: other scratch memory. */
mp_status mp_plan_sort_pairs(mp_planner *p, int64_t rows, int64_t columns, int bits, mp_ref *pairs);

#endif
