/* coalesce.c - chunks cut and joined, and free ones brought together: neighbours of a heap at once,
 * those of different heaps when they have become idle.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/coalesce.h"

#include <assert.h>

chunk *mp__chunk_split(arena *a, chunk *c, uint32_t units) {
    assert(units < c->units);
    chunk *rest = mp__chunk_take(&a->chunks.shared);
    atomic_store_explicit(&rest->addr, chunk_addr(c) + (size_t)units * UNIT, memory_order_relaxed);
    rest->units = c->units - units;
    rest->epoch = c->epoch;
    chunk_set_heap(rest, chunk_heap(c));
    chunk_set_state(rest, chunk_state_of(c));
    rest->prev = c;
    rest->next = c->next;
    if (rest->next != NULL) {
        rest->next->prev = rest;
    }
    c->next = rest;
    c->units = units;
    return rest;
}

chunk *mp__chunk_cut(arena *a, stream_heap *heap, chunk *c, uint32_t units) {
    if (units == c->units && mp__chunk_is_from(c, &heap->records)) {
        return c;
    }
    chunk *front = mp__chunk_take(&heap->records);
    const mp_addr addr = chunk_addr(c);
    atomic_store_explicit(&front->addr, addr, memory_order_relaxed);
    chunk_set_heap(front, chunk_heap(c));
    front->epoch = c->epoch;
    front->units = units;
    front->prev = c->prev;
    if (front->prev != NULL) {
        front->prev->next = front;
    } else {
        mp__region_set_first(a, addr, front);
    }
    if (units < c->units) {
        front->next = c;
        c->prev = front;
        c->units -= units;
        atomic_store_explicit(&c->addr, addr + chunk_bytes(front), memory_order_relaxed);
        return front;
    }
    front->next = c->next;
    if (front->next != NULL) {
        front->next->prev = front;
    }
    mp__chunk_put(c);
    return front;
}

void mp__chunk_join(chunk *left, chunk *right) {
    left->units += right->units;
    left->next = right->next;
    if (right->next != NULL) {
        right->next->prev = left;
    }
    mp__chunk_put(right);
}

static bool joins(const chunk *c, const chunk *neighbour) {
    return neighbour != NULL && chunk_state_of(neighbour) == CHUNK_FREE &&
           chunk_heap(neighbour) == chunk_heap(c);
}

void mp__chunk_bin(arena *a, chunk *c) {
    stream_heap *heap = stream_heap_of(a, c);
    if (heap->gone) {
        heap = stream_heap_at(a, 0);
        chunk_set_heap(c, 0);
    }
    if (heap->index == 0) {
        c->epoch = 0;
    }
    heap->binned = MP_MAX(c->epoch, heap->binned);
    if (joins(c, c->prev)) {
        chunk *left = c->prev;
        mp__bins_remove(&heap->bins, left);
        left->epoch = MP_MAX(c->epoch, left->epoch);
        mp__chunk_join(left, c);
        c = left;
    }
    if (joins(c, c->next)) {
        chunk *right = c->next;
        mp__bins_remove(&heap->bins, right);
        c->epoch = MP_MAX(right->epoch, c->epoch);
        mp__chunk_join(c, right);
    }
    chunk_set_state(c, CHUNK_FREE);
    mp__bins_add(&heap->bins, c);
}

void mp__chunk_release(arena *a, chunk *c) {
    mp__address_remove(&a->addresses, c);
    mp__chunk_bin(a, c);
}

bool mp__chunk_is_idle(const arena *a, const chunk *c) {
    return chunk_heap(c) == 0 || c->epoch <= stream_heap_of(a, c)->reached;
}
