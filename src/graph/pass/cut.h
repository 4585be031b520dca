/* cut.h - a Slice along one axis, in steps of one, halves, and every second element.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CUT_H
#define MP_GRAPH_PASS_CUT_H

#include "graph/graph.h"

typedef struct mp_cut {
    int32_t of;         /* the value that is cut */
    int64_t axis;       /* from 0 on */
    int64_t start, end; /* as they are given: from the end where negative, and beyond it */
} mp_cut;

/* Whether a Slice of numbers that are known, along one axis, makes `value`. */
bool mp_cut_read(const mp_graph *graph, int32_t value, mp_cut *out);

/* The same of a Split, too. */
bool mp_cut_read_piece(const mp_graph *graph, int32_t value, mp_cut *out);

/* Whether `value` is the first or second half of x's last dimension, which is `size` long, by a
 * Slice or a Split. */
bool mp_cut_is_half(const mp_graph *graph, int32_t value, bool second, int32_t *x, int64_t *size);

/* Whether a Slice leaves every second element of x's last dimension, which is of even length, from
 * the first one on or, with `odd`, from the second one on. */
bool mp_cut_is_every_second(const mp_graph *graph, int32_t value, bool odd, int32_t *x);

#endif
