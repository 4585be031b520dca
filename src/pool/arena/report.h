/* report.h - what an arena tells its trace and the log.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_REPORT_H
#define MP_POOL_REPORT_H

#include "pool/arena/arena.h"

/* A line of the log with the options that a new pool has settled on. */
void mp__report_options(const arena *a);
/* Events for the trace, where it is on; of memory a line of the log too. */
void mp__report_block_now(const arena *a, const chunk *c, const stream_heap *heap,
                          mp_trace_action action);
static inline void mp__report_block(const arena *a, const chunk *c, const stream_heap *heap,
                                    mp_trace_action action) {
    if (__builtin_expect(mp__trace_on(a->trace), false)) {
        mp__report_block_now(a, c, heap, action);
    }
}
void mp__report_memory(const arena *a, mp_addr addr, size_t size, mp_trace_action action);

#endif
