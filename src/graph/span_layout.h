/* span_layout.h - where values lie in one block of memory, so that those which live at the same
 * time do not overlap and the block is small.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_SPAN_LAYOUT_H
#define MP_GRAPH_SPAN_LAYOUT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mp_span { /* something that needs memory from one step to another, both included */
    int32_t first, last;
    size_t bytes;  /* 0: needs none */
    size_t offset; /* set by mp_layout_spans; a multiple of MP_ALIGNMENT */
} mp_span;

/* Gives each span its offset. `*total`: bytes of the block. Fails: OUT_OF_MEMORY (host),
 * INVALID_ARGUMENT where sizes overflow. */
mp_status mp_layout_spans(mp_span *spans, size_t count, size_t *total);

#endif
