/* try_alloc.c - the short way over the shelf of a stream, for callers that must not wait.
 *
 * An interpreter with a lock of its own calls these under it. The arena's lock must not be waited
 * for then: its holder may wait for the device, and the device for a function of the interpreter.
 * A heap's lock and the trace's are held for some dozen instructions only.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/try_alloc.h"

#include "pool/arena/arena.h"
#include "pool/arena/report.h"
#include "pool/arena/shelf.h"
#include "pool/arena/usage.h"

/* Whether blocks of this arena are more than memory: then the device has a part in each of them. */
static bool is_guarded(const arena *a) {
    return a->border > 0 || a->options.poison;
}

/* A chunk of the shelf, allocated and counted; NULL if that takes more. Under the heap's lock. */
static chunk *take_kept(const arena *a, stream_heap *heap, uint32_t units, size_t size,
                        uint8_t client) {
    chunk *c = mp__shelf_take(heap, units);
    if (c == NULL) {
        return NULL;
    }
    chunk_lend(c, heap->index, size, client);
    if (mp__usage_add_fast(heap, c, CHUNK_LENT)) {
        return c;
    }
    (void)mp__shelf_put(a, heap, c); /* it was not too full with it before */
    return NULL;
}

mp_status mp__arena_try_alloc(arena *a, size_t size, void *native, uint8_t client, mp_addr *out) {
    uint32_t units = 0;
    size += size == 0;
    if (is_guarded(a) || !units_of(a, size, &units) || units > SHELF_UNITS_MAX) {
        return MP_BUSY;
    }
    stream_heap *heap = mp__stream_heap_try(a, mp__stream_heap_key(a, native));
    if (heap == NULL) {
        return MP_BUSY;
    }
    chunk *c = take_kept(a, heap, units, size, client);
    spin_unlock(&heap->lock);
    if (c == NULL) {
        return MP_BUSY;
    }
    mp__report_block(a, c, heap, MP_TRACE_ALLOC);
    arena_note(a, chunk_addr(c), chunk_bytes(c), true);
    *out = chunk_addr(c);
    return MP_OK;
}

/* Whether the chunk can go to the shelf of its heap and do nothing else. Under the heap's lock. */
static bool is_short(const arena *a, const stream_heap *heap, const chunk *c, void *native) {
    return !heap->detour &&
           (native == MP_SAME_STREAM || stream_heap_is_for(heap, mp__stream_heap_key(a, native))) &&
           chunk_state_of(c) == CHUNK_LENT && c->uses == NULL && c->units <= SHELF_UNITS_MAX &&
           heap->shelf_bytes + chunk_bytes(c) <= a->options.stream_cache_bytes;
}

mp_status mp__arena_try_free(arena *a, mp_addr addr, void *native) {
    stream_heap *heap = NULL;
    chunk *c = is_guarded(a) ? NULL : mp__arena_try_block(a, addr, &heap);
    if (c == NULL) {
        return MP_BUSY;
    }
    const bool possible = is_short(a, heap, c, native);
    if (possible) {
        mp__usage_remove(heap, c);
        mp__report_block(a, c, heap, MP_TRACE_FREE);
        if (!heap->is_capture) {
            arena_note(a, chunk_addr(c), chunk_bytes(c), false);
        }
        (void)mp__shelf_put(a, heap, c); /* there is room for it */
    }
    spin_unlock(&heap->lock);
    return possible ? MP_OK : MP_BUSY;
}
