/* chunk.c - slabs of chunk records, given out in runs.
 *
 * A slab is aligned to its size, so that a record finds the slab, and the list its run is for. A
 * run is a page: what a thread touches lies on few.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/chunk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SLAB_BYTES = 256 << 10, RUN_CHUNKS = 64, SLAB_RUNS = SLAB_BYTES / 64 / RUN_CHUNKS };

static_assert(sizeof(chunk) == 64, "a chunk's record is one cache line");

typedef struct run {
    chunk chunks[RUN_CHUNKS];
} run;

typedef union chunk_slab {
    struct {
        union chunk_slab *next;
        chunk_list *home[SLAB_RUNS]; /* of each run */
    } head;
    run runs[SLAB_RUNS]; /* the first is where the head lies */
} chunk_slab;

static_assert(sizeof(chunk_slab) == SLAB_BYTES, "a slab is as large as its alignment");
static_assert(sizeof(((chunk_slab *)0)->head) <= sizeof(run), "the head takes one run");

static chunk_slab *slab_of(const chunk *c) {
    return (chunk_slab *)((uintptr_t)c & ~(uintptr_t)(SLAB_BYTES - 1));
}

static chunk_list *home_of(const chunk *c) {
    return slab_of(c)->head.home[((uintptr_t)c % SLAB_BYTES) / sizeof(run)];
}

static mp_status add_slab(chunk_store *store) {
    chunk_slab *slab = aligned_alloc(SLAB_BYTES, sizeof *slab);
    if (slab == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the records of %d chunks",
                       (SLAB_RUNS - 1) * RUN_CHUNKS);
    }
    memset(&slab->head, 0, sizeof slab->head); /* the rest is not touched before it is used */
    slab->head.next = store->slabs;
    store->slabs = slab;
    store->runs_left = SLAB_RUNS - 1;
    return MP_OK;
}

/* Gives a run to a list for good. */
static mp_status add_run(chunk_store *store, chunk_list *list) {
    if (store->runs_left == 0) {
        MP_TRY(add_slab(store));
    }
    const size_t index = SLAB_RUNS - store->runs_left--;
    run *fresh = &store->slabs->runs[index];
    memset(fresh, 0, sizeof *fresh);
    store->slabs->head.home[index] = list;
    for (size_t i = RUN_CHUNKS; i-- > 0;) { /* so that they are taken in order */
        mp__chunk_put(&fresh->chunks[i]);
    }
    return MP_OK;
}

mp_status mp__chunk_prepare(chunk_store *store, chunk_list *list, size_t count) {
    while (list->count < count) {
        MP_TRY(add_run(store, list));
    }
    return MP_OK;
}

chunk *mp__chunk_take(chunk_list *list) {
    chunk *c = list->first;
    assert(c != NULL);
    list->first = c->link;
    list->count--;
    c->link = NULL;
    return c;
}

void mp__chunk_put(chunk *c) {
    chunk_list *list = home_of(c);
    atomic_store_explicit(&c->addr, 0, memory_order_relaxed);
    chunk_set_state(c, CHUNK_UNUSED);
    c->prev = c->next = c->back = NULL;
    c->link = list->first;
    list->first = c;
    list->count++;
}

bool mp__chunk_is_from(const chunk *c, const chunk_list *list) {
    return home_of(c) == list;
}

void mp__chunk_store_close(chunk_store *store) {
    for (chunk_slab *slab = store->slabs, *next = NULL; slab != NULL; slab = next) {
        next = slab->head.next;
        free(slab);
    }
    *store = (chunk_store){.slabs = NULL};
}
