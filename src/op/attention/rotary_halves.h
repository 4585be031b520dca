/* rotary_halves.h - heads that are rotated by halves, by cosines and sines that are inputs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROTARY_HALVES_H
#define MP_OP_ROTARY_HALVES_H

#include "op/attention/rotary_steps.h"

/* Input `x` of such an operator, and the attributes that say how heads lie in it. `weight`, if the
 * model has it, is what heads are normalised by first. */
typedef struct mp_halves_input {
    int x, cosine, sine, weight;
    const char *part, *turned, *epsilon;
} mp_halves_input;

/* What is to be rotated; `y`: the shape of the result, [batch, heads, rows, size], to whose place
 * `out` of `*rotary` is to be set. Fails: INVALID_ARGUMENT where shapes do not fit. */
mp_status mp_read_halves(const mp_planner *p, const mp_halves_input *from, mp_rotary *rotary,
                         mp_shape *y);

/* Whether the two share cosines, tokens and sizes, so that one launch may do both. */
bool mp_halves_alike(const mp_rotary *q, const mp_rotary *k);

#endif
