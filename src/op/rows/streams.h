/* streams.h - input 0 as rows of some streams: they have a dimension of their own before the last
 * one, or lie flat in the last one and the attribute num_branches says how many.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_STREAMS_H
#define MP_OP_STREAMS_H

#include "op/core/op.h"

typedef struct mp_streams {
    int lead; /* dimensions before the streams */
    bool flat;
    int64_t rows, streams, columns;
} mp_streams;

static inline mp_status mp_streams_read(const mp_planner *p, mp_streams *out) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t branches = mp_node_int(p->node, "num_branches", 0);
    char text[MP_SHAPE_TEXT];
    const bool flat = branches != 0;
    if (branches < 0 || x->rank < (flat ? 1 : 2) || (flat && x->dim[x->rank - 1] % branches != 0)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "an input of shape %s with num_branches %lld: it needs a dimension of "
                       "streams before the last one, or a last one that num_branches divides",
                       mp_shape_text(x, text), (long long)branches);
    }
    const int lead = x->rank - (flat ? 1 : 2);
    *out = (mp_streams){.lead = lead,
                        .flat = flat,
                        .rows = mp_shape_span(x, 0, lead),
                        .streams = flat ? branches : x->dim[lead],
                        .columns = x->dim[x->rank - 1] / (flat ? branches : 1)};
    return MP_OK;
}

#endif
