/* recurrent_mma.h - all steps of LSTM, GRU and RNN in one cooperative launch, with products by
 * tensor cores.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_RECURRENT_MMA_H
#define MP_OP_RECURRENT_MMA_H

#include "op/recurrent/recurrent_group.h"

typedef struct mp_recurrent_mma {
    mp_recurrent_mma_args args; /* pointers unset */
    uint32_t lanes;             /* of a block */
    size_t shared_bytes;
} mp_recurrent_mma;

/* Whether this is the way for these shapes on this device, and how it goes. `other`: what groups
 * without tensor cores would do, or NULL where they do not. */
bool mp_recurrent_mma_choose(const mp_planner *p, const mp_recurrent *r,
                             const mp_recurrent_group *other, mp_recurrent_mma *out);

mp_status mp_recurrent_mma_plan(mp_planner *p, const mp_recurrent *r, const mp_recurrent_mma *mma,
                                mp_ref projected);

#endif
