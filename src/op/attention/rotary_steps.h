/* rotary_steps.h - rotary embedding as a step, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROTARY_STEPS_H
#define MP_OP_ROTARY_STEPS_H

#include "op/attention/attention_steps.h"

typedef struct mp_rotary {
    mp_dtype type;
    mp_heads x, out;
    int64_t batch, heads, rows, head_size;
    int64_t rotated; /* elements of a head that are rotated: even, at most head_size */
    mp_ref cosine, sine;
    int64_t cache_rows;
    int64_t cache_stride[3]; /* of K_POSITION_STRIDED: batch, head, row */
    mp_ref positions;
    k_position_kind position_kind;
    bool prompt, interleaved;
    bool axes_mixed; /* of K_POSITION_AXES, as in mp_rotary_args */
    int32_t axis_end[2];
    bool scaled; /* what is rotated is multiplied by `scale` */
    float scale;
    int64_t past; /* of K_POSITION_PAST */
    float base;   /* above 0: there are no caches, and pair i turns by position / base^(i / half) */
} mp_rotary;

mp_status mp_plan_rotary(mp_planner *p, const mp_rotary *r);

#endif
