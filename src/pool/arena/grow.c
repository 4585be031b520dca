/* grow.c - regions: how large the next one is, where it comes from, and giving it back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/grow.h"

#include "base/nvtx.h"
#include "pool/arena/coalesce.h"
#include "pool/arena/expand.h"
#include "pool/arena/report.h"

#include <stdlib.h>

/* ---- growing ---- */

static size_t round_down(size_t size) {
    const size_t most = (size_t)UNITS_MAX * UNIT;
    return size > most ? most : size / UNIT * UNIT;
}

static size_t round_up(size_t size) {
    return round_down(size <= SIZE_MAX - UNIT ? size + UNIT - 1 : size);
}

/* The size to ask for: at least `bytes`. Doubles the size of the next extension, but only where
 * this one did not have to be doubled to fit. */
static size_t next_size(arena *a, size_t bytes) {
    if (a->options.extend_strategy == EXTEND_AS_REQUESTED) {
        return bytes;
    }
    const size_t most = a->options.max_power_of_two_extend_bytes;
    size_t size = round_up(a->next_extension);
    if (size >= bytes) {
        a->next_extension = size < most / 2 ? 2 * size : most;
        return size;
    }
    while (size < bytes) {
        size = size <= SIZE_MAX / 2 ? 2 * size : SIZE_MAX;
    }
    a->next_extension = size;
    return size;
}

/* Asks for `*size`, then for a tenth less and less, down to `least`. */
static mp_status ask(arena *a, size_t least, size_t *size, mp_addr *out) {
    mp_status status = MP_OK;
    for (;;) {
        status = mp__region_take(a, *size);
        if (status == MP_OK) {
            status = mp__source_alloc(&a->source, *size, out);
            if (status == MP_OK) {
                return MP_OK;
            }
            mp__region_give(a, *size);
        }
        if (status != MP_OUT_OF_MEMORY || *size <= least) {
            return status;
        }
        const size_t less = round_down(*size / 10 * 9);
        *size = MP_MAX(less, least);
    }
}

static size_t first_size(arena *a, size_t least) {
    size_t size = next_size(a, least);
    const size_t room = mp__region_room(a);
    size = round_down(MP_MIN(size, room));
    return size > least ? size : least;
}

static mp_status add_region(arena *a, stream_heap *heap, uint32_t units) {
    const size_t least = (size_t)units * UNIT;
    const size_t next_before = a->next_extension;
    size_t size = first_size(a, least);
    mp_addr addr = 0;
    MP_TRY(mp__regions_prepare(a));
    const mp_status status = ask(a, least, &size, &addr);
    if (status != MP_OK) {
        a->next_extension = next_before;
        return status;
    }
    chunk *c = mp__chunk_take(&a->chunks.shared);
    atomic_store_explicit(&c->addr, addr, memory_order_relaxed);
    c->units = (uint32_t)(size / UNIT);
    c->epoch = 0;
    chunk_set_heap(c, heap->is_capture ? 0 : heap->index);
    (void)mp__region_add(a, (region){.addr = addr, .size = size, .first = c}); /* has room */
    arena_note(a, addr, size, false);
    mp__chunk_bin(a, c);
    a->counts.extensions++;
    mp__report_memory(a, addr, size, MP_TRACE_GROW);
    return MP_OK;
}

mp_status mp__region_grow(arena *a, stream_heap *heap, uint32_t units) {
    mp__nvtx_push("millpond grow");
    const mp_status status =
        a->expandable ? mp__expand_grow(a, heap, units) : add_region(a, heap, units);
    mp__nvtx_pop();
    return status;
}

/* ---- giving back ---- */

static bool is_one_idle_chunk(const arena *a, const region *r) {
    return chunk_state_of(r->first) == CHUNK_FREE && r->first->next == NULL &&
           mp__chunk_is_idle(a, r->first);
}

static void release(arena *a, const region *r) {
    arena_note(a, r->addr, r->size, true); /* the device checks whole allocations by itself */
    mp__source_free(&a->source, r->addr, r->size);
    mp__region_give(a, r->size);
}

bool mp__region_trim_helps(const arena *a, uint32_t units) {
    const size_t wanted = (size_t)units * UNIT;
    const size_t room = mp__region_room(a);
    size_t idle = mp__expand_idle(a);
    for (size_t i = 0; i < a->region_count; i++) {
        const region *r = &a->regions[i];
        idle += !r->expandable && is_one_idle_chunk(a, r) ? r->size : 0;
    }
    return room >= wanted || idle >= wanted - room;
}

mp_status mp__region_trim(arena *a, size_t *bytes) {
    *bytes = 0;
    const mp_status status = mp__expand_trim(a, bytes);
    for (size_t i = a->region_count; i-- > 0;) {
        const region r = a->regions[i];
        if (r.expandable || !is_one_idle_chunk(a, &r)) {
            continue;
        }
        mp__bins_remove(&stream_heap_of(a, r.first)->bins, r.first);
        mp__chunk_put(r.first);
        mp__region_remove(a, i);
        release(a, &r);
        *bytes += r.size;
        a->counts.shrinkages++;
        mp__report_memory(a, r.addr, r.size, MP_TRACE_SHRINK);
    }
    return status;
}

bool mp__region_trim_any(arena *a) {
    size_t bytes = 0;
    const mp_status status = mp__region_trim(a, &bytes);
    (void)status; /* what stays is the arena's */
    return bytes > 0;
}

void mp__regions_close(arena *a) {
    for (size_t i = 0; i < a->region_count; i++) {
        const region *r = &a->regions[i];
        if (r->expandable) {
            mp__expand_close(a, r);
        } else {
            release(a, r);
        }
    }
    for (chunk *c = a->reserved; c != NULL; c = c->link) {
        mp__source_free(&a->source, chunk_addr(c), chunk_bytes(c));
        mp__region_give(a, chunk_bytes(c));
    }
    free(a->regions);
    a->regions = NULL;
    a->region_count = a->region_capacity = 0;
}
