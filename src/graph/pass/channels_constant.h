/* channels_constant.h - constants that are read beside images with their channels last.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CHANNELS_CONSTANT_H
#define MP_GRAPH_PASS_CHANNELS_CONSTANT_H

#include "graph/pass/channels_twin.h"

/* Whether the value is one element, of no more dimensions than an image has, so that a result with
 * it has no more. */
bool mp_is_one_element(const mp_layout *l, int32_t value, int rank);
/* Whether the value is a constant of no more dimensions than that, whose bytes are here. */
bool mp_is_twin_constant(const mp_layout *l, int32_t value, int rank);
/* The twin of such a constant, which has all dimensions: itself in the other order. */
mp_status mp_twin_constant(mp_layout *l, int32_t value, int rank, int32_t *out);

#endif
