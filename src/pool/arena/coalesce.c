/* coalesce.c - chunks cut and joined, and free ones brought together: neighbours of a lane at once,
 * those of different lanes when they have become idle.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/coalesce.h"

#include <assert.h>

chunk *mp__chunk_split(arena *a, chunk *c, uint32_t units) {
    assert(units < c->units);
    chunk *rest = mp__chunk_take(&a->chunks.shared);
    atomic_store_explicit(&rest->addr, chunk_addr(c) + (size_t)units * UNIT, memory_order_relaxed);
    rest->units = c->units - units;
    rest->epoch = c->epoch;
    chunk_set_lane(rest, chunk_lane(c));
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

chunk *mp__chunk_cut(arena *a, lane *l, chunk *c, uint32_t units) {
    if (units == c->units && mp__chunk_is_from(c, &l->records)) {
        return c;
    }
    chunk *front = mp__chunk_take(&l->records);
    const mp_addr addr = chunk_addr(c);
    atomic_store_explicit(&front->addr, addr, memory_order_relaxed);
    chunk_set_lane(front, chunk_lane(c));
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
           chunk_lane(neighbour) == chunk_lane(c);
}

void mp__chunk_bin(arena *a, chunk *c) {
    lane *l = lane_of(a, c);
    if (l->gone) {
        l = lane_at(a, 0);
        chunk_set_lane(c, 0);
    }
    if (l->index == 0) {
        c->epoch = 0;
    }
    l->binned = c->epoch > l->binned ? c->epoch : l->binned;
    if (joins(c, c->prev)) {
        chunk *left = c->prev;
        mp__bins_remove(&l->bins, left);
        left->epoch = c->epoch > left->epoch ? c->epoch : left->epoch;
        mp__chunk_join(left, c);
        c = left;
    }
    if (joins(c, c->next)) {
        chunk *right = c->next;
        mp__bins_remove(&l->bins, right);
        c->epoch = right->epoch > c->epoch ? right->epoch : c->epoch;
        mp__chunk_join(c, right);
    }
    chunk_set_state(c, CHUNK_FREE);
    mp__bins_add(&l->bins, c);
}

void mp__chunk_release(arena *a, chunk *c) {
    mp__address_remove(&a->addresses, c);
    mp__chunk_bin(a, c);
}

bool mp__chunk_is_idle(const arena *a, const chunk *c) {
    return chunk_lane(c) == 0 || c->epoch <= lane_of(a, c)->reached;
}
