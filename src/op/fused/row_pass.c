/* row_pass.c - see row_pass.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/row_pass.h"

#include <string.h>

void mp_row_passes_find(const mp_expression *e, mp_row_passes *out) {
    memset(out, 0, sizeof *out);
    for (int t = 0; t < e->term_count; t++) {
        const mp_term *term = &e->terms[t];
        int16_t *level = &out->level[MP_FIRST_TERM + t];
        for (size_t k = 0; k < MP_COUNT_OF(term->x); k++) {
            if (term->x[k] != MP_NO_REGISTER) {
                *level = MP_MAX(*level, out->level[term->x[k]]);
            }
        }
        if (term->kind == MP_TERM_REDUCTION) {
            (*level)++;
            out->reducing = MP_MAX(out->reducing, *level);
        }
    }
    out->count = out->reducing;
    for (int i = 0; i < e->output_count; i++) {
        if (!mp_expression_is_row(e, e->outputs[i])) {
            out->count = out->reducing + 1;
        }
    }
}

static void need(const mp_expression *e, int reg, const bool *known, bool *needed) {
    if (reg != MP_NO_REGISTER && !mp_expression_is_row(e, reg) &&
        (known == NULL || !known[reg] || reg < MP_FIRST_NUMBER)) {
        needed[reg] = true;
    }
}

void mp_row_pass_needs(const mp_expression *e, const mp_row_passes *passes, int pass,
                       const bool *known, bool needed[MP_REGISTERS_MAX]) {
    memset(needed, 0, MP_REGISTERS_MAX * sizeof *needed);
    for (int i = 0; i < e->output_count && pass == passes->reducing; i++) {
        need(e, e->outputs[i], known, needed);
    }
    for (int t = e->term_count - 1; t >= 0; t--) {
        const int reg = MP_FIRST_TERM + t;
        needed[reg] = needed[reg] || mp_row_pass_ends(e, passes, pass, t);
        for (size_t k = 0; k < MP_COUNT_OF(e->terms[t].x) && needed[reg]; k++) {
            need(e, e->terms[t].x[k], known, needed);
        }
    }
}
