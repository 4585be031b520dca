/* reserve.c - blocks outside the arena, straight from the source: weights, and the blocks of an
 * external manager that allocates each of them itself.
 *
 * The device must not use such a block any more when it goes: the other owner may reuse it at once,
 * and knows no order of ours. Of a block that an external manager allocates by itself the streams
 * are known, so only these are waited for. While a stream is captured it cannot be waited for, so
 * the block is kept in `retired` until it can, and one that was allocated in a capture until its
 * graph is gone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/reserve.h"

#include "base/log.h"
#include "pool/arena/gather_idle.h"
#include "pool/arena/grow.h"
#include "pool/arena/order.h"
#include "pool/arena/report.h"
#include "pool/arena/retired.h"
#include "pool/arena/usage.h"
#include "pool/arena/wait.h"
#include "pool/dump.h"

static mp_status reserve(arena *a, const stream_heap *heap, uint32_t units, size_t size,
                         uint8_t client, chunk **out) {
    mp_addr addr = 0;
    const size_t bytes = (size_t)units * UNIT;
    MP_TRY(mp__chunk_prepare(&a->chunks, &a->chunks.shared, 1));
    MP_TRY(mp__address_prepare(&a->addresses, 1));
    MP_TRY(mp__region_take(a, bytes));
    const mp_status status = mp__source_alloc(&a->source, bytes, &addr);
    if (status != MP_OK) {
        mp__region_give(a, bytes);
        return status;
    }
    chunk *c = mp__chunk_take(&a->chunks.shared);
    atomic_store_explicit(&c->addr, addr, memory_order_relaxed);
    c->units = units;
    chunk_lend(c, heap->index, size, client);
    mp__address_add(&a->addresses, c);
    c->reserve_label = c->label; /* the list takes that place */
    c->back = NULL;
    c->link = a->reserved;
    if (c->link != NULL) {
        c->link->back = c;
    }
    a->reserved = c;
    a->counts.reserves += !a->direct;
    *out = c;
    return MP_OK;
}

static mp_status reserve_once(arena *a, const stream_heap *heap, uint32_t units, size_t size,
                              uint8_t client, chunk **out) {
    arena_lock(a);
    mp_status status = reserve(a, heap, units, size, client, out);
    if (status == MP_OUT_OF_MEMORY && mp__arena_quiesce(a) == MP_OK && mp__region_trim_any(a)) {
        status = reserve(a, heap, units, size, client, out);
    }
    arena_unlock(a);
    return status;
}

static mp_status lend(arena *a, stream_heap *heap, size_t size, uint8_t client, mp_addr *out) {
    chunk *c = NULL;
    uint32_t units = 0;
    size += size == 0;
    if (!units_of(a, size, &units)) {
        return mp__arena_fail(a, size, client, "no device has that much");
    }
    size_t next_hook = 0;
    mp_status status = reserve_once(a, heap, units, size, client, &c);
    while (status == MP_OUT_OF_MEMORY && mp__pressure_run(a, size, &next_hook)) {
        status = reserve_once(a, heap, units, size, client, &c);
    }
    if (status == MP_OUT_OF_MEMORY) {
        status = mp__arena_fail(a, size, client, NULL);
        MP_LOG(INFO, "nothing could be reserved: %s", mp_error_message());
        return status;
    }
    MP_TRY(status);
    mp__usage_count(a, heap, c, CHUNK_RESERVED);
    mp__report_block(a, c, heap, MP_TRACE_ALLOC);
    *out = chunk_addr(c) + a->border;
    if (!a->direct) {
        MP_LOG(DEBUG, "%zu bytes were reserved on device %d", chunk_bytes(c), a->device->ordinal);
    }
    return MP_OK;
}

mp_status mp__arena_reserve(arena *a, size_t size, uint8_t client, mp_addr *out) {
    return lend(a, stream_heap_at(a, 0), size, client, out);
}

mp_status mp__arena_pass_on(arena *a, size_t size, void *native, uint8_t client, mp_addr *out) {
    stream_heap *heap = NULL;
    MP_TRY(mp__stream_heap_now(a, mp__stream_heap_key(a, native), &heap));
    return lend(a, heap, size, client, out);
}

/* ---- giving back ---- */

static void unlink_reserved(arena *a, chunk *c) {
    if (c->back != NULL) {
        c->back->link = c->link;
    } else {
        a->reserved = c->link;
    }
    if (c->link != NULL) {
        c->link->back = c->back;
    }
}

/* Whether no stream that the block was allocated on, freed on or declared for uses it any more. */
static bool streams_have_ended(arena *a, const chunk *c, stream_heap *from, stream_heap *to) {
    return a->direct && mp__stream_heap_wait(a, from) == MP_OK &&
           (to == from || mp__stream_heap_wait(a, to) == MP_OK) && mp__uses_wait(a, c) == MP_OK;
}

/* Whether something waits to be given back that no graph keeps. */
static bool is_behind(const arena *a) {
    const chunk *c = a->retired;
    while (c != NULL && mp__reserved_is_of_graph(a, c)) {
        c = c->link;
    }
    return c != NULL;
}

void mp__reserve_free(arena *a, chunk *c, stream_heap *from, stream_heap *to) {
    const bool ended = streams_have_ended(a, c, from, to);
    mp__uses_free(c->uses);
    c->uses = NULL;
    arena_lock(a);
    mp__address_remove(&a->addresses, c);
    unlink_reserved(a, c);
    if (stream_heap_is_graphs(to)) {
        chunk_set_heap(c, to->index);
    }
    if (ended && !mp__reserved_is_of_graph(a, c)) {
        mp__reserved_release(a, c);
    } else {
        c->link = a->retired;
        a->retired = c;
    }
    if (is_behind(a) && a->captures_open == 0 && a->device->ops->synchronize(a->device) == MP_OK) {
        mp__reserve_give_back(a, false);
    }
    arena_unlock(a);
}
