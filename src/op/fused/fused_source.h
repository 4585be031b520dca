/* fused_source.h - an expression as the text of a kernel, for NVRTC.
 *
 * The text depends on the terms and on how each input is read, not on sizes and not on numbers, so
 * that a new shape seldom needs a new kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FUSED_SOURCE_H
#define MP_OP_FUSED_SOURCE_H

#include "op/fused/expression.h"

typedef enum mp_reading {
    MP_READ_WHOLE, /* an element for each of the output */
    MP_READ_ONE,   /* one element for all */
    MP_READ_VIEW,  /* repeated along some dimensions: the next view of the walk */
    /* Where there are rows: */
    MP_READ_COLUMN, /* an element for each of a row, the same for all rows */
    MP_READ_ROW,    /* an element for each row */
    MP_READ_ROWS,   /* rows, of which each is that of several: the next view of the walk */
    MP_READING_END,
} mp_reading;

static inline char mp_reading_letter(mp_reading reading) {
    return "w1vcrs"[reading];
}

static inline bool mp_reading_is_view(mp_reading reading) {
    return reading == MP_READ_VIEW || reading == MP_READ_ROWS;
}

/* How input `i`, of shape `in`, is read where the expression is computed over `shape`. */
mp_reading mp_fused_reading(const mp_expression *e, int i, const mp_shape *in,
                            const mp_shape *shape);

/* The type of the largest elements that a lane reads or writes packs of. */
mp_dtype mp_fused_widest(const mp_expression *e, const mp_reading *readings);

/* How many elements of a row a lane keeps, where there are reductions; 0 where there would be more
 * values to keep than it has registers. A longer row is `is_long`. */
int64_t mp_fused_row_keep(const mp_expression *e, const mp_reading *readings);

/* The text of a kernel named `K_NAME`. Gives: `*out`, until free. Fails: OUT_OF_MEMORY (host). */
mp_status mp_fused_source(const mp_expression *e, const mp_reading *readings, char **out);

#endif
