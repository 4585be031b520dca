/* host_profile.c - what the emulated device did, as a profiler hears it from a GPU.
 *
 * An item keeps the mark of the thread that queued it, and an item of a graph that of the thread
 * that captured it; whoever runs the item times it. Begin and end are those of the work itself, so
 * a queue of threads or of the adversary shows work where it really was.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "device/host/host_work.h"

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

void mp__host_profile_mark(host_item *item) {
    item->tag = mp__profile_tag();
    item->correlation = item->tag != 0 ? mp__profile_correlation() : 0;
}

/* ---- telling ---- */

void mp__host_profile_tell(host_device *host, const host_queue *queue, const host_item *item,
                           const host_item *replay, int64_t begin_ns) {
    const host_item *call = replay != NULL ? replay : item;
    mp_profile_record record = {
        .begin_ns = begin_ns,
        .end_ns = mp_clock_ns(),
        .tag = call->tag,
        .node_tag = item->tag,
        .correlation = call->correlation,
        .stream = queue->number,
        .device = host->base.ordinal,
        .in_graph = replay != NULL,
    };
    if (call->tag != 0 && item->kind->describe != NULL) {
        item->kind->describe(host, item, &record);
        mp__profile_add(&record);
    }
}
