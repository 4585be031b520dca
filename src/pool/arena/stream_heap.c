/* stream_heap.c - the heaps of streams: found by the stream's handle without a lock.
 *
 * A heap stays for as long as its arena, but may become another stream's. So whoever has found one
 * looks at its key again under its lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/stream_heap.h"

#include "base/log.h"
#include "pool/arena/gather_idle.h"
#include "pool/arena/thrift.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table by key ---- */

static size_t slot_of(const void *key) {
    return (size_t)(((uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15)) >> 40) % HEAP_SLOTS;
}

static stream_heap *heap_in(const arena *a, size_t slot) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->heap_slots[slot].heap,
                                memory_order_acquire);
}

static void *key_in(const arena *a, size_t slot) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->heap_slots[slot].key,
                                memory_order_relaxed);
}

/* The slot of a key, or the empty one that ends the search; HEAP_SLOTS where there is neither.
 * Without the arena's lock the heap found there may have become another key's. */
static size_t find(const arena *a, const void *key) {
    const size_t first = slot_of(key);
    for (size_t i = 0; i < HEAP_SLOTS; i++) {
        const size_t slot = (first + i) % HEAP_SLOTS;
        if (heap_in(a, slot) == NULL || key_in(a, slot) == key) {
            return slot;
        }
    }
    return HEAP_SLOTS;
}

/* ---- under the arena's lock ---- */

/* Whether the heap of a slot has become another key's, or nobody's. */
static bool is_stale(const arena *a, size_t slot) {
    const stream_heap *heap = heap_in(a, slot);
    return heap != NULL && (!heap->in_table || heap->key != key_in(a, slot));
}

/* The heap of a key; NULL where it has none. */
static stream_heap *look_up(const arena *a, const void *key) {
    const size_t slot = find(a, key);
    return slot < HEAP_SLOTS && !is_stale(a, slot) ? heap_in(a, slot) : NULL;
}

/* Where a key that has no heap goes: its old slot, or the first on its way that is free. There
 * are more slots than heaps, so one is empty or stale. */
static size_t slot_for(const arena *a, const void *key) {
    const size_t found = find(a, key);
    if (found < HEAP_SLOTS && heap_in(a, found) != NULL) {
        return found;
    }
    size_t slot = slot_of(key);
    while (slot != found && !is_stale(a, slot)) {
        slot = (slot + 1) % HEAP_SLOTS;
    }
    return slot;
}

/* The default stream of a thread has one handle for all threads. */
#define PER_THREAD ((void *)(uintptr_t)2)

void *mp__stream_heap_key(const arena *a, void *native) {
    static _Thread_local char own;
    if (a->source.memory == MP_MEMORY_PINNED) {
        return MP_NO_STREAM;
    }
    if ((uintptr_t)native > (uintptr_t)PER_THREAD) {
        return native;
    }
    return native == PER_THREAD ? (void *)&own : NULL; /* 1 and NULL are one stream */
}

/* ---- life ---- */

static mp_status make(arena *a, stream_heap **out) {
    const size_t index = stream_heap_count_of(a);
    if (index == HEAPS_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "%d streams have used this pool, which is as many as it can tell apart; use "
                       "fewer, or use them again",
                       HEAPS_MAX);
    }
    stream_heap *heap = aligned_alloc(_Alignof(stream_heap), sizeof *heap);
    if (heap == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a stream");
    }
    memset(heap, 0, sizeof *heap);
    heap->index = (unsigned)index;
    heap->key = MP_NO_STREAM;
    heap->epoch = 1;
    mp__thrift_begin(a, heap);
    atomic_store_explicit(&a->heaps[index], heap, memory_order_release);
    atomic_store_explicit(&a->heap_count, index + 1, memory_order_release);
    *out = heap;
    return MP_OK;
}

/* Makes the heap of a stream that is gone, which has nothing allocated any more, nobody's. */
static bool recycle(const arena *a, stream_heap *heap) {
    spin_lock(&heap->lock);
    const bool unused = heap->gone && heap->in_use == 0;
    if (unused) {
        heap->gone = heap->ended = heap->detour = heap->is_capture = heap->in_table = false;
        heap->thread = 0;
        heap->key = MP_NO_STREAM;
        mp__thrift_begin(a, heap);
    }
    spin_unlock(&heap->lock);
    return unused;
}

mp_status mp__stream_heap_add(arena *a, stream_heap **out) {
    for (size_t i = 1; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        if (heap->gone && recycle(a, heap)) {
            *out = heap;
            return MP_OK;
        }
    }
    return make(a, out);
}

static void drop_wrap(arena *a, stream_heap *heap) {
    if (heap->stream != NULL) {
        a->device->ops->stream_destroy(a->device, heap->stream);
        heap->stream = NULL;
    }
}

void mp__stream_heap_end(arena *a, stream_heap *heap) {
    spin_lock(&heap->lock);
    heap->gone = true;
    heap->detour = true;
    heap->life++;
    spin_unlock(&heap->lock);
    atomic_store_explicit(&heap->guests, 0, memory_order_relaxed);
    drop_wrap(a, heap);
}

void mp__stream_heap_close(arena *a, stream_heap *heap) {
    drop_wrap(a, heap);
    free(heap->seen);
    free(heap);
}

/* Makes `heap` the one that `key` finds. Under the arena's lock. */
static void put_in_table(arena *a, stream_heap *heap, void *key) {
    const bool own = key == mp__stream_heap_key(a, PER_THREAD);
    spin_lock(&heap->lock);
    heap->key = key;
    heap->native = own ? PER_THREAD : key;
    heap->thread = own ? mp_thread_number() : 0;
    heap->in_table = true;
    spin_unlock(&heap->lock);
    const size_t slot = slot_for(a, key);
    atomic_store_explicit(&a->heap_slots[slot].key, key, memory_order_relaxed);
    atomic_store_explicit(&a->heap_slots[slot].heap, heap, memory_order_release);
}

/* Under the arena's lock. */
static mp_status add_for(arena *a, void *key, stream_heap **out) {
    MP_TRY(mp__stream_heap_add(a, out));
    put_in_table(a, *out, key);
    return MP_OK;
}

/* ---- detours ---- */

/* The handle of a stream that was destroyed is that of a new one. What the old one has allocated
 * still counts on its heap, so the new one gets another. Under the arena's lock. */
static mp_status revive(arena *a, stream_heap *heap, stream_heap **out) {
    spin_lock(&heap->lock);
    const bool unused = heap->in_use == 0;
    if (unused) {
        heap->gone = heap->detour = false;
    } else {
        heap->in_table = false;
    }
    spin_unlock(&heap->lock);
    *out = heap;
    if (unused) {
        return MP_OK;
    }
    const mp_status status = add_for(a, heap->key, out);
    heap->in_table = status != MP_OK;
    return status;
}

/* The thread of the heap has ended. What it queued may still run, and only the whole device can be
 * asked for it: now, or when it is waited for anyway. Under the arena's lock. */
static void leave_behind(arena *a, stream_heap *heap) {
    spin_lock(&heap->lock);
    heap->in_table = false;
    heap->ended = heap->detour = true;
    a->captures_open -= heap->capture != NULL; /* it has ended with its stream */
    heap->capture = NULL;
    spin_unlock(&heap->lock);
    if (a->captures_open == 0 && mp__arena_quiesce(a) != MP_OK) {
        MP_LOG(WARNING, "what a thread that has ended left behind cannot be waited for: %s",
               mp_error_message());
    }
}

mp_status mp__stream_heap_current(arena *a, void *key, stream_heap **out) {
    stream_heap *heap = look_up(a, key);
    if (heap != NULL && stream_heap_is_left_behind(heap)) {
        leave_behind(a, heap);
        heap = NULL;
    }
    if (heap == NULL) {
        return add_for(a, key, out);
    }
    if (heap->gone) {
        return revive(a, heap, out);
    }
    *out = heap;
    return MP_OK;
}

static mp_status detour(arena *a, void *key, stream_heap **out) {
    arena_lock(a);
    const mp_status status = mp__stream_heap_current(a, key, out);
    if (status == MP_OK && (*out)->capture != NULL) {
        *out = (*out)->capture;
    }
    arena_unlock(a);
    return status;
}

stream_heap *mp__stream_heap_known(const arena *a, void *key) {
    if (key == MP_NO_STREAM) {
        return stream_heap_at(a, 0);
    }
    stream_heap *heap = look_up(a, key);
    return heap != NULL && !stream_heap_is_left_behind(heap) ? heap : NULL;
}

/* The heap that a key most likely has; NULL where it has none. */
static stream_heap *guess(const arena *a, void *key) {
    if (key == MP_NO_STREAM) {
        return stream_heap_at(a, 0);
    }
    const size_t slot = find(a, key);
    return slot < HEAP_SLOTS ? heap_in(a, slot) : NULL;
}

stream_heap *mp__stream_heap_try(arena *a, void *key) {
    stream_heap *heap = guess(a, key);
    if (heap != NULL) {
        spin_lock(&heap->lock);
        if (__builtin_expect(stream_heap_is_for(heap, key), true)) {
            return heap;
        }
        spin_unlock(&heap->lock);
    }
    return NULL;
}

mp_status mp__stream_heap_lock(arena *a, void *key, stream_heap **out) {
    stream_heap *heap = mp__stream_heap_try(a, key);
    if (heap != NULL) {
        *out = heap;
        return MP_OK;
    }
    MP_TRY(detour(a, key, out));
    spin_lock(&(*out)->lock);
    return MP_OK;
}

mp_status mp__stream_heap_now(arena *a, void *key, stream_heap **out) {
    MP_TRY(mp__stream_heap_lock(a, key, out));
    spin_unlock(&(*out)->lock);
    return MP_OK;
}

/* ---- all of them ---- */

void mp__stream_heaps_lock(arena *a) {
    for (size_t i = 0; i < stream_heap_count_of(a); i++) {
        spin_lock(&stream_heap_at(a, (unsigned)i)->lock);
    }
}

void mp__stream_heaps_unlock(arena *a) {
    for (size_t i = stream_heap_count_of(a); i-- > 0;) {
        spin_unlock(&stream_heap_at(a, (unsigned)i)->lock);
    }
}
