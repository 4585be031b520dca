/* trace_format.h - what the writers of each format are given.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_FORMAT_H
#define MP_POOL_TRACE_FORMAT_H

#include "pool/trace/trace.h"
#include "pool/trace/trace_writer.h"

typedef struct mp_trace_view {
    const mp_trace_event *events; /* oldest first */
    size_t count;
    uint64_t dropped;        /* older events that are not kept */
    const mp_layout *layout; /* after the last event */
} mp_trace_view;

/* Fail with OUT_OF_MEMORY; what the file refuses is the writer's to say. */
mp_status mp__trace_snapshot(mp_writer *writer, const mp_trace_view *view);
mp_status mp__trace_csv(mp_writer *writer, const mp_trace_view *view);
mp_status mp__trace_page(mp_writer *writer, const mp_trace_view *view);

/* The page without its data, made from trace_page.html by tools/page_gen.py: what goes before the
 * data, and after it. */
extern const unsigned char mp__page_head[], mp__page_tail[];
extern const size_t mp__page_head_size, mp__page_tail_size;

#endif
