/* report.c - what an arena tells its trace. SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena.h"

void mp__report_block(const arena *a, const chunk *c, const lane *l, mp_trace_action action) {
    if (mp__trace_on(a->trace)) {
        mp__trace_add(a->trace, (mp_trace_event){.addr = chunk_addr(c), /* as in the layout */
                                                 .size = chunk_bytes(c),
                                                 .requested = c->requested,
                                                 .stream = l->native,
                                                 .total = arena_total(a),
                                                 .action = (uint8_t)action,
                                                 .client = c->client});
    }
}

void mp__report_memory(const arena *a, mp_addr addr, size_t size, mp_trace_action action) {
    if (mp__trace_on(a->trace)) {
        mp__trace_add(a->trace, (mp_trace_event){.addr = addr,
                                                 .size = size,
                                                 .stream = MP_NO_STREAM,
                                                 .total = arena_total(a),
                                                 .action = (uint8_t)action,
                                                 .pages = a->expandable});
    }
}
