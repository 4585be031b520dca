/* nbits_steps.h - products with packed weights as steps of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_NBITS_STEPS_H
#define MP_OP_NBITS_STEPS_H

#include "kernel/quantize/quantize_args.h"
#include "op/quantize/quantize_steps.h"
#include "op/rows/before_steps.h"

/* Weights of one matrix or several, and where what they are made of lies; MP_NOWHERE for what they
 * do not have. */
typedef struct mp_packed {
    k_nbits w;
    mp_dtype type; /* of A and the result: MP_F32, MP_F16, MP_BF16 */
    mp_ref weight, scale, zero, group, values, factor;
    bool
        gated; /* the result is an activation of its left half times its right half, each rounded */
    int32_t gate; /* K_GATE_... */
    float alpha;
} mp_packed;

/* Sets the length of blocks along k, and how many there are. Fails: UNSUPPORTED for a length that
 * pieces of weights do not fit into. */
mp_status mp_packed_block(k_nbits *w, int64_t block);

/* Weights are integers in whole bytes, in blocks of a power of two: of w, whose n and k are there,
 * sets what follows from these. Fails: UNSUPPORTED for other bits than 2, 4 and 8; INVALID_ARGUMENT
 * for blocks that MatMulNBits does not have. */
mp_status mp_packed_integers(k_nbits *w, mp_dtype type, int64_t bits, int64_t block);

/* Weights are codes of `narrow`, a float type of 4 or 8 bits; or places among `count` values, a
 * power of two. */
mp_status mp_packed_codes_of(mp_planner *p, mp_packed *packed, mp_dtype narrow);
mp_status mp_packed_codes(mp_planner *p, mp_packed *packed, const float *values, int count);

/* The weights as numbers of `type`, [n][k]. */
mp_status mp_plan_unpack(mp_planner *p, const mp_packed *packed, mp_ref out);

/* out[m][n] = a[m][k] . weights, plus the bias of each column, which may be MP_NOWHERE; or of that
 * out[m][n / 2]. */
mp_status mp_plan_packed_product(mp_planner *p, const mp_packed *packed, mp_ref a, int64_t m,
                                 mp_ref bias, mp_ref out);

/* The same of rows that are made before. */
mp_status mp_plan_made_packed(mp_planner *p, const mp_packed *packed, const mp_before *before,
                              int64_t m, mp_ref bias, mp_ref out);

/* Checks that input `i` has `columns` times `each` values, if there is one; -1 is none. `what` it
 * is, for the message. */
mp_status mp_packed_count(const mp_planner *p, int i, const char *what, int64_t columns,
                          int64_t each);

#endif
