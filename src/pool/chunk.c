/* chunk.c - slabs of chunk records. SPDX-License-Identifier: Apache-2.0 */
#include "pool/chunk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SLAB_CHUNKS = 1023 }; /* and one line for the slab's head: 64 KiB */

static_assert(sizeof(chunk) == 64, "a chunk's record is one cache line");

typedef struct chunk_slab {
    struct chunk_slab *next;
    _Alignas(64) chunk chunks[SLAB_CHUNKS];
} chunk_slab;

static mp_status add_slab(chunk_store *store) {
    chunk_slab *slab = aligned_alloc(64, sizeof *slab);
    if (slab == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for the records of %d chunks", SLAB_CHUNKS);
    }
    memset(slab, 0, sizeof *slab);
    slab->next = store->slabs;
    store->slabs = slab;
    for (size_t i = SLAB_CHUNKS; i-- > 0;) { /* so that they are taken in order */
        mp__chunk_put(store, &slab->chunks[i]);
    }
    return MP_OK;
}

mp_status mp__chunk_prepare(chunk_store *store, size_t count) {
    while (store->unused_count < count) {
        MP_TRY(add_slab(store));
    }
    return MP_OK;
}

chunk *mp__chunk_take(chunk_store *store) {
    chunk *c = store->unused;
    assert(c != NULL);
    store->unused = c->link;
    store->unused_count--;
    c->link = NULL;
    return c;
}

void mp__chunk_put(chunk_store *store, chunk *c) {
    atomic_store_explicit(&c->addr, 0, memory_order_relaxed);
    chunk_set_state(c, CHUNK_UNUSED);
    c->prev = c->next = c->back = NULL;
    c->link = store->unused;
    store->unused = c;
    store->unused_count++;
}

void mp__chunk_store_close(chunk_store *store) {
    for (chunk_slab *slab = store->slabs, *next = NULL; slab != NULL; slab = next) {
        next = slab->next;
        free(slab);
    }
    *store = (chunk_store){NULL, NULL, 0};
}
