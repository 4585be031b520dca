/* sort_steps.h - sorting long rows, as steps for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SORT_STEPS_H
#define MP_OP_SORT_STEPS_H

#include "kernel/rows/sort_args.h"
#include "op/core/plan.h"

/* Rows of entries of elements' keys, of which the low `bits`, a multiple of 8, may differ. */
typedef struct mp_sort_list {
    int64_t rows, columns;
    int bits;
    bool words;     /* as mp_sort_in_words says, or false */
    mp_ref entries; /* scratch memory */
} mp_sort_list;

/* Whether words do for keys of `bits` and places below `columns`, which halves what is moved. */
bool mp_sort_in_words(int bits, int64_t columns);

/* Scratch memory for `count` pairs. Fails: INVALID_ARGUMENT where that is too large. */
mp_status mp_plan_pair_memory(mp_planner *p, int64_t count, mp_ref *out);

/* Scratch memory for the list. Fails: INVALID_ARGUMENT where that is too large. */
mp_status mp_plan_sort_memory(mp_planner *p, mp_sort_list *list);

/* Entries of each element of `x`, whose rows are contiguous, into the list's memory. */
mp_status mp_plan_entries(mp_planner *p, mp_dtype dtype, k_order order, mp_ref x,
                          const mp_sort_list *list);

/* `rows` rows of `length` counts become the sums of those before, within the row; `totals` is
 * MP_NOWHERE or takes the sum of each row. */
mp_status mp_plan_scan_counts(mp_planner *p, mp_ref counts, int64_t rows, int64_t length,
                              mp_ref totals);

/* Sorts each row by the keys; equal ones keep their order. The list is in other scratch memory
 * then. */
mp_status mp_plan_sort(mp_planner *p, mp_sort_list *list);

#endif
