/* fused_source.h - an expression as the text of a kernel, for NVRTC.
 *
 * The text depends on the terms and on how each input is read, not on sizes and not on numbers, so
 * that a new shape seldom needs a new kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FUSED_SOURCE_H
#define MP_OP_FUSED_SOURCE_H

#include "op/fused/expression.h"

/* The type of the largest elements that a lane reads or writes packs of. */
mp_dtype mp_fused_widest(const mp_expression *e, const mp_reading *readings);

/* What a lane has of a row at a time. */
typedef struct mp_row_packs {
    int pack;  /* elements of a pack */
    int packs; /* 0 where rows would have to be kept: there are too many values for registers */
} mp_row_packs;

/* Of an expression with reductions, where rows are kept or long (`is_long`). */
mp_row_packs mp_fused_row_packs(const mp_expression *e, const mp_reading *readings);

/* How many elements of a row a lane keeps, whether or not rows are long. A longer one is. */
int64_t mp_fused_row_keep(const mp_expression *e, const mp_reading *readings);

/* The text of a kernel named `K_NAME`. Gives: `*out`, until free. Fails: OUT_OF_MEMORY (host). */
mp_status mp_fused_source(const mp_expression *e, const mp_reading *readings, char **out);

#endif
