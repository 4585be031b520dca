/* arena.h - the arena: regions cut into chunks, the heaps of streams that chunks are freed to, and
 * what guards them.
 *
 *     arena   one for each memory of a device; its lock guards regions, bins, order and limits
 *       heap    one for each stream (heap 0: no stream); its lock guards its shelf and its counts
 *         shelf   free chunks kept apart for the next request of their size on that stream
 *         bins    all other free chunks of that stream, merged with their neighbours
 *       region  one allocation of the device, tiled by chunks
 *
 * A free chunk carries its heap and an epoch of it: any other stream may use it once that epoch has
 * passed (`reached`), or after an event recorded at or after it (`seen` by the asking heap).
 *
 * Locks, in this order: arena, heaps (by index), trace. The short way of a request and of a free
 * takes the heap's lock only. A chunk belongs to whoever has put it in the state it is in: the
 * comments of chunk_state say which lock that is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_ARENA_H
#define MP_POOL_ARENA_H

#include "pool/arena/address_map.h"
#include "pool/arena/arena_check.h"
#include "pool/arena/pressure.h"
#include "pool/arena/region.h"
#include "pool/arena/source.h"
#include "pool/arena/stream_heap.h"
#include "pool/arena_option.h"
#include "pool/mempool/mempool.h"
#include "pool/pool_mode.h"
#include "pool/trace/trace.h"

#include <pthread.h>

struct arena {
    /* set once */
    const pool_mode *mode;
    mp_device *device; /* borrowed */
    source source;
    arena_options options;
    size_t border;        /* bytes before a block that belong to its guard; 0 without */
    bool notes;           /* the device wants to be told of blocks */
    bool expandable;      /* regions are addresses, with pages mapped on demand */
    bool direct;          /* every block is an allocation of the external manager */
    mp__mempool *mempool; /* owned by its mode; NULL in others */
    mp_trace *trace;      /* owned */

    struct {
        _Atomic(stream_heap *) heap;
        _Atomic(void *) key;
    } heap_slots[HEAP_SLOTS];                /* once filled, a slot is never empty again */
    _Atomic(stream_heap *) heaps[HEAPS_MAX]; /* owned; by index */
    atomic_size_t heap_count;
    address_map addresses;
    atomic_size_t total; /* bytes reserved from the device */

    pthread_mutex_t lock; /* guards all below */
    chunk_store chunks;
    region *regions; /* owned; by address */
    size_t region_count, region_capacity;
    size_t next_extension; /* the least size of the next region */
    bins holes;            /* unmapped chunks of expandable regions */
    chunk *waiting;        /* freed, still used by a declared stream */
    size_t waiting_count;
    chunk *reserved; /* allocated outside the arena */
    chunk *retired;  /* reserved chunks freed during a capture, to be given back after it, or when
                      * the graph that they were allocated in is gone */
    mp_event *spare_events[HEAP_EVENTS_MAX];
    size_t spare_event_count;
    mp_capture *captures;    /* owned, until released */
    unsigned captures_open;  /* streams being captured: the device must not be waited for */
    uint64_t peak, assigned; /* see usage.c */
    atomic_bool crowded;     /* the same */
    bool is_unsound;         /* arena.check has found a breach */
    mp_pool_stats counts;    /* those that the arena's lock guards; the rest is summed up */
    hook *hooks;             /* owned */
    size_t hook_count, hook_capacity;
    pthread_cond_t hook_done;
    char clients[MP_CLIENTS_MAX][MP_CLIENT_NAME_MAX];
    size_t client_count;

    /* guarded by the registry */
    arena *next;
    unsigned references;
    arena_told told; /* options that later openers wanted otherwise */
};

static inline void arena_lock(arena *a) {
    (void)pthread_mutex_lock(&a->lock);
}

static inline void arena_unlock(arena *a) {
    if (__builtin_expect(a->options.check, false)) {
        mp__arena_unlock_checked(a);
    } else {
        (void)pthread_mutex_unlock(&a->lock);
    }
}

static inline stream_heap *stream_heap_at(const arena *a, unsigned index) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->heaps[index], memory_order_acquire);
}

static inline stream_heap *stream_heap_of(const arena *a, const chunk *c) {
    return stream_heap_at(a, chunk_heap(c));
}

static inline size_t stream_heap_count_of(const arena *a) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->heap_count, memory_order_acquire);
}

/* The units that a block of `size` bytes takes. False: more than any device has. */
static inline bool units_of(const arena *a, size_t size, uint32_t *out) {
    if (size > UNITS_MAX * UNIT - 2 * a->border) {
        return false;
    }
    *out = (uint32_t)MP_CEIL_DIV(size + 2 * a->border, UNIT);
    return true;
}

/* Tells a device that looks for breaches which blocks are allocated. */
static inline void arena_note(const arena *a, mp_addr addr, size_t size, bool live) {
    if (a->notes) {
        a->device->ops->note(a->device, addr, size, live);
    }
}

static inline size_t arena_total(const arena *a) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->total, memory_order_relaxed);
}

mp_status mp__arena_create(const source *from, const arena_options *options, arena **out);
void mp__arena_destroy(arena *a);

mp_status mp__arena_alloc(arena *a, size_t size, void *native, uint8_t client, mp_addr *out);
/* `native` MP_SAME_STREAM: the one it was allocated on. */
mp_status mp__arena_free(arena *a, mp_addr addr, void *native);
mp_status mp__arena_shrink(arena *a, size_t *released);
/* Fails: what `what` was to be done with is not an allocated block. */
mp_status mp__arena_refuse(const arena *a, mp_addr addr, const char *what);
/* Locks the heap of the allocated block that begins at `addr`; gives both. NULL: there is none. */
chunk *mp__arena_lock_block(arena *a, mp_addr addr, stream_heap **out);
/* The same without the arena's lock: where NULL, there may be one all the same. */
chunk *mp__arena_try_block(arena *a, mp_addr addr, stream_heap **out);

#endif
