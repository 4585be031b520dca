/* shelf.c - the shelf of a lane: free chunks kept apart, unmerged, for the next request of their
 * size on that stream.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/shelf.h"

#include "pool/arena/coalesce.h"

bool mp__shelf_put(const arena *a, lane *l, chunk *c) {
    const int class = class_of(c->units);
    chunk_set_state(c, CHUNK_KEPT);
    c->epoch = l->epoch;
    c->link = l->shelf[class];
    l->shelf[class] = c;
    l->shelf_filled[class / 64] |= (uint64_t)1 << (class % 64);
    l->shelf_bytes += chunk_bytes(c);
    l->shelf_count++;
    return l->shelf_bytes > a->options.stream_cache_bytes;
}

static chunk *pop(lane *l, int class, chunk **link) {
    chunk *c = *link;
    *link = c->link;
    c->link = NULL;
    if (l->shelf[class] == NULL) {
        l->shelf_filled[class / 64] &= ~((uint64_t)1 << (class % 64));
    }
    l->shelf_bytes -= chunk_bytes(c);
    l->shelf_count--;
    return c;
}

/* The first class from `class` on, up to `last`, that has chunks; -1 where none has, or `class` is
 * beyond `last`. */
static int next_filled(const lane *l, int class, int last) {
    for (int word = class / 64; word <= last / 64; word++) {
        const uint64_t from = word == class / 64 ? UINT64_MAX << (class % 64) : UINT64_MAX;
        const uint64_t bits = l->shelf_filled[word] & from;
        if (bits != 0) {
            const int found = word * 64 + __builtin_ctzll(bits);
            return found <= last ? found : -1;
        }
    }
    return -1;
}

chunk *mp__shelf_take(lane *l, uint32_t units) {
    enum { LOOK = 4, SLACK = 8 }; /* up to an eighth more than was asked for saves a search */
    const uint32_t eighth = units / SLACK;
    const uint32_t most = units + (eighth < l->slack ? eighth : l->slack);
    const int last = class_of(most < SHELF_UNITS_MAX ? most : SHELF_UNITS_MAX);
    for (int class = next_filled(l, class_of(units), last); class >= 0;
         class = next_filled(l, class + 1, last)) {
        chunk **link = &l->shelf[class];
        for (int i = 0; i < LOOK && *link != NULL; i++, link = &(*link)->link) {
            if ((*link)->units >= units && (*link)->units <= most) {
                return pop(l, class, link);
            }
        }
    }
    return NULL;
}

/* Puts chunks that are MOVING and linked to each other into the bins. Returns how many they are. */
static size_t release_all(arena *a, chunk *taken) {
    size_t count = 0;
    for (chunk *c = taken, *next = NULL; c != NULL; c = next, count++) {
        next = c->link;
        mp__chunk_release(a, c);
    }
    return count;
}

/* Takes up to `count` chunks off the shelf, linked to each other. */
static chunk *take_some(lane *l, size_t count) {
    chunk *taken = NULL;
    spin_lock(&l->lock);
    while (count > 0 && l->shelf_count > 0) {
        const int next = next_filled(l, l->shelf_next, SHELF_CLASSES - 1);
        l->shelf_next = next >= 0 ? next : next_filled(l, 0, SHELF_CLASSES - 1);
        chunk *c = pop(l, l->shelf_next, &l->shelf[l->shelf_next]);
        chunk_set_state(c, CHUNK_MOVING);
        c->link = taken;
        taken = c;
        count--;
    }
    spin_unlock(&l->lock);
    return taken;
}

size_t mp__shelf_clear(arena *a, lane *l, bool all) {
    enum { SOME = 32 };
    return release_all(a, take_some(l, all ? SIZE_MAX : SOME));
}

/* Chunks of a class lie in the order of their frees, so the first is of the last epoch: a class
 * that has one of a later epoch is in use right now, and left alone. */
static bool is_at_rest(const lane *l, int class, uint64_t epoch_max) {
    return l->index == 0 || l->shelf[class]->epoch <= epoch_max;
}

/* The smallest chunk of a class that fits, off the shelf; NULL where none does. */
static chunk *take_smallest(lane *l, int class, uint32_t units) {
    chunk **best = NULL;
    for (chunk **link = &l->shelf[class]; *link != NULL; link = &(*link)->link) {
        if ((*link)->units >= units && (best == NULL || (*link)->units < (*best)->units)) {
            best = link;
        }
    }
    return best != NULL ? pop(l, class, best) : NULL;
}

bool mp__shelf_offer(arena *a, lane *l, uint32_t units, uint64_t epoch_max) {
    chunk *c = NULL;
    spin_lock(&l->lock);
    for (int class = next_filled(l, class_of(units), SHELF_CLASSES - 1); class >= 0 && c == NULL;
         class = next_filled(l, class + 1, SHELF_CLASSES - 1)) {
        c = is_at_rest(l, class, epoch_max) ? take_smallest(l, class, units) : NULL;
    }
    if (c != NULL) {
        chunk_set_state(c, CHUNK_MOVING);
    }
    spin_unlock(&l->lock);
    return release_all(a, c) > 0;
}

size_t mp__shelf_offer_all(arena *a, lane *l, uint64_t epoch_max) {
    chunk *taken = NULL;
    spin_lock(&l->lock);
    for (int class = next_filled(l, 0, SHELF_CLASSES - 1); class >= 0;
         class = next_filled(l, class + 1, SHELF_CLASSES - 1)) {
        while (l->shelf[class] != NULL && is_at_rest(l, class, epoch_max)) {
            chunk *c = pop(l, class, &l->shelf[class]);
            chunk_set_state(c, CHUNK_MOVING);
            c->link = taken;
            taken = c;
        }
    }
    spin_unlock(&l->lock);
    return release_all(a, taken);
}
