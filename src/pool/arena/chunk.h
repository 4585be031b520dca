/* chunk.h - the record of one piece of a region, and the store that records come from.
 *
 * The chunks of a region tile it: each knows its neighbours. A record is one cache line and is
 * never given back to the system while its arena lives, so a stale pointer to one may be read (not
 * trusted): that lets a free find its chunk without a lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_CHUNK_H
#define MP_POOL_CHUNK_H

#include "pool/arena/size_class.h"
#include "pool/trace/trace_label.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef enum chunk_state {
    CHUNK_UNUSED,   /* a record without memory */
    CHUNK_LENT,     /* guarded by the lock of its heap */
    CHUNK_KEPT,     /* free, in its heap's shelf; guarded by the lock of its heap */
    CHUNK_MOVING,   /* taken by the thread that frees it, on its way to where it belongs */
    CHUNK_FREE,     /* in the bins of its heap; from here on guarded by the arena's lock */
    CHUNK_WAITING,  /* freed, in the list of those that a declared stream may still use */
    CHUNK_UNMAPPED, /* addresses without memory */
    CHUNK_RESERVED, /* allocated outside the arena; not part of a region */
} chunk_state;

typedef struct use use; /* a further stream that uses an allocated chunk, see order.c */

typedef struct chunk chunk;
struct chunk {
    _Atomic(mp_addr) addr;
    union {
        chunk *prev;             /* in the region, by address; guarded by the arena's lock */
        uintptr_t reserve_label; /* of a reserved chunk, which has no neighbours: what it is for */
    };
    chunk *next; /* likewise; of a reserved chunk NULL */
    union {
        struct {
            chunk *link, *back; /* in a bin or a list */
        };
        struct {                  /* of an allocated chunk: what its memory was used for before */
            uint64_t after_epoch; /* must have passed before any other stream first uses it */
            uint32_t after_heap;  /* whose epoch that is */
            uint32_t label;       /* and what the chunk is for now */
        };
    };
    uint64_t requested; /* bytes requested; of an allocated chunk */
    union {
        use *uses;      /* of an allocated or waiting chunk; owned */
        uint64_t epoch; /* of a free chunk: the moment of its heap that must have passed */
    };
    uint32_t units;
    atomic_uint_least16_t heap; /* whose order it follows; index in the arena */
    uint8_t client;             /* of an allocated chunk */
    atomic_uint_least8_t state;
};

static inline size_t chunk_bytes(const chunk *c) {
    return (size_t)c->units * UNIT;
}

static inline mp_addr chunk_addr(const chunk *c) {
    return atomic_load_explicit(&c->addr, memory_order_relaxed);
}

static inline chunk_state chunk_state_of(const chunk *c) {
    return (chunk_state)atomic_load_explicit(&c->state, memory_order_relaxed);
}

static inline void chunk_set_state(chunk *c, chunk_state state) {
    atomic_store_explicit(&c->state, (uint_least8_t)state, memory_order_relaxed);
}

static inline unsigned chunk_heap(const chunk *c) {
    return atomic_load_explicit(&c->heap, memory_order_relaxed);
}

static inline void chunk_set_heap(chunk *c, unsigned heap) {
    atomic_store_explicit(&c->heap, (uint_least16_t)heap, memory_order_relaxed);
}

/* Makes a free chunk in no list one that is about to be allocated: MOVING until it is counted. */
static inline void chunk_lend(chunk *c, unsigned heap, size_t size, uint8_t client) {
    c->after_heap = chunk_heap(c);
    c->after_epoch = c->epoch;
    c->label = mp__label_now();
    chunk_set_heap(c, heap);
    c->requested = size;
    c->client = client;
    c->uses = NULL;
    chunk_set_state(c, CHUNK_MOVING);
}

/* What an allocated or reserved chunk is for. */
static inline uint16_t chunk_label(const chunk *c) {
    return (uint16_t)(chunk_state_of(c) == CHUNK_RESERVED ? c->reserve_label : c->label);
}

/* ---- records; guarded by the arena's lock ----
 * Records of chunks allocated on one heap come from runs of their own: processors fetch pairs of
 * cache lines, and threads that write records beside each other take them from each other. */

typedef struct chunk_list { /* unused records */
    chunk *first;
    size_t count;
} chunk_list;

typedef struct chunk_store {
    union chunk_slab *slabs; /* owned */
    size_t runs_left;        /* in the first */
    chunk_list shared;       /* for chunks that are of no heap yet */
} chunk_store;

/* Makes sure that the next `count` calls of mp__chunk_take succeed. `list` must stay where it is
 * for as long as the store. Fails: OUT_OF_MEMORY. */
mp_status mp__chunk_prepare(chunk_store *store, chunk_list *list, size_t count);
/* An unused record, all zero but for its links; one that was prepared for. */
chunk *mp__chunk_take(chunk_list *list);
/* Puts a record back into the list that it came from. */
void mp__chunk_put(chunk *c);
bool mp__chunk_is_from(const chunk *c, const chunk_list *list);
void mp__chunk_store_close(chunk_store *store);

#endif
