/* heads_part.h - heads that lie within longer rows, for operators that read them there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_HEADS_PART_H
#define MP_OP_HEADS_PART_H

#include "op/attention/attention_steps.h"

/* Of input `i`, [batch, rows, elements], the heads that attribute `name` names: `part` is its first
 * element, heads, size of one, elements from one to the next. `dim`: batch, heads, rows, size.
 * Fails: INVALID_ARGUMENT where they do not lie within the rows. */
mp_status mp_read_heads_part(const mp_planner *p, int i, const char *name, const mp_attr *part,
                             mp_heads *out, int64_t dim[4]);

#endif
