/* reserve.c - blocks outside the arena, straight from the source: weights, and the blocks of an
 * external manager that allocates each of them itself.
 *
 * The device must not use such a block any more when it goes. While a stream is captured it cannot
 * be waited for, so the block is kept in `retired` until it can.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "pool/arena/arena.h"

static mp_status reserve(arena *a, uint32_t units, size_t size, uint8_t client, chunk **out) {
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
    chunk_lend(c, 0, size, client);
    mp__address_add(&a->addresses, c);
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

static mp_status reserve_once(arena *a, uint32_t units, size_t size, uint8_t client, chunk **out) {
    (void)pthread_mutex_lock(&a->lock);
    mp_status status = reserve(a, units, size, client, out);
    if (status == MP_OUT_OF_MEMORY && mp__arena_quiesce(a) == MP_OK && mp__region_trim(a) > 0) {
        status = reserve(a, units, size, client, out);
    }
    (void)pthread_mutex_unlock(&a->lock);
    return status;
}

mp_status mp__arena_reserve(arena *a, size_t size, uint8_t client, mp_addr *out) {
    chunk *c = NULL;
    uint32_t units = 0;
    size += size == 0;
    if (!units_of(a, size, &units)) {
        return mp__arena_fail(a, size, client, "no device has that much");
    }
    size_t next_hook = 0;
    mp_status status = reserve_once(a, units, size, client, &c);
    while (status == MP_OUT_OF_MEMORY && mp__pressure_run(a, size, &next_hook)) {
        status = reserve_once(a, units, size, client, &c);
    }
    if (status == MP_OUT_OF_MEMORY) {
        status = mp__arena_fail(a, size, client, NULL);
        MP_LOG(INFO, "nothing could be reserved: %s", mp_error_message());
        return status;
    }
    MP_TRY(status);
    mp__usage_count(a, lane_at(a, 0), c, CHUNK_RESERVED);
    mp__report_block(a, c, lane_at(a, 0), MP_TRACE_ALLOC);
    *out = chunk_addr(c) + a->border;
    if (!a->direct) {
        MP_LOG(DEBUG, "%zu bytes were reserved on device %d", chunk_bytes(c), a->device->ordinal);
    }
    return MP_OK;
}

/* ---- giving back ---- */

void mp__reserve_give_back(arena *a) {
    for (chunk *c = a->retired, *next = NULL; c != NULL; c = next) {
        next = c->link;
        mp__source_free(&a->source, chunk_addr(c), chunk_bytes(c));
        mp__region_give(a, chunk_bytes(c));
        mp__chunk_put(c);
    }
    a->retired = NULL;
}

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

void mp__reserve_free(arena *a, chunk *c) {
    (void)pthread_mutex_lock(&a->lock);
    mp__address_remove(&a->addresses, c);
    unlink_reserved(a, c);
    c->link = a->retired;
    a->retired = c;
    /* Blocks that another library allocates one by one follow that library's order. */
    if (a->direct || (a->captures_open == 0 && a->device->ops->synchronize(a->device) == MP_OK)) {
        mp__reserve_give_back(a);
    }
    (void)pthread_mutex_unlock(&a->lock);
}
