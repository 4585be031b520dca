/* kv_steps.h - caches of keys and values grow, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_KV_STEPS_H
#define MP_OP_KV_STEPS_H

#include "op/attention/attention_steps.h"

/* Caches of keys [0] and values [1], [batch, heads, present_rows, size] each. */
typedef struct mp_kv_append {
    mp_dtype type;
    int64_t batch, heads;
    int64_t size[2];
    mp_ref past[2];
    mp_heads fresh[2];
    mp_ref present[2];
    mp_ref lengths; /* MP_NOWHERE: the past has past_used rows everywhere */
    bool prompt;
    int64_t past_rows, fresh_rows, present_rows; /* past and present ones with the room behind */
    int64_t past_used;
    k_beams beams;   /* without `of`, which is: */
    mp_ref beams_of; /* MP_NOWHERE: each entry has its own past */
} mp_kv_append;

/* Whether all that is left, once the past is there, is to put the fresh rows to their places behind
 * what lengths say; and the step that brings the past there, which is none where it is there. */
bool mp_kv_append_is_fresh(const mp_kv_append *append);
mp_status mp_plan_kv_past(mp_planner *p, const mp_kv_append *append);

mp_status mp_plan_kv_append(mp_planner *p, const mp_kv_append *append);

#endif
