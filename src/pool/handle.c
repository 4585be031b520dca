/* handle.c - the queue of closed handles.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/handle.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mp_pool *first, *last; /* closed, the longest ago first */
static size_t closed_count;

/* The one that was closed the longest ago, where there are enough; else NULL. */
static mp_pool *take_closed(void) {
    mp_pool *pool = NULL;
    (void)pthread_mutex_lock(&lock);
    if (closed_count > MP_CLOSED_HANDLES_KEPT) {
        pool = first;
        first = pool->next;
        closed_count--;
    }
    (void)pthread_mutex_unlock(&lock);
    return pool;
}

mp_pool *mp__handle_open(arena *a, uint8_t client) {
    mp_pool *pool = take_closed();
    if (pool == NULL) {
        pool = malloc(sizeof *pool);
    }
    if (pool != NULL) {
        pool->next = NULL;
        pool->client = client;
        atomic_store_explicit(&pool->arena, a, memory_order_release);
    }
    return pool;
}

arena *mp__handle_close(mp_pool *pool) {
    arena *a = atomic_exchange_explicit(&pool->arena, NULL, memory_order_acq_rel);
    if (a == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&lock);
    if (first == NULL) {
        first = pool;
    } else {
        last->next = pool;
    }
    last = pool;
    closed_count++;
    (void)pthread_mutex_unlock(&lock);
    return a;
}
