/* usage.c - what is in use, and the most that ever was: exact, though counted on many heaps.
 *
 * A request must not touch a count that all threads share. So each heap counts what it has
 * allocated and has an allowance up to which it may allocate without asking. The allowances
 * together (`assigned`) never exceed the peak, so a heap within its allowance cannot make a new
 * peak. A heap that needs more asks under the arena's lock: it gets what is left of the peak, then
 * what others do not use, and only when the true sum of all heaps exceeds the peak is there a new
 * one.
 *
 * Once two threads have asked at the same time, every heap gets a margin, so that they need not ask
 * each other all the time: from then on the peak may be too high by the margins.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/usage.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 256 << 10 }; /* bytes a heap */

static void count(stream_heap *heap, chunk *c, chunk_state state) {
    chunk_set_state(c, state);
    heap->in_use += chunk_bytes(c);
    heap->alloc_size_max = MP_MAX(c->requested, heap->alloc_size_max);
    tally *t = &heap->clients[c->client];
    t->in_use += (int64_t)chunk_bytes(c);
    t->requested += (int64_t)c->requested;
    t->blocks++;
    t->allocs++;
}

bool mp__usage_add_fast(stream_heap *heap, chunk *c, chunk_state state) {
    if (heap->in_use + chunk_bytes(c) > heap->allowance) {
        return false;
    }
    count(heap, c, state);
    return true;
}

/* Under all locks: gives `heap` room for `need` bytes, and every heap its part of what is left of
 * the peak. */
static void assign_anew(arena *a, stream_heap *heap, uint64_t need) {
    const size_t heaps = stream_heap_count_of(a);
    assert(heaps > 0);
    const uint64_t margin = atomic_load_explicit(&a->crowded, memory_order_relaxed) ? MARGIN : 0;
    uint64_t sum = need + heaps * margin;
    for (size_t i = 0; i < heaps; i++) {
        sum += stream_heap_at(a, (unsigned)i)->in_use;
    }
    a->peak = MP_MAX(sum, a->peak);
    const uint64_t part = margin + (a->peak - sum) / heaps;
    a->assigned = 0;
    for (size_t i = 0; i < heaps; i++) {
        stream_heap *other = stream_heap_at(a, (unsigned)i);
        other->allowance = other->in_use + part + (other == heap ? need : 0);
        a->assigned += other->allowance;
    }
}

/* Two threads that come here at the same time would come here again and again. */
static void lock_for_usage(arena *a) {
    if (pthread_mutex_trylock(&a->lock) != 0) {
        atomic_store_explicit(&a->crowded, true, memory_order_relaxed);
        arena_lock(a);
    }
}

void mp__usage_add(arena *a, stream_heap *heap, chunk *c, chunk_state state) {
    lock_for_usage(a);
    spin_lock(&heap->lock);
    const uint64_t wanted = heap->in_use + chunk_bytes(c);
    const uint64_t more = wanted > heap->allowance ? wanted - heap->allowance : 0;
    if (more <= a->peak - a->assigned) {
        heap->allowance += more;
        a->assigned += more;
        count(heap, c, state);
        spin_unlock(&heap->lock);
    } else {
        spin_unlock(&heap->lock);
        mp__stream_heaps_lock(a);
        assign_anew(a, heap, chunk_bytes(c));
        count(heap, c, state);
        mp__stream_heaps_unlock(a);
    }
    arena_unlock(a);
}

void mp__usage_count(arena *a, stream_heap *heap, chunk *c, chunk_state state) {
    spin_lock(&heap->lock);
    const bool counted = mp__usage_add_fast(heap, c, state);
    spin_unlock(&heap->lock);
    if (!counted) {
        mp__usage_add(a, heap, c, state);
    }
}

void mp__usage_remove(stream_heap *heap, const chunk *c) {
    heap->in_use -= chunk_bytes(c);
    heap->frees++;
    tally *t = &heap->clients[c->client];
    t->in_use -= (int64_t)chunk_bytes(c);
    t->requested -= (int64_t)c->requested;
    t->blocks--;
}

void mp__usage_stats_locked(const arena *a, mp_pool_stats *out) {
    *out = a->counts;
    out->limit = a->options.max_mem == SIZE_MAX ? UINT64_MAX : a->options.max_mem;
    out->total = arena_total(a);
    out->in_use_max = MP_MIN(a->peak, out->total_max); /* margins aside */
    for (size_t i = 0; i < stream_heap_count_of(a); i++) {
        const stream_heap *heap = stream_heap_at(a, (unsigned)i);
        out->in_use += heap->in_use;
        out->frees += heap->frees;
        out->alloc_size_max = MP_MAX(heap->alloc_size_max, out->alloc_size_max);
        for (size_t k = 0; k < a->client_count; k++) {
            out->requested += (uint64_t)heap->clients[k].requested;
            out->allocs += heap->clients[k].allocs;
        }
    }
}

void mp__usage_stats(arena *a, mp_pool_stats *out) {
    arena_lock(a);
    mp__stream_heaps_lock(a);
    mp__usage_stats_locked(a, out);
    mp__stream_heaps_unlock(a);
    arena_unlock(a);
}

void mp__usage_reset_peaks(arena *a) {
    arena_lock(a);
    mp__stream_heaps_lock(a);
    a->peak = 0;
    atomic_store_explicit(&a->crowded, false, memory_order_relaxed);
    for (size_t i = 0; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        heap->allowance = heap->in_use;
        heap->alloc_size_max = 0;
        a->peak += heap->in_use;
    }
    a->assigned = a->peak;
    a->counts.total_max = arena_total(a);
    mp__stream_heaps_unlock(a);
    arena_unlock(a);
}

/* ---- shares ---- */

void mp__usage_clients(arena *a, mp_share *out, size_t capacity, size_t *count_out) {
    arena_lock(a);
    mp__stream_heaps_lock(a);
    for (size_t k = 0; k < a->client_count && k < capacity; k++) {
        mp_share share = {.stream = MP_NO_STREAM};
        memcpy(share.name, a->clients[k], sizeof share.name);
        for (size_t i = 0; i < stream_heap_count_of(a); i++) {
            const tally *t = &stream_heap_at(a, (unsigned)i)->clients[k];
            share.in_use += (uint64_t)t->in_use;
            share.requested += (uint64_t)t->requested;
            share.blocks += (uint64_t)t->blocks;
            share.allocs += t->allocs;
        }
        out[k] = share;
    }
    *count_out = a->client_count;
    mp__stream_heaps_unlock(a);
    arena_unlock(a);
}

static void add_heap(const arena *a, const stream_heap *heap, mp_share *share) {
    share->in_use += heap->in_use;
    share->free += heap->bins.bytes + heap->shelf_bytes;
    for (size_t k = 0; k < a->client_count; k++) {
        share->requested += (uint64_t)heap->clients[k].requested;
        share->blocks += (uint64_t)heap->clients[k].blocks;
        share->allocs += heap->clients[k].allocs;
    }
}

/* The share that a heap is part of: that of its stream, or the first, which is of memory without a
 * stream. Only a capture's heap can have that of another heap. */
static mp_share *share_of(const stream_heap *heap, mp_share *shares, size_t *count) {
    if (heap->index == 0 || heap->gone) {
        return &shares[0];
    }
    for (size_t i = 1; heap->is_capture && i < *count; i++) {
        if (shares[i].stream == heap->native) {
            return &shares[i];
        }
    }
    shares[*count] = (mp_share){.stream = heap->native};
    return &shares[(*count)++];
}

mp_status mp__usage_streams(arena *a, mp_share *out, size_t capacity, size_t *count_out) {
    arena_lock(a);
    mp_share *shares = calloc(stream_heap_count_of(a), sizeof *shares);
    size_t count = 1;
    if (shares != NULL) {
        mp__stream_heaps_lock(a);
        shares[0].stream = MP_NO_STREAM;
        for (int captures = 0; captures < 2; captures++) { /* they come after their streams */
            for (size_t i = 0; i < stream_heap_count_of(a); i++) {
                const stream_heap *heap = stream_heap_at(a, (unsigned)i);
                if (heap->is_capture == captures) {
                    add_heap(a, heap, share_of(heap, shares, &count));
                }
            }
        }
        mp__stream_heaps_unlock(a);
        for (size_t i = 0; i < count && i < capacity; i++) {
            out[i] = shares[i];
        }
        *count_out = count;
    }
    arena_unlock(a);
    free(shares);
    return shares != NULL
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a list of streams");
}

size_t mp__arena_plenty(const arena *a, size_t bytes) {
    enum { HEAP_BYTES = 4 << 20 }; /* what the shelf of a further stream may hold */
    size_t most = bytes;
    for (size_t i = 0; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        spin_lock(&heap->lock);
        most += heap->in_use;
        spin_unlock(&heap->lock);
    }
    most = most > a->peak ? most : (size_t)a->peak;
    const size_t others = stream_heap_count_of(a) > 2 ? stream_heap_count_of(a) - 2 : 0;
    const size_t pieces = a->expandable ? most / 8 + most / 16 : most;
    return most + pieces + others * HEAP_BYTES;
}
