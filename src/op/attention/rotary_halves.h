/* rotary_halves.h - heads that are rotated by halves, by cosines and sines that are inputs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROTARY_HALVES_H
#define MP_OP_ROTARY_HALVES_H

#include "op/attention/rotary_steps.h"

/* Input `x` of such an operator, and the attributes that say how heads lie in it. */
typedef struct mp_halves_input {
    int x, cosine, sine;
    const char *part, *turned;
} mp_halves_input;

/* What is to be rotated; `y`: the shape of the result, [batch, heads, rows, size], to whose place
 * `out` of `*rotary` is to be set. Fails: INVALID_ARGUMENT where shapes do not fit. */
mp_status mp_read_halves(const mp_planner *p, const mp_halves_input *from, mp_rotary *rotary,
                         mp_shape *y);

#endif
