/* obtain.c - a chunk for a request that its shelf could not serve: where it is looked for, in which
 * order, and what is tried before memory has run out. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/obtain.h"

#include "pool/arena/coalesce.h"
#include "pool/arena/gather_idle.h"
#include "pool/arena/grow.h"
#include "pool/arena/order.h"
#include "pool/arena/shelf.h"
#include "pool/arena/thrift.h"
#include "pool/arena/usage.h"

/* In the heap's own bins and in those that any stream may use. */
static chunk *find_here(const arena *a, const stream_heap *heap, uint32_t units) {
    chunk *own = mp__bins_best(&heap->bins, units, UINT64_MAX);
    if (heap->index == 0) {
        return own;
    }
    chunk *idle = mp__bins_best(&stream_heap_at(a, 0)->bins, units, UINT64_MAX);
    if (own == NULL || (idle != NULL && idle->units < own->units)) {
        return idle;
    }
    return own;
}

static bool has_free(const arena *a, uint32_t units) {
    size_t bytes = 0;
    for (size_t i = 0; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        spin_lock(&heap->lock);
        bytes += heap->bins.bytes + heap->shelf_bytes;
        spin_unlock(&heap->lock);
    }
    return bytes >= (size_t)units * UNIT;
}

/* ---- gathering: thrift.c has the idea ---- */

enum { ASKING = 16 }; /* chunks that might be gathered while streams are asked */

static void gather_own(arena *a, stream_heap *heap) {
    mp__thrift_count(a, heap, 1 + mp__shelf_clear(a, heap, true));
}

/* Whether the arena is so small that growing is better than gathering again. */
static bool is_worn(const arena *a, const stream_heap *heap, uint32_t units) {
    enum { HEAP_BYTES = 8 << 20, HEAPS = 32 };
    const size_t bytes = (size_t)units * UNIT;
    const size_t growth = MP_MAX(a->next_extension, bytes);
    const size_t streams = stream_heap_count_of(a) > 2 ? stream_heap_count_of(a) - 1 : 1;
    return heap->gathered >= THRIFT && a->options.extend_strategy == EXTEND_POWER_OF_TWO &&
           units <= SHELF_UNITS_MAX &&
           arena_total(a) + growth <= MP_MIN(streams, HEAPS) * HEAP_BYTES;
}

/* Whether the free memory of `other` may be used by others at all. `only_unused`: only if nothing
 * is allocated on it, as between two runs; else its next request is likely to want its shelf. */
static bool lends(const stream_heap *heap, stream_heap *other, bool only_unused) {
    if (other == heap || stream_heap_is_graphs(other)) {
        return false;
    }
    if (!only_unused) {
        return true;
    }
    spin_lock(&other->lock);
    const bool unused = other->in_use == 0;
    spin_unlock(&other->lock);
    return unused;
}

/* Also of other streams, where nothing has to be waited for. */
static chunk *find_safe(arena *a, stream_heap *heap, uint32_t units) {
    chunk *c = find_here(a, heap, units);
    return c != NULL ? c : mp__order_find(a, heap, units, false);
}

/* One chunk of the shelf of another stream that is at rest. */
static chunk *find_kept(arena *a, stream_heap *heap, uint32_t units, bool only_unused) {
    for (size_t i = 0; i < stream_heap_count_of(a) && units <= SHELF_UNITS_MAX; i++) {
        stream_heap *other = stream_heap_at(a, (unsigned)i);
        if (lends(heap, other, only_unused) &&
            mp__shelf_offer(a, other, units, mp__order_seen(heap, other))) {
            chunk *c = find_safe(a, heap, units);
            if (c != NULL) { /* it may have joined one that has to be waited for */
                return c;
            }
        }
    }
    return NULL;
}

/* All that lies on shelves of other streams at rest. */
static void gather_others(arena *a, stream_heap *heap, bool only_unused) {
    size_t gathered = 0;
    for (size_t i = 0; i < stream_heap_count_of(a); i++) {
        stream_heap *other = stream_heap_at(a, (unsigned)i);
        if (lends(heap, other, only_unused)) {
            gathered += mp__shelf_offer_all(a, other, mp__order_seen(heap, other));
        }
    }
    mp__thrift_count(a, heap, gathered);
    mp__arena_gather_idle(a);
}

/* What streams at rest keep, and what that joins to; they are asked whether they are at rest. That
 * costs less than growth, but more than many other requests, and so do theirs that follow. */
static chunk *find_at_rest(arena *a, stream_heap *heap, uint32_t units) {
    chunk *c = find_kept(a, heap, units, true);
    if (c != NULL || heap->asked == ASKS_MAX) {
        return c;
    }
    heap->asked++;
    (void)mp__order_settle_kept(a, heap, true);
    c = find_kept(a, heap, units, true);
    if (c == NULL) {
        gather_others(a, heap, true);
        c = find_safe(a, heap, units);
    }
    return c;
}

/* What is there in pieces, or kept: of this stream, then of those at rest. What others use is taken
 * only where much more is reserved than is needed, since they must then go the long way for a
 * while. */
static chunk *find_by_gathering(arena *a, stream_heap *heap, uint32_t units) {
    mp__order_poll(a);
    if (is_worn(a, heap, units)) {
        return find_at_rest(a, heap, units);
    }
    if (mp__shelf_offer(a, heap, units, UINT64_MAX)) { /* the rest of the shelf can stay */
        mp__thrift_count(a, heap, 1);
        return find_here(a, heap, units);
    }
    gather_own(a, heap);
    mp__arena_gather_idle(a);
    chunk *c = find_safe(a, heap, units);
    if (c == NULL) {
        c = find_kept(a, heap, units, false);
    }
    if (c == NULL) {
        gather_others(a, heap, false);
        c = find_safe(a, heap, units);
    }
    if (c == NULL) {
        if (arena_total(a) > mp__arena_plenty(a, (size_t)units * UNIT)) {
            mp__arena_gather(a);
        }
        mp__order_settle_idle(a);
        mp__arena_gather_idle(a);
        mp__thrift_count(a, heap, ASKING);
        c = find_safe(a, heap, units);
    }
    if (c == NULL && mp__order_settle_kept(a, heap, false)) {
        gather_others(a, heap, false);
        c = find_safe(a, heap, units);
    }
    return c;
}

/* What is there already, from the cheapest place to the most expensive. */
static chunk *find_anywhere(arena *a, stream_heap *heap, uint32_t units) {
    if (heap->gathered < THRIFT) {
        gather_own(a, heap);
    }
    chunk *c = find_safe(a, heap, units);
    if (c == NULL && a->waiting != NULL) {
        mp__order_collect(a, false);
        c = find_here(a, heap, units);
    }
    if (c == NULL && has_free(a, units)) {
        c = find_by_gathering(a, heap, units);
    }
    return c;
}

/* ---- growing ---- */

/* When the device has no more: what `heap` can have by waiting, on the device or else here. */
static mp_status find_by_waiting(arena *a, stream_heap *heap, uint32_t units, chunk **out) {
    mp__arena_gather(a);
    mp__order_collect(a, true);
    *out = find_here(a, heap, units);
    if (*out == NULL) {
        *out = mp__order_find(a, heap, units, true);
    }
    if (*out == NULL && a->captures_open == 0) {
        MP_TRY(mp__arena_quiesce(a));
        *out = find_here(a, heap, units);
    }
    return MP_OK;
}

static mp_status grow(arena *a, stream_heap *heap, uint32_t units) {
    const bool is_relief = is_worn(a, heap, units);
    MP_TRY(mp__chunk_prepare(&a->chunks, &a->chunks.shared, CHUNK_RECORDS));
    MP_TRY(mp__region_grow(a, heap, units));
    if (!is_relief) {
        spin_lock(&heap->lock);
        mp__thrift_begin(a, heap);
        spin_unlock(&heap->lock);
    }
    return MP_OK;
}

/* Fails: OUT_OF_MEMORY, with the sentence of the device or of the limit. */
static mp_status find_or_grow(arena *a, stream_heap *heap, uint32_t units, chunk **out) {
    *out = find_anywhere(a, heap, units);
    if (*out != NULL) {
        return MP_OK;
    }
    mp_status status = grow(a, heap, units);
    if (status == MP_OUT_OF_MEMORY) {
        MP_TRY(find_by_waiting(a, heap, units, out));
        if (*out != NULL) {
            return MP_OK;
        }
        if (mp__region_trim_helps(a, units) && mp__region_trim_any(a)) {
            status = grow(a, heap, units); /* what lay in pieces may do in one */
        }
    }
    MP_TRY(status);
    *out = find_here(a, heap, units);
    return *out != NULL ? MP_OK : MP_FAIL(INTERNAL, "a region that was just added has no room");
}

/* Takes out of `c`, which is in a bin, what is to be allocated; the rest stays there, unless it is
 * better allocated too than wasted. */
static chunk *take(arena *a, stream_heap *heap, chunk *c, uint32_t units) {
    bins *from = &stream_heap_of(a, c)->bins;
    const uint32_t rest = c->units - units;
    mp__bins_remove(from, c);
    if (rest < units && (size_t)rest * UNIT < a->options.max_dead_bytes_per_chunk) {
        return mp__chunk_cut(a, heap, c, c->units);
    }
    chunk *front = mp__chunk_cut(a, heap, c, units);
    if (rest > 0) {
        mp__bins_add(from, c);
    }
    return front;
}

mp_status mp__chunk_obtain(arena *a, stream_heap *heap, uint32_t units, chunk **out) {
    chunk *c = NULL;
    MP_TRY(mp__chunk_prepare(&a->chunks, &a->chunks.shared, CHUNK_RECORDS));
    MP_TRY(mp__chunk_prepare(&a->chunks, &heap->records, 1));
    MP_TRY(mp__address_prepare(&a->addresses, 1));
    MP_TRY(find_or_grow(a, heap, units, &c));
    *out = take(a, heap, c, units);
    return MP_OK;
}
