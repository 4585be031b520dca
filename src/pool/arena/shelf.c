/* shelf.c - the shelf of a stream's heap: free chunks kept apart, unmerged, for the next request of
 * their size on that stream.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/shelf.h"

#include "pool/arena/coalesce.h"

bool mp__shelf_put(const arena *a, stream_heap *heap, chunk *c) {
    const int class = class_of(c->units);
    chunk_set_state(c, CHUNK_KEPT);
    c->epoch = heap->epoch;
    c->link = heap->shelf[class];
    heap->shelf[class] = c;
    heap->shelf_filled[class / 64] |= (uint64_t)1 << (class % 64);
    heap->shelf_bytes += chunk_bytes(c);
    heap->shelf_count++;
    return heap->shelf_bytes > a->options.stream_cache_bytes;
}

static chunk *pop(stream_heap *heap, int class, chunk **link) {
    chunk *c = *link;
    *link = c->link;
    c->link = NULL;
    if (heap->shelf[class] == NULL) {
        heap->shelf_filled[class / 64] &= ~((uint64_t)1 << (class % 64));
    }
    heap->shelf_bytes -= chunk_bytes(c);
    heap->shelf_count--;
    return c;
}

/* The first class from `class` on, up to `last`, that has chunks; -1 where none has, or `class` is
 * beyond `last`. */
static int next_filled(const stream_heap *heap, int class, int last) {
    for (int word = class / 64; word <= last / 64; word++) {
        const uint64_t from = word == class / 64 ? UINT64_MAX << (class % 64) : UINT64_MAX;
        const uint64_t bits = heap->shelf_filled[word] & from;
        if (bits != 0) {
            const int found = word * 64 + __builtin_ctzll(bits);
            return found <= last ? found : -1;
        }
    }
    return -1;
}

chunk *mp__shelf_take(stream_heap *heap, uint32_t units) {
    enum { LOOK = 4, SLACK = 8 }; /* up to an eighth more than was asked for saves a search */
    const uint32_t eighth = units / SLACK;
    const uint32_t most = units + MP_MIN(eighth, heap->slack);
    const int last = class_of(MP_MIN(most, SHELF_UNITS_MAX));
    for (int class = next_filled(heap, class_of(units), last); class >= 0;
         class = next_filled(heap, class + 1, last)) {
        chunk **link = &heap->shelf[class];
        for (int i = 0; i < LOOK && *link != NULL; i++, link = &(*link)->link) {
            if ((*link)->units >= units && (*link)->units <= most) {
                return pop(heap, class, link);
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
static chunk *take_some(stream_heap *heap, size_t count) {
    chunk *taken = NULL;
    spin_lock(&heap->lock);
    while (count > 0 && heap->shelf_count > 0) {
        const int next = next_filled(heap, heap->shelf_next, SHELF_CLASSES - 1);
        heap->shelf_next = next >= 0 ? next : next_filled(heap, 0, SHELF_CLASSES - 1);
        chunk *c = pop(heap, heap->shelf_next, &heap->shelf[heap->shelf_next]);
        chunk_set_state(c, CHUNK_MOVING);
        c->link = taken;
        taken = c;
        count--;
    }
    spin_unlock(&heap->lock);
    return taken;
}

size_t mp__shelf_clear(arena *a, stream_heap *heap, bool all) {
    enum { SOME = 32 };
    return release_all(a, take_some(heap, all ? SIZE_MAX : SOME));
}

/* Chunks of a class lie in the order of their frees, so the first is of the last epoch: a class
 * that has one of a later epoch is in use right now, and left alone. */
static bool is_at_rest(const stream_heap *heap, int class, uint64_t epoch_max) {
    return heap->index == 0 || heap->shelf[class]->epoch <= epoch_max;
}

/* The smallest chunk of a class that fits, off the shelf; NULL where none does. */
static chunk *take_smallest(stream_heap *heap, int class, uint32_t units) {
    chunk **best = NULL;
    for (chunk **link = &heap->shelf[class]; *link != NULL; link = &(*link)->link) {
        if ((*link)->units >= units && (best == NULL || (*link)->units < (*best)->units)) {
            best = link;
        }
    }
    return best != NULL ? pop(heap, class, best) : NULL;
}

bool mp__shelf_offer(arena *a, stream_heap *heap, uint32_t units, uint64_t epoch_max) {
    chunk *c = NULL;
    spin_lock(&heap->lock);
    for (int class = next_filled(heap, class_of(units), SHELF_CLASSES - 1); class >= 0 && c == NULL;
         class = next_filled(heap, class + 1, SHELF_CLASSES - 1)) {
        c = is_at_rest(heap, class, epoch_max) ? take_smallest(heap, class, units) : NULL;
    }
    if (c != NULL) {
        chunk_set_state(c, CHUNK_MOVING);
    }
    spin_unlock(&heap->lock);
    return release_all(a, c) > 0;
}

size_t mp__shelf_offer_all(arena *a, stream_heap *heap, uint64_t epoch_max) {
    chunk *taken = NULL;
    spin_lock(&heap->lock);
    for (int class = next_filled(heap, 0, SHELF_CLASSES - 1); class >= 0;
         class = next_filled(heap, class + 1, SHELF_CLASSES - 1)) {
        while (heap->shelf[class] != NULL && is_at_rest(heap, class, epoch_max)) {
            chunk *c = pop(heap, class, &heap->shelf[class]);
            chunk_set_state(c, CHUNK_MOVING);
            c->link = taken;
            taken = c;
        }
    }
    spin_unlock(&heap->lock);
    return release_all(a, taken);
}
