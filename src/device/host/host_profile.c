/* host_profile.c - what the emulated device did, as a profiler hears it from a GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An item keeps the mark of the thread that queued it, and an item of a graph that of the thread
 * that captured it; whoever runs the item times it. Begin and end are those of the work itself, so
 * a queue of threads or of the adversary shows work where it really was. */
#include "device/host/host_internal.h"
#include "device/profile.h"

#include <stdio.h>

mp_status mp__host_profile_begin(mp_device *self) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "profile_begin"));
    (void)atomic_fetch_add(&host->profiles, 1);
    return MP_OK;
}

/* An item is told of before anybody who waits for it goes on. */
void mp__host_profile_flush(mp_device *self, const mp_profile *listener) {
    (void)self;
    (void)listener;
}

void mp__host_profile_end(mp_device *self) {
    (void)atomic_fetch_sub(&mp__host_from(self)->profiles, 1);
}

int64_t mp__host_profile_clock(mp_device *self) {
    (void)self;
    return mp_profile_now();
}

void mp__host_profile_mark(host_item *item) {
    item->tag = mp__profile_tag();
    item->correlation = item->tag != 0 ? mp__profile_correlation() : 0;
}

/* ---- telling ---- */

static bool is_on_device(host_device *host, mp_addr addr) {
    (void)pthread_mutex_lock(&host->memory_lock);
    const host_range *range = mp__host_range_find(&host->ranges, addr);
    const bool found = range != NULL && range->kind != HOST_RANGE_PINNED;
    (void)pthread_mutex_unlock(&host->memory_lock);
    return found;
}

static bool is_anywhere(host_device *host, mp_addr addr) {
    bool found = is_on_device(host, addr);
    for (host_device *other = mp__host_each(NULL); !found && other != NULL;
         other = mp__host_each(other)) {
        found = is_on_device(other, addr);
    }
    return found;
}

static const char *copy_name(host_device *host, const host_item *item) {
    const bool from = item->bytes == NULL && is_anywhere(host, item->copy.source);
    const bool to = is_anywhere(host, item->copy.target);
    return mp__profile_copy_name(from, to);
}

static void set_math(const mp_math *math, mp_profile_record *record, char name[32]) {
    const mp_dtype type = math->is_conv ? math->conv.type : math->gemm.type;
    (void)snprintf(name, 32, "%s_%s", math->is_conv ? "conv" : "gemm", mp_dtype_word(type));
    record->name = name;
    for (int i = 0; i < 3; i++) {
        record->grid[i] = record->block[i] = 1;
    }
}

static void set_grid(mp_grid grid, mp_profile_record *record) {
    const uint32_t blocks[] = {grid.blocks, grid.blocks_y != 0 ? grid.blocks_y : 1, 1};
    const uint32_t lanes[] = {grid.lanes, 1, 1};
    for (int i = 0; i < 3; i++) {
        record->grid[i] = blocks[i];
        record->block[i] = lanes[i];
    }
}

void mp__host_profile_tell(host_device *host, const host_queue *queue, const host_item *item,
                           const host_item *replay, int64_t begin_ns) {
    const host_item *call = replay != NULL ? replay : item;
    char name[32];
    mp_profile_record record = {
        .begin_ns = begin_ns,
        .end_ns = mp_profile_now(),
        .tag = call->tag,
        .node_tag = item->tag,
        .correlation = call->correlation,
        .stream = queue->number,
        .device = host->base.ordinal,
        .in_graph = replay != NULL,
    };
    switch (call->tag != 0 ? item->kind : HOST_WAIT) {
    case HOST_LAUNCH:
        record.name = item->launch.image->name;
        set_grid(item->launch.grid, &record);
        break;
    case HOST_RUN_MATH:
        set_math(item->math.math, &record, name);
        break;
    case HOST_COPY:
        record.kind = MP_PROFILE_COPY;
        record.name = copy_name(host, item);
        record.bytes = item->copy.size;
        break;
    case HOST_FILL:
        record.kind = MP_PROFILE_FILL;
        record.name = MP_PROFILE_FILL_NAME;
        record.bytes = item->fill.width * item->fill.count;
        break;
    case HOST_CALL:
    case HOST_RECORD:
    case HOST_WAIT:
    case HOST_ALLOC:
    case HOST_FREE:
    case HOST_SIGNAL:
    case HOST_AWAIT:
    case HOST_RUN_GRAPH:
        return;
    }
    mp__profile_add(&record);
}
