/* fused_writer.h - what the files share that write the text of a fused kernel.
 *
 *     fused_writer.c      functions, casts, terms, packs, addresses
 *     fused_source.c      a kernel that computes each element by itself
 *     fused_row_source.c  a kernel that computes rows
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FUSED_WRITER_H
#define MP_OP_FUSED_WRITER_H

#include "op/fused/fused_source.h"

#include <stdio.h>

typedef struct mp_fused_writer {
    FILE *to;
    const mp_expression *e;
    const mp_reading *readings;
} mp_fused_writer;

/* "#include" lines of `headers`, then all that is written outside of the kernel for its terms. */
void mp__fused_write_head(const mp_fused_writer *w, const char *headers);
/* in0, ..., out0, ..., one element for all (one0), and by how much the addresses of whole tensors
 * miss packs (skew). */
void mp__fused_write_addresses(const mp_fused_writer *w);
/* "    const kc_f32 t3 = ...;" */
void mp__fused_write_term(const mp_fused_writer *w, int t);
/* How many inputs are views of the walk. */
int mp__fused_views(const mp_fused_writer *w);
/* "x3"; gives `name`. */
const char *mp__fused_register(int reg, char name[16]);

/* A kernel for rows, all of it. */
void mp__fused_write_rows(const mp_fused_writer *w);

#endif
