/* row_pass.h - an expression with reductions, as passes over a row.
 *
 * A reduction is known after the pass that all before it have led to; what is of rows and needs no
 * other reduction is computed right behind that. The last pass makes the outputs that have
 * elements: no earlier one writes, since an output may lie where an input does that is read again.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROW_PASS_H
#define MP_OP_ROW_PASS_H

#include "op/fused/expression.h"

typedef struct mp_row_passes {
    int reducing;                    /* passes that end with reductions */
    int count;                       /* of all: one more, if an output has elements */
    int16_t level[MP_REGISTERS_MAX]; /* by register: passes that have to be over */
} mp_row_passes;

void mp_row_passes_find(const mp_expression *e, mp_row_passes *out);

/* What pass `pass` computes for each element, or reads of it, and its reductions. `known`: what is
 * there already; NULL for nothing. */
void mp_row_pass_needs(const mp_expression *e, const mp_row_passes *passes, int pass,
                       const bool *known, bool needed[MP_REGISTERS_MAX]);

/* Whether the pass ends with that reduction. */
static inline bool mp_row_pass_ends(const mp_expression *e, const mp_row_passes *passes, int pass,
                                    int t) {
    return e->terms[t].kind == MP_TERM_REDUCTION && passes->level[MP_FIRST_TERM + t] == pass + 1;
}

/* Whether term `t` is one of a row, but no reduction, and is computed once `pass` passes are over.
 */
static inline bool mp_row_pass_follows(const mp_expression *e, const mp_row_passes *passes,
                                       int pass, int t) {
    return e->terms[t].is_row && e->terms[t].kind != MP_TERM_REDUCTION &&
           passes->level[MP_FIRST_TERM + t] == pass;
}

#endif
