/* gather_idle.c - free memory brought together: what has become idle joins heap 0, shelves are
 * emptied, and the device is waited for. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/gather_idle.h"

#include "pool/arena/coalesce.h"
#include "pool/arena/order.h"
#include "pool/arena/retired.h"
#include "pool/arena/shelf.h"

static void gather_heap(arena *a, stream_heap *heap) {
    for (int class = mp__bins_next(&heap->bins, -1); class >= 0;
         class = mp__bins_next(&heap->bins, class)) {
        for (chunk *c = heap->bins.head[class], *next = NULL; c != NULL; c = next) {
            next = c->link;
            if (c->epoch <= heap->reached) {
                mp__bins_remove(&heap->bins, c);
                chunk_set_heap(c, 0);
                mp__chunk_bin(a, c);
            }
        }
    }
}

void mp__arena_gather_idle(arena *a) {
    for (size_t i = 1; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        if (heap->bins.count > 0 && !stream_heap_is_graphs(heap)) {
            gather_heap(a, heap);
        }
    }
}

void mp__arena_gather(arena *a) {
    for (size_t i = 0; i < stream_heap_count_of(a); i++) {
        mp__shelf_clear(a, stream_heap_at(a, (unsigned)i), true);
    }
    mp__order_poll(a);
    mp__arena_gather_idle(a);
}

mp_status mp__arena_quiesce(arena *a) {
    if (a->captures_open > 0) {
        return MP_FAIL(BUSY, "the device cannot be waited for while a stream is being captured");
    }
    /* First: what is freed while the device is waited for is in the next epoch. */
    for (size_t i = 1; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        heap->ending = mp__order_end_epoch(heap);
    }
    MP_TRY(a->device->ops->synchronize(a->device));
    for (size_t i = 1; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        if (!heap->is_capture) {
            heap->reached = heap->ending;
        }
        if (heap->ended && !heap->gone) {
            mp__stream_heap_end(a, heap);
        }
    }
    mp__order_collect(a, false);
    mp__arena_gather(a);
    mp__reserve_give_back(a, false);
    return MP_OK;
}
