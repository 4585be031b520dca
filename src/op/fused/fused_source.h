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
} mp_reading;

static inline char mp_reading_letter(mp_reading reading) {
    return "w1v"[reading];
}

/* The type of the largest elements that a lane reads or writes packs of. */
mp_dtype mp_fused_widest(const mp_expression *e, const mp_reading *readings);

/* The text of a kernel named `K_NAME`. Gives: `*out`, until free. Fails: OUT_OF_MEMORY (host). */
mp_status mp_fused_source(const mp_expression *e, const mp_reading *readings, char **out);

#endif
