/* expand.c - expandable regions: addresses for much more than the device has, and pages behind
 * them only where chunks are.
 *
 *     | used | free |  hole  | used |            hole            |
 *     [ pages ......]        [ pages]
 *
 * A hole is an UNMAPPED chunk of whole pages. Growth maps pages at the low end of a hole, next to a
 * free chunk where that saves pages. Once the arena has plenty for what is in use
 * (mp__arena_plenty), pages under idle chunks elsewhere are moved there instead: scattered memory
 * becomes contiguous.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/expand.h"

#include "pool/arena/coalesce.h"
#include "pool/arena/gather_idle.h"
#include "pool/arena/order.h"
#include "pool/arena/report.h"
#include "pool/arena/usage.h"

#include <assert.h>

enum {
    TIMES_MEMORY = 4, /* addresses reserved, as a multiple of the device's memory */
    CUT_RECORDS = 2,  /* that cutting pages out of a chunk takes */
};

bool mp__expand_wanted(const arena *a) {
    return a->options.expandable && a->source.memory == MP_MEMORY_DEVICE &&
           !a->source.is_external && a->device->ops->granule(a->device) > 0;
}

static size_t page_of(const arena *a) {
    return a->device->ops->granule(a->device);
}

/* ---- holes ---- */

/* Puts an unmapped chunk among the holes, joined to those beside it. */
static void add_hole(arena *a, chunk *c) {
    chunk_set_state(c, CHUNK_UNMAPPED);
    if (c->prev != NULL && chunk_state_of(c->prev) == CHUNK_UNMAPPED) {
        chunk *left = c->prev;
        mp__bins_remove(&a->holes, left);
        mp__chunk_join(left, c);
        c = left;
    }
    if (c->next != NULL && chunk_state_of(c->next) == CHUNK_UNMAPPED) {
        chunk *right = c->next;
        mp__bins_remove(&a->holes, right);
        mp__chunk_join(c, right);
    }
    c->epoch = 0;
    mp__bins_add(&a->holes, c);
}

static mp_status reserve_addresses(arena *a, uint32_t units) {
    const size_t page = page_of(a);
    const size_t most = (size_t)UNITS_MAX * UNIT / page * page;
    const size_t memory = a->device->info.memory_bytes;
    size_t size = memory < most / TIMES_MEMORY ? TIMES_MEMORY * memory / page * page : most;
    const size_t least = MP_ALIGN_UP((size_t)units * UNIT, page);
    size = MP_MAX(size, least);
    if (size > most) {
        return MP_FAIL(OUT_OF_MEMORY, "%zu bytes are more than a region holds", least);
    }
    mp_addr addr = 0;
    MP_TRY(a->device->ops->reserve(a->device, size, &addr));
    chunk *c = mp__chunk_take(&a->chunks.shared);
    atomic_store_explicit(&c->addr, addr, memory_order_relaxed);
    c->units = (uint32_t)(size / UNIT);
    const mp_status status =
        mp__region_add(a, (region){.addr = addr, .size = size, .first = c, .expandable = true});
    if (status != MP_OK) {
        a->device->ops->unreserve(a->device, addr, size);
        mp__chunk_put(c);
        return status;
    }
    add_hole(a, c);
    return MP_OK;
}

/* ---- where to grow ---- */

/* Pages that must be put at the low end of `hole` so that `units` fit there, together with the
 * free chunk before it where `heap` may use that. 0: they do not fit. */
static size_t bytes_needed(const arena *a, const stream_heap *heap, const chunk *hole,
                           uint32_t units) {
    const size_t page = page_of(a);
    const chunk *left = hole->prev;
    size_t bytes = (size_t)units * UNIT;
    if (left != NULL && chunk_state_of(left) == CHUNK_FREE && left->units < units &&
        (chunk_heap(left) == heap->index || mp__chunk_is_idle(a, left))) {
        bytes -= chunk_bytes(left);
    }
    bytes = MP_ALIGN_UP(bytes, page);
    return bytes <= chunk_bytes(hole) ? bytes : 0;
}

/* The hole that needs the fewest pages; the smallest of them. */
static chunk *choose_hole(const arena *a, const stream_heap *heap, uint32_t units, size_t *bytes) {
    chunk *best = NULL;
    size_t least = SIZE_MAX;
    for (int class = mp__bins_next(&a->holes, -1); class >= 0;
         class = mp__bins_next(&a->holes, class)) {
        for (chunk *hole = a->holes.head[class]; hole != NULL; hole = hole->link) {
            const size_t needed = bytes_needed(a, heap, hole, units);
            if (needed != 0 && needed < least) {
                best = hole;
                least = needed;
            }
        }
    }
    *bytes = least;
    return best;
}

/* ---- pages ---- */

/* Makes the low `bytes` of a hole, which have pages now, a free chunk for `heap`. */
static void fill_hole(arena *a, stream_heap *heap, chunk *hole, size_t bytes) {
    mp__bins_remove(&a->holes, hole);
    if (bytes < chunk_bytes(hole)) {
        chunk *rest = mp__chunk_split(a, hole, (uint32_t)(bytes / UNIT));
        mp__bins_add(&a->holes, rest);
    }
    arena_note(a, chunk_addr(hole), bytes, false);
    const unsigned index = heap->is_capture ? 0 : heap->index;
    chunk *left = hole->prev;
    if (left != NULL && chunk_state_of(left) == CHUNK_FREE && chunk_heap(left) != index &&
        mp__chunk_is_idle(a, left)) { /* so that the two join */
        mp__bins_remove(&stream_heap_of(a, left)->bins, left);
        chunk_set_heap(left, index);
        left->epoch = 0;
        chunk_set_state(left, CHUNK_MOVING);
        chunk_set_heap(hole, index);
        hole->epoch = 0;
        mp__chunk_join(left, hole);
        mp__chunk_bin(a, left);
        return;
    }
    chunk_set_heap(hole, index);
    hole->epoch = 0;
    mp__chunk_bin(a, hole);
}

/* The part of an idle free chunk that is whole pages. */
static size_t whole_pages(const arena *a, const chunk *c, mp_addr *first) {
    const size_t page = page_of(a);
    const mp_addr begin = MP_ALIGN_UP(chunk_addr(c), page);
    const mp_addr end = (chunk_addr(c) + chunk_bytes(c)) / page * page;
    *first = begin;
    return end > begin ? end - begin : 0;
}

static bool can_give(const arena *a, const chunk *c) {
    return chunk_state_of(c) == CHUNK_FREE && mp__chunk_is_idle(a, c);
}

/* Cuts the `bytes` from `first` on out of a free chunk; the parts beside them stay free. */
static chunk *cut_out(arena *a, chunk *c, mp_addr first, size_t bytes) {
    bins *from = &stream_heap_of(a, c)->bins;
    mp__bins_remove(from, c);
    if (first > chunk_addr(c)) {
        chunk *rest = mp__chunk_split(a, c, (uint32_t)((first - chunk_addr(c)) / UNIT));
        mp__bins_add(from, c);
        c = rest;
    }
    if (bytes < chunk_bytes(c)) {
        mp__bins_add(from, mp__chunk_split(a, c, (uint32_t)(bytes / UNIT)));
    }
    chunk_set_state(c, CHUNK_MOVING);
    return c;
}

/* Moves pages under idle chunks to the `bytes` at `target`, which have none. Returns how many bytes
 * were moved before there were no more or the driver failed. */
static size_t move_pages(arena *a, mp_addr target, size_t bytes) {
    size_t moved = 0;
    for (size_t i = 0; i < a->region_count && moved < bytes; i++) {
        if (!a->regions[i].expandable) {
            continue;
        }
        for (chunk *c = a->regions[i].first; c != NULL && moved < bytes; c = c->next) {
            mp_addr first = 0;
            size_t size = can_give(a, c) ? whole_pages(a, c, &first) : 0;
            size = size < bytes - moved ? size : bytes - moved;
            if (size == 0 || mp__chunk_prepare(&a->chunks, &a->chunks.shared,
                                               CUT_RECORDS + CHUNK_RECORDS) != MP_OK) {
                continue;
            }
            arena_note(a, first, size, true);
            if (a->device->ops->remap(a->device, target + moved, first, size) != MP_OK) {
                return moved;
            }
            c = cut_out(a, c, first, size);
            chunk *before = c->prev; /* its record stays when the hole is joined to it */
            add_hole(a, c);
            moved += size;
            c = before != NULL ? before : c;
        }
    }
    return moved;
}

size_t mp__expand_idle(const arena *a) {
    size_t bytes = 0;
    for (size_t i = 0; i < a->region_count; i++) {
        if (!a->regions[i].expandable) {
            continue;
        }
        for (const chunk *c = a->regions[i].first; c != NULL; c = c->next) {
            mp_addr first = 0;
            bytes += can_give(a, c) ? whole_pages(a, c, &first) : 0;
        }
    }
    return bytes;
}

/* Makes a free chunk of up to `units` of pages that lie under idle chunks, with a hole behind it
 * for what is missing. */
static void gather_pages(arena *a, stream_heap *heap, uint32_t units) {
    const size_t page = page_of(a);
    const size_t bytes = MP_ALIGN_UP((size_t)units * UNIT, page);
    chunk *hole = mp__bins_best(&a->holes, (uint32_t)(bytes / UNIT), UINT64_MAX);
    mp__order_settle_idle(a);
    mp__arena_gather_idle(a);
    if (hole == NULL || mp__expand_idle(a) == 0) {
        return;
    }
    /* The target is cut off first, so that holes made by the move do not join it. */
    mp__bins_remove(&a->holes, hole);
    if (bytes < chunk_bytes(hole)) {
        mp__bins_add(&a->holes, mp__chunk_split(a, hole, (uint32_t)(bytes / UNIT)));
    }
    chunk_set_state(hole, CHUNK_MOVING);
    const size_t moved = move_pages(a, chunk_addr(hole), bytes);
    if (moved < bytes) {
        chunk *rest = moved > 0 ? mp__chunk_split(a, hole, (uint32_t)(moved / UNIT)) : hole;
        add_hole(a, rest);
    }
    if (moved > 0) {
        arena_note(a, chunk_addr(hole), moved, false);
        chunk_set_heap(hole, heap->is_capture ? 0 : heap->index);
        hole->epoch = 0;
        mp__chunk_bin(a, hole);
    }
}

static mp_status map_more(arena *a, stream_heap *heap, chunk *hole, size_t bytes) {
    MP_TRY(mp__region_take(a, bytes));
    const mp_status status = a->device->ops->map(a->device, chunk_addr(hole), bytes);
    if (status != MP_OK) {
        mp__region_give(a, bytes);
        return status;
    }
    const mp_addr addr = chunk_addr(hole);
    fill_hole(a, heap, hole, bytes);
    a->counts.extensions++;
    mp__report_memory(a, addr, bytes, MP_TRACE_GROW);
    return MP_OK;
}

static bool has_room(const arena *a, const stream_heap *heap, uint32_t units) {
    return mp__bins_best(&heap->bins, units, UINT64_MAX) != NULL ||
           mp__bins_best(&stream_heap_at(a, 0)->bins, units, UINT64_MAX) != NULL;
}

mp_status mp__expand_grow(arena *a, stream_heap *heap, uint32_t units) {
    size_t bytes = 0;
    chunk *hole = choose_hole(a, heap, units, &bytes);
    if (hole == NULL) {
        MP_TRY(reserve_addresses(a, units));
        hole = choose_hole(a, heap, units, &bytes);
        assert(hole != NULL);
    }
    /* Up to this total new pages are made, which disturbs nobody; beyond it pages are moved. */
    if (arena_total(a) + bytes <= mp__arena_plenty(a, bytes)) {
        const mp_status status = map_more(a, heap, hole, bytes);
        if (status != MP_OUT_OF_MEMORY) {
            return status;
        }
    }
    gather_pages(a, heap, units);
    if (has_room(a, heap, units)) {
        return MP_OK;
    }
    hole = choose_hole(a, heap, units, &bytes);
    return hole != NULL ? map_more(a, heap, hole, bytes)
                        : MP_FAIL(OUT_OF_MEMORY, "there are no addresses left for %u units", units);
}

/* ---- giving back ---- */

static mp_status unmap_chunk(arena *a, chunk *c, mp_addr first, size_t size) {
    arena_note(a, first, size, true);
    MP_TRY(a->device->ops->unmap(a->device, first, size));
    add_hole(a, cut_out(a, c, first, size));
    mp__region_give(a, size);
    a->counts.shrinkages++;
    mp__report_memory(a, first, size, MP_TRACE_SHRINK);
    return MP_OK;
}

/* Goes on where one chunk stays, and returns why it did. */
static mp_status trim_region(arena *a, const region *r, size_t *bytes) {
    mp_status failed = MP_OK;
    for (chunk *c = r->first, *next = NULL; c != NULL; c = next) {
        mp_addr first = 0;
        const size_t size = can_give(a, c) ? whole_pages(a, c, &first) : 0;
        next = c->next;
        /* Holes on both sides may be joined, and their records with them. */
        while (next != NULL && chunk_state_of(next) == CHUNK_UNMAPPED) {
            next = next->next;
        }
        if (size > 0 && mp__chunk_prepare(&a->chunks, &a->chunks.shared,
                                          CUT_RECORDS + CHUNK_RECORDS) == MP_OK) {
            const mp_status status = unmap_chunk(a, c, first, size);
            *bytes += status == MP_OK ? size : 0;
            failed = status == MP_OK ? failed : status;
        }
    }
    return failed;
}

mp_status mp__expand_trim(arena *a, size_t *bytes) {
    mp_status failed = MP_OK;
    for (size_t i = 0; i < a->region_count; i++) {
        if (a->regions[i].expandable) {
            const mp_status status = trim_region(a, &a->regions[i], bytes);
            failed = status == MP_OK ? failed : status;
        }
    }
    return failed;
}

/* ---- closing ---- */

void mp__expand_close(arena *a, const region *r) {
    for (const chunk *c = r->first; c != NULL;) {
        if (chunk_state_of(c) == CHUNK_UNMAPPED) {
            c = c->next;
            continue;
        }
        const mp_addr first = chunk_addr(c); /* of a run of chunks with pages */
        size_t size = 0;
        while (c != NULL && chunk_state_of(c) != CHUNK_UNMAPPED) {
            size += chunk_bytes(c);
            c = c->next;
        }
        arena_note(a, first, size, true);
        (void)a->device->ops->unmap(a->device, first, size);
        mp__region_give(a, size);
    }
    a->device->ops->unreserve(a->device, r->addr, r->size);
}
