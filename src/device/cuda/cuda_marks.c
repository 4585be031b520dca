/* cuda_marks.c - for whom driver calls and nodes of graphs were made.
 *
 * Calls have numbers that count up, and their records come soon after, so a ring of the last ones
 * is enough. Threads write different slots; a reader that finds its number before and after has
 * read what belongs to it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_marks.h"

#include "device/profile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { CALLS = 1 << 18, NODES_MIN = 1024 };

/* ---- marks of calls ---- */

typedef struct call_mark {
    _Atomic uint32_t correlation;
    _Atomic bool fresh; /* no record of it has been seen */
    _Atomic uint64_t tag;
} call_mark;

static call_mark *ring; /* made once and kept: a callback may still run when listening ends */

mp_status mp__cuda_marks_open(void) {
    if (ring == NULL) {
        ring = calloc(CALLS, sizeof *ring);
    }
    return ring != NULL ? MP_OK
                        : MP_FAIL(OUT_OF_MEMORY,
                                  "cannot allocate host memory for the marks of %d calls", CALLS);
}

void mp__cuda_call_mark(uint32_t correlation, uint64_t tag) {
    call_mark *slot = &ring[correlation % CALLS];
    atomic_store_explicit(&slot->correlation, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->tag, tag, memory_order_release);
    atomic_store_explicit(&slot->fresh, true, memory_order_relaxed);
    atomic_store_explicit(&slot->correlation, correlation, memory_order_release);
}

uint64_t mp__cuda_call_tag(uint32_t correlation) {
    call_mark *slot = &ring[correlation % CALLS];
    if (atomic_load_explicit(&slot->correlation, memory_order_acquire) != correlation) {
        return 0;
    }
    const uint64_t tag = atomic_load_explicit(&slot->tag, memory_order_acquire);
    if (atomic_exchange_explicit(&slot->fresh, false, memory_order_relaxed)) {
        mp__profile_expect(tag, -1);
    }
    return atomic_load_explicit(&slot->correlation, memory_order_acquire) == correlation ? tag : 0;
}

/* ---- marks of nodes of graphs ---- */

typedef struct node_mark {
    uint64_t node, tag; /* node 0: a free slot; tag 0: the node has gone */
} node_mark;

static struct {
    pthread_mutex_t lock;
    node_mark *items; /* owned; open addressing */
    size_t count, slots;
} nodes = {.lock = PTHREAD_MUTEX_INITIALIZER};

static node_mark *node_slot(uint64_t node) {
    size_t at = (size_t)(node * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (nodes.slots - 1);
    while (nodes.items[at].node != 0 && nodes.items[at].node != node) {
        at = (at + 1) & (nodes.slots - 1);
    }
    return &nodes.items[at];
}

static bool nodes_grow(void) {
    if (nodes.count * 2 < nodes.slots) {
        return true;
    }
    node_mark *old = nodes.items;
    const size_t old_slots = nodes.slots;
    const size_t slots = old_slots != 0 ? old_slots * 2 : NODES_MIN;
    node_mark *items = calloc(slots, sizeof *items);
    if (items == NULL) {
        return false;
    }
    nodes.items = items;
    nodes.slots = slots;
    nodes.count = 0;
    for (size_t i = 0; i < old_slots; i++) {
        if (old[i].tag != 0) {
            *node_slot(old[i].node) = old[i];
            nodes.count++;
        }
    }
    free(old);
    return true;
}

void mp__cuda_node_mark(uint64_t node, uint64_t tag) {
    (void)pthread_mutex_lock(&nodes.lock);
    if (node != 0 && nodes_grow()) {
        node_mark *slot = node_slot(node);
        nodes.count += slot->node == 0;
        *slot = (node_mark){.node = node, .tag = tag};
    }
    (void)pthread_mutex_unlock(&nodes.lock);
}

uint64_t mp__cuda_node_tag(uint64_t node) {
    (void)pthread_mutex_lock(&nodes.lock);
    const uint64_t tag = nodes.slots != 0 && node != 0 ? node_slot(node)->tag : 0;
    (void)pthread_mutex_unlock(&nodes.lock);
    return tag;
}

void mp__cuda_marks_clear(void) {
    (void)pthread_mutex_lock(&nodes.lock);
    free(nodes.items);
    nodes.items = NULL;
    nodes.count = nodes.slots = 0;
    (void)pthread_mutex_unlock(&nodes.lock);
}
