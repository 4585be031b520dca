/* report.c - what an arena tells its trace and the log.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/report.h"

#include "base/log.h"

#include <inttypes.h>

/* Who allocates is in no lock, and so may look at the stack of its thread. */
void mp__report_block_now(const arena *a, const chunk *c, const stream_heap *heap,
                          mp_trace_action action) {
    mp__trace_add(a->trace, (mp_trace_event){
                                .addr = chunk_addr(c), /* as in the layout */
                                .size = chunk_bytes(c),
                                .requested = c->requested,
                                .stream = heap->native,
                                .total = arena_total(a),
                                .action = (uint8_t)action,
                                .client = c->client,
                                .label = chunk_label(c),
                                .stack = action == MP_TRACE_ALLOC ? mp__trace_stack(a->trace) : 0});
}

static void log_memory(const arena *a, mp_addr addr, size_t size, mp_trace_action action) {
    if (mp_log_enabled(a->expandable ? MP_LOG_DEBUG : MP_LOG_INFO)) { /* pages come and go often */
        mp__log(a->expandable ? MP_LOG_DEBUG : MP_LOG_INFO, __FILE__, __LINE__,
                "the pool of %s memory of device %d %s %zu bytes at 0x%" PRIxPTR
                ", and has %zu bytes now",
                source_memory_name(&a->source), a->device->ordinal,
                action == MP_TRACE_GROW ? "grew by" : "gave back", size, addr, arena_total(a));
    }
}

void mp__report_options(const arena *a) {
    const arena_options *o = &a->options;
    char limit[32];
    mp__arena_options_print_limit(o, limit);
    MP_LOG(INFO,
           "a pool of %s memory of device %d (%s)%s%s: extend_strategy %s, "
           "initial_chunk_size_bytes %zu, max_dead_bytes_per_chunk %zu, "
           "initial_growth_chunk_size_bytes %zu, max_power_of_two_extend_bytes %zu, max_mem %s, "
           "stream_cache_bytes %zu%s%s%s%s",
           source_memory_name(&a->source), a->device->ordinal, a->device->info.name,
           a->source.is_external ? " from an external manager" : "",
           a->expandable ? " with expandable regions" : "",
           o->extend_strategy == EXTEND_AS_REQUESTED ? "kSameAsRequested" : "kNextPowerOfTwo",
           o->initial_chunk_size_bytes, o->max_dead_bytes_per_chunk,
           o->initial_growth_chunk_size_bytes, o->max_power_of_two_extend_bytes, limit,
           o->stream_cache_bytes, o->ipc ? ", ipc" : "", o->guard ? ", guard" : "",
           o->poison ? ", poison" : "", o->check ? ", check" : "");
}

void mp__report_memory(const arena *a, mp_addr addr, size_t size, mp_trace_action action) {
    log_memory(a, addr, size, action);
    if (mp__trace_on(a->trace)) {
        mp__trace_add(a->trace, (mp_trace_event){.addr = addr,
                                                 .size = size,
                                                 .stream = MP_NO_STREAM,
                                                 .total = arena_total(a),
                                                 .action = (uint8_t)action,
                                                 .pages = a->expandable,
                                                 .label = mp__label_now()});
    }
}
