/* lane.c - lanes: found by the stream's handle without a lock.
 *
 * A lane stays for as long as its arena, but may become another stream's. So whoever has found one
 * looks at its key again under its lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/lane.h"

#include "base/log.h"
#include "pool/arena/gather_idle.h"
#include "pool/arena/thrift.h"

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
    mp__thrift_begin(a, l);
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
        mp__thrift_begin(a, l);
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
    arena_lock(a);
    const mp_status status = mp__lane_current(a, key, out);
    if (status == MP_OK && (*out)->capture != NULL) {
        *out = (*out)->capture;
    }
    arena_unlock(a);
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

/* ---- all of them ---- */

void mp__lanes_lock(arena *a) {
    for (size_t i = 0; i < lane_count_of(a); i++) {
        spin_lock(&lane_at(a, (unsigned)i)->lock);
    }
}

void mp__lanes_unlock(arena *a) {
    for (size_t i = lane_count_of(a); i-- > 0;) {
        spin_unlock(&lane_at(a, (unsigned)i)->lock);
    }
}
