/* stand_in.h - an expression as the table that a kernel of kernel/fused reads: stand_in.cu, or
 * row_stand_in.cu where there are reductions.
 *
 * The first results of a model need not wait for the compiler of its fused kernels: until one is
 * ready, that kernel is launched in its place, with the same arguments.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_STAND_IN_H
#define MP_OP_STAND_IN_H

#include "kernel/fused/stand_in_args.h"
#include "op/fused/fused_source.h"

typedef struct mp_stand_in_table {
    k_stand_in_code code;
    k_stand_in_term terms[MP_TERMS_MAX];
} mp_stand_in_table;

typedef struct mp_row_stand_in_table {
    k_stand_in_code code;
    k_stand_in_rows rows;
    k_stand_in_term terms[MP_TERMS_MAX];
} mp_row_stand_in_table;

/* Writes the table of an expression without reductions; its size in bytes, or 0 where the kernel
 * cannot compute the expression: it has no doubles. */
size_t mp_stand_in_write(const mp_expression *e, const mp_reading *readings,
                         mp_stand_in_table *out);

/* The same of one with reductions: 0 also where they take too many terms in all passes. */
size_t mp_row_stand_in_write(const mp_expression *e, const mp_reading *readings,
                             mp_row_stand_in_table *out);

#endif
