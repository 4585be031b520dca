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
    int64_t past;  /* of K_POSITION_PAST */
    mp_ref weight; /* [head_size], if heads are normalised before, as by RMSNormalization */
    float epsilon;
    float base; /* above 0: there are no caches, and pair i turns by position / base^(i / half) */
} mp_rotary;

mp_status mp_plan_rotary(mp_planner *p, const mp_rotary *r);

/* Q [0] and K [1] of new tokens, which are rotated, and V [2], in one launch; `heads` is 0 for what
 * is not there. */
typedef struct mp_rotary_append {
    mp_rotary rotary; /* without x, out, heads and weight */
    int64_t heads[3];
    mp_heads x[3], out[3];
    mp_ref weight[2]; /* of Q and K: as of mp_rotary */
    float epsilon[2];
    bool appends[3]; /* out is a cache: rows go behind those that lengths say are there */
    mp_ref lengths;  /* int32, of each entry less one; MP_NOWHERE: past_rows and the new ones */
    bool whole;      /* they are not less one */
    bool placed;     /* as in mp_rotary_append_args */
    int64_t present_rows; /* of these caches */
    bool grows;           /* they are made of those of the past: the rows that are not new, too */
    mp_ref past[2];       /* keys, values; MP_NOWHERE where there are no rows */
    int64_t past_rows;
} mp_rotary_append;

/* Whether there is a kernel for that. */
bool mp_can_rotary_append(const mp_planner *p, const mp_rotary_append *a);
mp_status mp_plan_rotary_append(mp_planner *p, const mp_rotary_append *a);

#endif
