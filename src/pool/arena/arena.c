/* arena.c - allocating and freeing chunks: the short way over a shelf, the long way over the bins.
 *
 * `addresses` holds exactly the chunks that are allocated, on a shelf, or reserved.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/arena.h"

#include "base/log.h"
#include "base/nvtx.h"
#include "pool/arena/capture.h"
#include "pool/arena/coalesce.h"
#include "pool/arena/expand.h"
#include "pool/arena/gather_idle.h"
#include "pool/arena/grow.h"
#include "pool/arena/guard.h"
#include "pool/arena/obtain.h"
#include "pool/arena/order.h"
#include "pool/arena/report.h"
#include "pool/arena/reserve.h"
#include "pool/arena/retired.h"
#include "pool/arena/shelf.h"
#include "pool/arena/usage.h"
#include "pool/dump.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the long way ---- */

static mp_status alloc_once(arena *a, stream_heap *heap, uint32_t units, size_t size,
                            uint8_t client, chunk **out) {
    chunk *c = NULL;
    arena_lock(a);
    const mp_status status = mp__chunk_obtain(a, heap, units, &c);
    if (status == MP_OK) {
        chunk_lend(c, heap->index, size, client);
        mp__address_add(&a->addresses, c);
        *out = c;
    }
    arena_unlock(a);
    return status;
}

static mp_status alloc_slow(arena *a, stream_heap *heap, uint32_t units, size_t size,
                            uint8_t client, chunk **out) {
    size_t next_hook = 0;
    mp_status status = alloc_once(a, heap, units, size, client, out);
    while (status == MP_OUT_OF_MEMORY && mp__pressure_run(a, size, &next_hook)) {
        status = alloc_once(a, heap, units, size, client, out);
    }
    if (status != MP_OUT_OF_MEMORY) {
        return status;
    }
    (void)mp__arena_fail(a, size, client, NULL);
    return MP_OUT_OF_MEMORY;
}

/* ---- allocating ---- */

/* What is done for an allocated block before its user gets it. */
static mp_addr hand_over(arena *a, stream_heap *heap, const chunk *c) {
    mp__report_block(a, c, heap, MP_TRACE_ALLOC);
    arena_note(a, chunk_addr(c), chunk_bytes(c), true);
    if (a->border > 0 || a->options.poison) {
        mp__guard_draw(a, heap, c);
    }
    return chunk_addr(c) + a->border;
}

mp_status mp__arena_alloc(arena *a, size_t size, void *native, uint8_t client, mp_addr *out) {
    stream_heap *heap = NULL;
    uint32_t units = 0;
    size += size == 0;
    if (!units_of(a, size, &units)) {
        return mp__arena_fail(a, size, client, "no device has that much");
    }
    MP_TRY(mp__stream_heap_lock(a, mp__stream_heap_key(a, native), &heap));
    bool counted = false;
    chunk *c = units <= SHELF_UNITS_MAX ? mp__shelf_take(heap, units) : NULL;
    if (c != NULL) {
        chunk_lend(c, heap->index, size, client);
        counted = mp__usage_add_fast(heap, c, CHUNK_LENT);
    }
    spin_unlock(&heap->lock);
    if (c == NULL) {
        MP_TRY(alloc_slow(a, heap, units, size, client, &c));
    }
    if (!counted) {
        mp__usage_count(a, heap, c, CHUNK_LENT);
    }
    *out = hand_over(a, heap, c);
    return MP_OK;
}

/* ---- freeing ---- */

/* Locks the heap of `c`, found for a block that begins at `begin`; NULL if it is not allocated. */
static chunk *lock_chunk(arena *a, chunk *c, mp_addr begin, stream_heap **out) {
    while (c != NULL && chunk_addr(c) == begin) {
        stream_heap *heap = stream_heap_of(a, c);
        spin_lock(&heap->lock);
        if (chunk_heap(c) == heap->index) {
            const chunk_state state = chunk_state_of(c);
            if (chunk_addr(c) == begin && (state == CHUNK_LENT || state == CHUNK_RESERVED)) {
                *out = heap;
                return c;
            }
            c = NULL;
        }
        spin_unlock(&heap->lock);
    }
    return NULL;
}

chunk *mp__arena_try_block(arena *a, mp_addr addr, stream_heap **out) {
    const mp_addr begin = addr - a->border;
    return lock_chunk(a, mp__address_find(&a->addresses, begin), begin, out);
}

chunk *mp__arena_lock_block(arena *a, mp_addr addr, stream_heap **out) {
    const mp_addr begin = addr - a->border;
    chunk *c = mp__address_find(&a->addresses, begin);
    if (c == NULL) { /* it may have been overlooked while the table changed */
        arena_lock(a);
        c = mp__address_find(&a->addresses, begin);
        arena_unlock(a);
    }
    return lock_chunk(a, c, begin, out);
}

mp_status mp__arena_refuse(const arena *a, mp_addr addr, const char *what) {
    return MP_FAIL(INVALID_ARGUMENT,
                   "%s of address 0x%" PRIxPTR ", which is not an allocated block of the pool of "
                   "%s: it was never allocated, has been freed already, or lies inside a block",
                   what, addr, a->device->info.name);
}

/* Where a chunk that leaves `from` in the order of `to` belongs: memory that a captured graph uses
 * stays with the graph. Under the arena's lock. */
static stream_heap *heir_of(stream_heap *from, stream_heap *to) {
    if (stream_heap_is_graphs(from)) {
        return from;
    }
    return to->capture != NULL ? to->capture : to;
}

/* `c` is MOVING: nobody else has it. */
static void free_slow(arena *a, chunk *c, stream_heap *from, stream_heap *to) {
    if (a->border > 0 || a->options.poison) {
        mp__guard_check(a, to, c);
    }
    arena_lock(a);
    stream_heap *heir = heir_of(from, to);
    chunk_set_heap(c, heir->index);
    if (a->notes && !stream_heap_is_graphs(heir)) { /* a graph uses what was freed in it */
        a->device->ops->note(a->device, chunk_addr(c), chunk_bytes(c), false);
    }
    if (c->uses != NULL) {
        mp__address_remove(&a->addresses, c);
        mp__order_wait_for_uses(a, c);
    } else {
        spin_lock(&heir->lock);
        c->epoch = heir->epoch;
        spin_unlock(&heir->lock);
        mp__chunk_release(a, c);
    }
    arena_unlock(a);
}

mp_status mp__arena_free(arena *a, mp_addr addr, void *native) {
    stream_heap *to = NULL;
    stream_heap *heap = NULL;
    chunk *c = mp__arena_lock_block(a, addr, &heap);
    if (c != NULL && native != MP_SAME_STREAM &&
        !stream_heap_is_for(heap, mp__stream_heap_key(a, native))) {
        spin_unlock(&heap->lock); /* one heap at a time */
        MP_TRY(mp__stream_heap_now(a, mp__stream_heap_key(a, native), &to));
        c = mp__arena_lock_block(a, addr, &heap);
    }
    if (c == NULL) {
        return mp__arena_refuse(a, addr, "free");
    }
    mp__usage_remove(heap, c);
    if (to != NULL) {
        stream_heap_add_guest(to, c->client);
    }
    mp__report_block(a, c, to != NULL ? to : heap, MP_TRACE_FREE);
    const bool is_reserved = chunk_state_of(c) == CHUNK_RESERVED;
    if (!is_reserved && !heap->detour && (to == NULL || to == heap) && c->uses == NULL &&
        c->units <= SHELF_UNITS_MAX && a->border == 0 && !a->options.poison) {
        if (a->notes && !heap->is_capture) {
            a->device->ops->note(a->device, chunk_addr(c), chunk_bytes(c), false);
        }
        const bool full = mp__shelf_put(a, heap, c);
        spin_unlock(&heap->lock);
        if (full) {
            arena_lock(a);
            mp__shelf_clear(a, heap, false);
            arena_unlock(a);
        }
        return MP_OK;
    }
    chunk_set_state(c, CHUNK_MOVING);
    spin_unlock(&heap->lock);
    if (is_reserved) {
        mp__reserve_free(a, c, heap, to != NULL ? to : heap);
    } else {
        free_slow(a, c, heap, to != NULL ? to : heap);
    }
    return MP_OK;
}

/* ---- giving back ---- */

mp_status mp__arena_shrink(arena *a, size_t *released) {
    mp__nvtx_push("millpond shrink");
    arena_lock(a);
    mp_status status = MP_OK;
    if (a->captures_open == 0) {
        status = mp__arena_quiesce(a);
    } else { /* only what is known to be idle */
        mp__arena_gather(a);
    }
    size_t bytes = 0;
    if (status == MP_OK) {
        status = mp__region_trim(a, &bytes);
        a->next_extension = a->options.initial_growth_chunk_size_bytes;
    }
    arena_unlock(a);
    mp__nvtx_pop();
    if (status == MP_OK && released != NULL) {
        *released = bytes;
    }
    if (status == MP_OK && a->source.is_external && a->source.external.empty_cache != NULL) {
        a->source.external.empty_cache(a->source.external.context);
    }
    return status;
}

/* ---- life ---- */

mp_status mp__arena_create(const source *from, const arena_options *options, arena **out) {
    arena *a = aligned_alloc(_Alignof(arena), sizeof *a); /* parts of it have lines of their own */
    if (a == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a pool");
    }
    memset(a, 0, sizeof *a);
    pthread_mutexattr_t kind;
    (void)pthread_mutexattr_init(&kind);
    (void)pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP); /* it is held for long by
                                                                           growth only */
    (void)pthread_mutex_init(&a->lock, &kind);
    (void)pthread_mutexattr_destroy(&kind);
    (void)pthread_cond_init(&a->hook_done, NULL);
    a->device = from->device;
    a->source = *from;
    a->options = *options;
    a->border = options->guard ? UNIT : 0;
    a->expandable = mp__expand_wanted(a);
    a->direct = from->is_external && options->external == EXTERNAL_DIRECT;
    a->notes = from->device->info.notes && !from->is_external;
    a->next_extension = options->initial_chunk_size_bytes;
    stream_heap *none = NULL;
    mp_status status = mp__trace_create(&a->trace);
    if (status == MP_OK) {
        status = mp__stream_heap_add(a, &none);
    }
    if (status != MP_OK) {
        mp__arena_destroy(a);
        return status;
    }
    none->key = none->native = MP_NO_STREAM;
    *out = a;
    return MP_OK;
}

void mp__arena_destroy(arena *a) {
    if (stream_heap_count_of(a) > 0) {
        if (a->device->ops->synchronize(a->device) != MP_OK) {
            MP_LOG(WARNING, "a pool is closed on a device that reports: %s", mp_error_message());
        }
        mp__reserve_give_back(a, true);
        mp__order_close(a);
        mp__captures_close(a);
        mp__regions_close(a);
    }
    for (size_t i = 0; i < stream_heap_count_of(a); i++) {
        mp__stream_heap_close(a, stream_heap_at(a, (unsigned)i));
    }
    mp__address_map_close(&a->addresses);
    mp__chunk_store_close(&a->chunks);
    mp__trace_destroy(a->trace);
    free(a->hooks);
    (void)pthread_cond_destroy(&a->hook_done);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
}
