/* budget.h - how much memory a session's nodes may need on the device, where its option
 * partition_memory_limit says so.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_BUDGET_H
#define MP_EP_BUDGET_H

#include "ep/placement/name_set.h"
#include "ep/session/plugin.h"

/* What the nodes taken so far need: constant weights and outputs, each value once, however often
 * ONNX Runtime asks. Zeroed at first. */
typedef struct mp_budget {
    mp_name_set counted;
    uint64_t used; /* bytes */
} mp_budget;

/* Counts what `node`, of the row `op`, needs beyond what is counted, unless the limit would be
 * passed: then `*fits` is false and nothing is counted. A dimension that is not known counts as
 * one. With `must`, it is counted in any case. */
mp_status mp__budget_take(mp_budget *budget, uint64_t limit, const mp_op *op, const OrtNode *node,
                          bool must, bool *fits);

#endif
