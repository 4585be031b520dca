/* stream_heap.h - a stream's heap: what an arena keeps for one stream, and how it is found by the
 * stream's handle. "Heap" alone means that of a stream.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_STREAM_HEAP_H
#define MP_POOL_STREAM_HEAP_H

#include "base/thread_number.h"
#include "pool/arena/bins.h"
#include "pool/arena/spin.h"
#include "pool/layout.h"

#include <stdatomic.h>

enum {
    HEAPS_MAX = 4096,
    HEAP_SLOTS = 4 * HEAPS_MAX, /* of the table by handle */
    SHELF_UNITS_MAX = 4096,     /* 1 MiB: larger chunks are merged at once */
    SHELF_CLASSES = EXACT_CLASSES + (12 - 6) * (1 << STEP_BITS) + 1,
    HEAP_EVENTS_MAX = 8, /* recorded and not known to be reached */
};

typedef struct arena arena;
typedef struct stream_heap stream_heap;

typedef struct tally { /* of one client on one heap, where its blocks count until they are freed */
    int64_t in_use, requested, blocks;
    uint64_t allocs;
} tally;

typedef struct stream_heap_event {
    mp_event *event; /* owned */
    uint64_t epoch;  /* chunks freed up to it are safe once the event is reached */
} stream_heap_event;

struct stream_heap {
    _Alignas(128) mp_spin lock; /* of which other threads' heaps are no part */
    unsigned index;
    void *key;     /* in the table of heaps; guarded by both locks; NULL is the legacy stream */
    void *native;  /* the stream's handle; of a capture: of the stream that was captured */
    bool in_table; /* found by its key; guarded by the arena's lock */
    bool gone;     /* its stream was destroyed; what is freed goes to heap 0 */
    unsigned life; /* how many streams, or captures, have come to an end on it */
    bool detour;   /* gone or capturing: the short way must not be taken */
    stream_heap *capture; /* while its stream is captured: where blocks come from and go to */
    bool is_capture;      /* the memory of a captured graph */
    bool ended;      /* the default stream of a thread that has ended; gone once that is reached */
    uint64_t thread; /* whose default stream it is: only that thread can reach it; else 0 */

    uint64_t epoch;                                   /* the present one; guarded by `lock` */
    uint64_t shelf_filled[(SHELF_CLASSES + 63) / 64]; /* one bit a class */
    chunk *shelf[SHELF_CLASSES];
    size_t shelf_bytes, shelf_count;
    uint32_t slack; /* the most units by which a chunk of the shelf may exceed a request */
    int shelf_next; /* class that is cleared next when the shelf is full */

    /* `in_use` never exceeds `allowance`, see usage.c. */
    uint64_t in_use, allowance;
    uint64_t frees, alloc_size_max;
    tally clients[MP_CLIENTS_MAX];
    atomic_uint guests; /* a bit for each client that had blocks of other heaps used here */

    /* guarded by the arena's lock */
    bins bins;
    chunk_list records; /* of chunks allocated on it */
    mp_stream *stream;  /* owned; a wrap of `native`, made on need */
    uint64_t ending;    /* while the device is waited for, see quiesce */
    uint64_t reached;   /* every chunk freed in it or before is free for all */
    uint64_t binned;    /* the last epoch of a chunk that was put into the bins */
    stream_heap_event events[HEAP_EVENTS_MAX]; /* oldest first */
    size_t event_count;
    uint64_t *seen; /* owned; by heap: the epoch of it that this stream has waited for */
    size_t seen_count;
    size_t gathered; /* chunks taken off shelves for it since it grew, see thrift.c */
    unsigned asked;  /* times that streams were asked for it since */
};

/* Whether `key` means another stream by now: the default stream of a thread that began where one
 * that has ended had begun. */
static inline bool stream_heap_is_left_behind(const stream_heap *heap) {
    return __builtin_expect(heap->thread != 0, false) && heap->thread != mp_thread_number();
}

/* Whether its memory is that of a captured graph which is still there, for nobody else to use. */
static inline bool stream_heap_is_graphs(const stream_heap *heap) {
    return heap->is_capture && !heap->gone;
}

/* Whether requests on the stream of `key` may go to `heap` the short way. Under the heap's lock. */
static inline bool stream_heap_is_for(const stream_heap *heap, const void *key) {
    return !heap->detour && heap->key == key && !stream_heap_is_left_behind(heap);
}

/* A block of this client that another heap gave is used on the heap's stream. */
static inline void stream_heap_add_guest(stream_heap *heap, uint8_t client) {
    (void)atomic_fetch_or_explicit(&heap->guests, 1U << client, memory_order_relaxed);
}

/* What the heap of a native stream is found by. */
void *mp__stream_heap_key(const arena *a, void *native);
/* Gives the heap that a request on the stream of `key` goes to, locked: that of the stream, or of
 * the graph that it is captured into. Fails: OUT_OF_MEMORY, UNSUPPORTED (too many streams). */
mp_status mp__stream_heap_lock(arena *a, void *key, stream_heap **out);
/* The heap of `key`, locked, where no other lock is needed to find it; else NULL. */
stream_heap *mp__stream_heap_try(arena *a, void *key);
/* As mp__stream_heap_lock, not locked: where work of the stream belongs that is queued now. */
mp_status mp__stream_heap_now(arena *a, void *key, stream_heap **out);
/* The heap of a key, a fresh one where that of the key belonged to a stream that is gone. Under the
 * arena's lock. Not for MP_NO_STREAM. */
mp_status mp__stream_heap_current(arena *a, void *key, stream_heap **out);
/* The heap of a key, also of a stream that is gone; NULL: it has none. Under the arena's lock. */
stream_heap *mp__stream_heap_known(const arena *a, void *key);
/* A heap that no stream is found by; one used again where there is one without blocks. Under the
 * arena's lock. */
mp_status mp__stream_heap_add(arena *a, stream_heap **out);
/* The heap's stream has no work any more: all that the heap is given from now on goes to heap 0.
 * Under the arena's lock. */
void mp__stream_heap_end(arena *a, stream_heap *heap);
void mp__stream_heap_close(arena *a, stream_heap *heap);
/* Takes and gives the locks of all heaps; under the arena's lock. */
void mp__stream_heaps_lock(arena *a);
void mp__stream_heaps_unlock(arena *a);

#endif
