/* pool_trace.c - the public functions that record what a pool does, and write it to files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/handle.h"
#include "pool/pool_argument.h"
#include "pool/pool_handle.h"
#include "pool/trace/trace_stack.h"

#include <stdlib.h>

mp_status mp_pool_trace(mp_pool *pool, size_t capacity) {
    TAKE_ARENA(a, pool);
    return mp__trace_start(a->trace, capacity);
}

mp_status mp__pool_part_set(mp_pool *pool, mp_addr addr, size_t size, mp_label label) {
    mp_block_info block;
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(label <= UINT16_MAX, "label is not one that mp_label_make returned");
    MP_TRY(a->mode->find(a, addr, &block));
    return mp__trace_part_set(a->trace, addr, size, (uint16_t)label);
}

void mp__pool_part_drop(mp_pool *pool, mp_addr addr) {
    const arena *a = mp__handle_arena(pool);
    if (a != NULL && !process_is_forked()) {
        mp__trace_part_drop(a->trace, addr);
    }
}

mp_status mp__pool_parts(mp_pool *pool, mp_layout *layout) {
    TAKE_ARENA(a, pool);
    return mp__trace_parts(a->trace, layout);
}

mp_status mp__pool_trace_stacks(mp_pool *pool, size_t depth) {
    TAKE_ARENA(a, pool);
    if (depth > MP_STACK_FRAMES_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "stacks of %zu frames; %d is the most", depth,
                       MP_STACK_FRAMES_MAX);
    }
    mp__trace_set_depth(a->trace, depth);
    return MP_OK;
}

mp_status mp__pool_layout(mp_pool *pool, mp_layout *out) {
    TAKE_ARENA(a, pool);
    return a->mode->layout(a, out);
}

mp_status mp_pool_trace_write(mp_pool *pool, mp_trace_format format, const char *path) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(path != NULL, "path is NULL");
    mp_layout layout = {.regions = NULL};
    mp_trace_event *events = NULL;
    size_t count = 0;
    uint64_t dropped = 0;
    MP_TRY(mp__pool_layout(pool, &layout));
    mp_status status = mp__trace_copy(a->trace, &events, &count, &dropped);
    if (status == MP_OK) {
        status = mp__pool_parts(pool, &layout);
    }
    if (status == MP_OK) {
        status = mp__trace_write(format, path, events, count, dropped, &layout);
    }
    free(events);
    mp__layout_free(&layout);
    return status;
}
