/* recurrent_group.h - all steps of LSTM, GRU and RNN in one launch, by groups of blocks that keep R
 * near.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_RECURRENT_GROUP_H
#define MP_OP_RECURRENT_GROUP_H

#include "op/recurrent/recurrent_steps.h"

typedef struct mp_recurrent_group {
    mp_recurrent_group_args args; /* pointers unset */
    bool kept;                    /* R stays in registers */
    uint32_t lanes;               /* of a block */
    size_t shared_bytes;
} mp_recurrent_group;

/* Whether this is the way for these shapes on this device, and how it goes. */
bool mp_recurrent_group_choose(const mp_planner *p, const mp_recurrent *r, mp_recurrent_group *out);

mp_status mp_recurrent_group_plan(mp_planner *p, const mp_recurrent *r,
                                  const mp_recurrent_group *group, mp_ref projected);

#endif
