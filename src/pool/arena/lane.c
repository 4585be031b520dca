/* lane.c - lanes: found by the stream's handle without a lock, and the shelf each one has.
 *
 * A lane stays for as long as its arena, but may become another stream's. So whoever has found one
 * looks at its key again under its lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "pool/arena/arena.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table by key ---- */

static size_t slot_of(const void *key) {
    return (size_t)(((uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15)) >> 40) % LANE_SLOTS;
}

static lane *lane_in(const arena *a, size_t slot) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->lane_slots[slot].lane,
                                memory_order_acquire);
}

static void *key_in(const arena *a, size_t slot) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->lane_slots[slot].key,
                                memory_order_relaxed);
}

/* The slot of a key, or the empty one that ends the search; LANE_SLOTS where there is neither.
 * Without the arena's lock the lane found there may have become another key's. */
static size_t find(const arena *a, const void *key) {
    const size_t first = slot_of(key);
    for (size_t i = 0; i < LANE_SLOTS; i++) {
        const size_t slot = (first + i) % LANE_SLOTS;
        if (lane_in(a, slot) == NULL || key_in(a, slot) == key) {
            return slot;
        }
    }
    return LANE_SLOTS;
}

/* ---- under the arena's lock ---- */

/* Whether the lane of a slot has become another key's, or nobody's. */
static bool is_stale(const arena *a, size_t slot) {
    const lane *l = lane_in(a, slot);
    return l != NULL && (!l->in_table || l->key != key_in(a, slot));
}

/* The lane of a key; NULL where it has none. */
static lane *look_up(const arena *a, const void *key) {
    const size_t slot = find(a, key);
    return slot < LANE_SLOTS && !is_stale(a, slot) ? lane_in(a, slot) : NULL;
}

/* Where a key that has no lane goes: its old slot, or the first on its way that is free. There
 * are more slots than lanes, so one is empty or stale. */
static size_t slot_for(const arena *a, const void *key) {
    const size_t found = find(a, key);
    if (found < LANE_SLOTS && lane_in(a, found) != NULL) {
        return found;
    }
    size_t slot = slot_of(key);
    while (slot != found && !is_stale(a, slot)) {
        slot = (slot + 1) % LANE_SLOTS;
    }
    return slot;
}

/* The default stream of a thread has one handle for all threads. */
#define PER_THREAD ((void *)(uintptr_t)2)

void *mp__lane_key(const arena *a, void *native) {
    static _Thread_local char own;
    if (a->source.memory == MP_MEMORY_PINNED) {
        return MP_NO_STREAM;
    }
    if ((uintptr_t)native > (uintptr_t)PER_THREAD) {
        return native;
    }
    return native == PER_THREAD ? (void *)&own : NULL; /* 1 and NULL are one stream */
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
    lane *l = aligned_alloc(_Alignof(lane), sizeof *l);
    if (l == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a stream");
    }
    memset(l, 0, sizeof *l);
    l->index = (unsigned)index;
    l->key = MP_NO_STREAM;
    l->epoch = 1;
    mp__find_begin(a, l);
    atomic_store_explicit(&a->lanes[index], l, memory_order_release);
    atomic_store_explicit(&a->lane_count, index + 1, memory_order_release);
    *out = l;
    return MP_OK;
}

/* Makes the lane of a stream that is gone, which has nothing allocated any more, nobody's. */
static bool recycle(const arena *a, lane *l) {
    spin_lock(&l->lock);
    const bool unused = l->gone && l->in_use == 0;
    if (unused) {
        l->gone = l->ended = l->detour = l->is_capture = l->in_table = false;
        l->thread = 0;
        l->key = MP_NO_STREAM;
        mp__find_begin(a, l);
    }
    spin_unlock(&l->lock);
    return unused;
}

mp_status mp__lane_add(arena *a, lane **out) {
    for (size_t i = 1; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        if (l->gone && recycle(a, l)) {
            *out = l;
            return MP_OK;
        }
    }
    return make(a, out);
}

static void drop_wrap(arena *a, lane *l) {
    if (l->stream != NULL) {
        a->device->ops->stream_destroy(a->device, l->stream);
        l->stream = NULL;
    }
}

void mp__lane_end(arena *a, lane *l) {
    spin_lock(&l->lock);
    l->gone = true;
    l->detour = true;
    l->life++;
    spin_unlock(&l->lock);
    drop_wrap(a, l);
}

void mp__lane_close(arena *a, lane *l) {
    drop_wrap(a, l);
    free(l->seen);
    free(l);
}

/* Makes `l` the one that `key` finds. Under the arena's lock. */
static void put_in_table(arena *a, lane *l, void *key) {
    const bool own = key == mp__lane_key(a, PER_THREAD);
    spin_lock(&l->lock);
    l->key = key;
    l->native = own ? PER_THREAD : key;
    l->thread = own ? mp_thread_number() : 0;
    l->in_table = true;
    spin_unlock(&l->lock);
    const size_t slot = slot_for(a, key);
    atomic_store_explicit(&a->lane_slots[slot].key, key, memory_order_relaxed);
    atomic_store_explicit(&a->lane_slots[slot].lane, l, memory_order_release);
}

/* Under the arena's lock. */
static mp_status add_for(arena *a, void *key, lane **out) {
    MP_TRY(mp__lane_add(a, out));
    put_in_table(a, *out, key);
    return MP_OK;
}

/* ---- detours ---- */

/* The handle of a stream that was destroyed is that of a new one. What the old one has allocated
 * still counts on its lane, so the new one gets another. Under the arena's lock. */
static mp_status revive(arena *a, lane *l, lane **out) {
    spin_lock(&l->lock);
    const bool unused = l->in_use == 0;
    if (unused) {
        l->gone = l->detour = false;
    } else {
        l->in_table = false;
    }
    spin_unlock(&l->lock);
    *out = l;
    if (unused) {
        return MP_OK;
    }
    const mp_status status = add_for(a, l->key, out);
    l->in_table = status != MP_OK;
    return status;
}

/* The thread of the lane has ended. What it queued may still run, and only the whole device can be
 * asked for it: now, or when it is waited for anyway. Under the arena's lock. */
static void leave_behind(arena *a, lane *l) {
    spin_lock(&l->lock);
    l->in_table = false;
    l->ended = l->detour = true;
    a->captures_open -= l->capture != NULL; /* it has ended with its stream */
    l->capture = NULL;
    spin_unlock(&l->lock);
    if (a->captures_open == 0 && mp__arena_quiesce(a) != MP_OK) {
        MP_LOG(WARNING, "what a thread that has ended left behind cannot be waited for: %s",
               mp_error_message());
    }
}

mp_status mp__lane_current(arena *a, void *key, lane **out) {
    lane *l = look_up(a, key);
    if (l != NULL && lane_is_left_behind(l)) {
        leave_behind(a, l);
        l = NULL;
    }
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

lane *mp__lane_known(const arena *a, void *key) {
    if (key == MP_NO_STREAM) {
        return lane_at(a, 0);
    }
    lane *l = look_up(a, key);
    return l != NULL && !lane_is_left_behind(l) ? l : NULL;
}

/* The lane that a key most likely has; NULL where it has none. */
static lane *guess(const arena *a, void *key) {
    if (key == MP_NO_STREAM) {
        return lane_at(a, 0);
    }
    const size_t slot = find(a, key);
    return slot < LANE_SLOTS ? lane_in(a, slot) : NULL;
}

lane *mp__lane_try(arena *a, void *key) {
    lane *l = guess(a, key);
    if (l != NULL) {
        spin_lock(&l->lock);
        if (__builtin_expect(lane_is_for(l, key), true)) {
            return l;
        }
        spin_unlock(&l->lock);
    }
    return NULL;
}

mp_status mp__lane_lock(arena *a, void *key, lane **out) {
    lane *l = mp__lane_try(a, key);
    if (l != NULL) {
        *out = l;
        return MP_OK;
    }
    MP_TRY(detour(a, key, out));
    spin_lock(&(*out)->lock);
    return MP_OK;
}

mp_status mp__lane_now(arena *a, void *key, lane **out) {
    MP_TRY(mp__lane_lock(a, key, out));
    spin_unlock(&(*out)->lock);
    return MP_OK;
}

/* ---- shelves ---- */

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

/* The first class from `class` on, up to `last`, that has chunks; -1 where none has. */
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
        if (class == last) {
            break;
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
         class = class < SHELF_CLASSES - 1 ? next_filled(l, class + 1, SHELF_CLASSES - 1) : -1) {
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
         class = class < SHELF_CLASSES - 1 ? next_filled(l, class + 1, SHELF_CLASSES - 1) : -1) {
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
