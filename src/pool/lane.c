/* lane.c - lanes: found by the stream's handle without a lock, and the shelf each one has.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A lane stays for as long as its arena, but may become another stream's. So whoever has found one
 * looks at its key again under its lock. */
#include "pool/arena.h"

#include <stdlib.h>

/* ---- the table by key ---- */

static size_t slot_of(const void *key) {
    return (size_t)(((uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15)) >> 40) % LANE_SLOTS;
}

static lane *lane_in(const arena *a, size_t slot) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->lane_slots[slot].lane,
                                memory_order_acquire);
}

/* The slot of a key, or the empty one where it would go. A key stays in its slot for good. */
static size_t find(const arena *a, const void *key) {
    size_t i = slot_of(key);
    while (lane_in(a, i) != NULL && a->lane_slots[i].key != key) {
        i = (i + 1) % LANE_SLOTS;
    }
    return i;
}

void *mp__lane_key(const arena *a, void *native) {
    static _Thread_local char own; /* the default stream of a thread has one handle for all */
    if (a->source.memory == MP_MEMORY_PINNED) {
        return MP_NO_STREAM;
    }
    if ((uintptr_t)native > 2 || a->device->info.kind != MP_DEVICE_CUDA) {
        return native;
    }
    return (uintptr_t)native == 2 ? (void *)&own : NULL; /* 1 and NULL are one stream */
}

/* ---- life ---- */

static mp_status make(arena *a, lane **out) {
    const size_t index = lane_count_of(a);
    if (index == LANES_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "%d streams have used this pool, which is as many as it can tell apart; use "
                       "fewer, or use them again",
                       LANES_MAX);
    }
    lane *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for the record of a stream");
    }
    (void)pthread_mutex_init(&l->lock, NULL);
    l->index = (unsigned)index;
    l->epoch = 1;
    atomic_store_explicit(&a->lanes[index], l, memory_order_release);
    atomic_store_explicit(&a->lane_count, index + 1, memory_order_release);
    *out = l;
    return MP_OK;
}

mp_status mp__lane_add(arena *a, lane **out) {
    for (size_t i = 1; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        if (!l->gone || l->in_table) {
            continue;
        }
        (void)pthread_mutex_lock(&l->lock);
        const bool unused = l->in_use == 0;
        if (unused) {
            l->gone = l->detour = l->is_capture = l->thread_own = false;
        }
        (void)pthread_mutex_unlock(&l->lock);
        if (unused) {
            *out = l;
            return MP_OK;
        }
    }
    return make(a, out);
}

void mp__lane_close(arena *a, lane *l) {
    if (l->stream != NULL) {
        a->device->ops->stream_destroy(a->device, l->stream);
    }
    (void)pthread_mutex_destroy(&l->lock);
    free(l->seen);
    free(l);
}

/* Makes `l` the one that `key` finds. Under the arena's lock. */
static void put_in_table(arena *a, lane *l, void *key) {
    const bool own = a->device->info.kind == MP_DEVICE_CUDA && key == mp__lane_key(a, (void *)2);
    (void)pthread_mutex_lock(&l->lock);
    l->key = key;
    l->native = own ? (void *)2 : key;
    l->thread_own = own;
    l->thread = pthread_self();
    l->in_table = true;
    (void)pthread_mutex_unlock(&l->lock);
    const size_t slot = find(a, key);
    a->lane_slots[slot].key = key;
    atomic_store_explicit(&a->lane_slots[slot].lane, l, memory_order_release);
}

/* Under the arena's lock. */
static mp_status add_for(arena *a, void *key, lane **out) {
    MP_TRY(mp__lane_add(a, out));
    put_in_table(a, *out, key);
    return MP_OK;
}

mp_status mp__lane_get(arena *a, void *key, lane **out) {
    lane *l = key == MP_NO_STREAM ? lane_at(a, 0) : lane_in(a, find(a, key));
    mp_status status = MP_OK;
    if (l == NULL) {
        (void)pthread_mutex_lock(&a->lock);
        l = lane_in(a, find(a, key)); /* another thread may have been first */
        if (l == NULL) {
            status = add_for(a, key, &l);
        }
        (void)pthread_mutex_unlock(&a->lock);
    }
    *out = l;
    return status;
}

/* ---- detours ---- */

/* The handle of a stream that was destroyed is that of a new one. What the old one has lent still
 * counts on its lane, so the new one gets another. Under the arena's lock. */
static mp_status revive(arena *a, lane *l, lane **out) {
    (void)pthread_mutex_lock(&l->lock);
    const bool unused = l->in_use == 0;
    if (unused) {
        l->gone = l->detour = false;
    } else {
        l->in_table = false;
    }
    (void)pthread_mutex_unlock(&l->lock);
    *out = l;
    if (unused) {
        return MP_OK;
    }
    const mp_status status = add_for(a, l->key, out);
    l->in_table = status != MP_OK;
    return status;
}

mp_status mp__lane_current(arena *a, void *key, lane **out) {
    lane *l = lane_in(a, find(a, key));
    if (l == NULL) {
        return add_for(a, key, out);
    }
    if (l->gone) {
        return revive(a, l, out);
    }
    *out = l;
    return MP_OK;
}

static mp_status detour(arena *a, void *key, lane **out) {
    (void)pthread_mutex_lock(&a->lock);
    const mp_status status = mp__lane_current(a, key, out);
    if (status == MP_OK && (*out)->capture != NULL) {
        *out = (*out)->capture;
    }
    (void)pthread_mutex_unlock(&a->lock);
    return status;
}

mp_status mp__lane_lock(arena *a, void *key, lane **out) {
    lane *l = NULL;
    MP_TRY(mp__lane_get(a, key, &l));
    (void)pthread_mutex_lock(&l->lock);
    if (__builtin_expect(l->detour || l->key != key, false)) {
        (void)pthread_mutex_unlock(&l->lock);
        MP_TRY(detour(a, key, &l));
        (void)pthread_mutex_lock(&l->lock);
    }
    *out = l;
    return MP_OK;
}

mp_status mp__lane_now(arena *a, void *key, lane **out) {
    MP_TRY(mp__lane_lock(a, key, out));
    (void)pthread_mutex_unlock(&(*out)->lock);
    return MP_OK;
}

/* ---- shelves ---- */

bool mp__shelf_put(const arena *a, lane *l, chunk *c) {
    const int class = class_of(c->units);
    chunk_set_state(c, CHUNK_KEPT);
    c->epoch = l->epoch;
    c->link = l->shelf[class];
    l->shelf[class] = c;
    l->shelf_bytes += chunk_bytes(c);
    l->shelf_count++;
    return l->shelf_bytes > a->options.stream_cache_bytes;
}

static chunk *pop(lane *l, chunk **link) {
    chunk *c = *link;
    *link = c->link;
    c->link = NULL;
    l->shelf_bytes -= chunk_bytes(c);
    l->shelf_count--;
    return c;
}

chunk *mp__shelf_take(lane *l, uint32_t units) {
    enum { LOOK = 4 };
    chunk **link = &l->shelf[class_of(units)];
    for (int i = 0; i < LOOK && *link != NULL; i++, link = &(*link)->link) {
        if ((*link)->units >= units) {
            return pop(l, link);
        }
    }
    return NULL;
}

/* Takes up to `count` chunks off the shelf, linked to each other. */
static chunk *take_some(lane *l, size_t count) {
    chunk *taken = NULL;
    (void)pthread_mutex_lock(&l->lock);
    while (count > 0 && l->shelf_count > 0) {
        chunk **link = &l->shelf[l->shelf_next];
        if (*link == NULL) {
            l->shelf_next = (l->shelf_next + 1) % SHELF_CLASSES;
            continue;
        }
        chunk *c = pop(l, link);
        chunk_set_state(c, CHUNK_MOVING);
        c->link = taken;
        taken = c;
        count--;
    }
    (void)pthread_mutex_unlock(&l->lock);
    return taken;
}

void mp__shelf_clear(arena *a, lane *l, bool all) {
    enum { SOME = 32 };
    for (chunk *c = take_some(l, all ? SIZE_MAX : SOME), *next = NULL; c != NULL; c = next) {
        next = c->link;
        mp__chunk_release(a, c);
    }
}
