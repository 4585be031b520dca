/* moe_steps.h - a mixture of experts as steps of an operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_MOE_STEPS_H
#define MP_OP_MOE_STEPS_H

#include "kernel/quantize/moe_args.h"
#include "op/quantize/nbits_steps.h"

/* A matrix for each expert. */
typedef struct mp_expert_matrix {
    int32_t kind; /* K_NBITS_... */
    mp_packed packed;
    mp_ref bias; /* of each column, or MP_NOWHERE */
} mp_expert_matrix;

typedef struct mp_moe {
    mp_dtype type;
    int64_t rows, hidden, inter, experts, k;
    bool normalize, sparse;
    mp_ref mix; /* other weights than the scores give, or MP_NOWHERE */
    k_moe_between between;
    bool gated; /* there is a third product */
    mp_expert_matrix first, second, third;
} mp_moe;

/* All but the matrices, from inputs 0 and 1 and the attributes that both operators have. Fails:
 * INVALID_ARGUMENT. */
mp_status mp_moe_read(const mp_planner *p, mp_moe *out);

/* Whether there is a third product; where and how SwiGLU wants one. `i`: the input of its weights.
 * Fails: INVALID_ARGUMENT. */
mp_status mp_moe_gate(const mp_planner *p, mp_moe *m, int i);

/* How rows take their experts; the scores themselves are to be bound. */
k_moe_scores mp_moe_scores_of(const mp_moe *m);

/* Columns of the first product. */
static inline int64_t mp_moe_wide(const mp_moe *m) {
    return m->between.halves != K_MOE_APART ? 2 * m->inter : m->inter;
}

/* Declares output 0 and lists the steps. */
mp_status mp_plan_moe(mp_planner *p, const mp_moe *m);

#endif
