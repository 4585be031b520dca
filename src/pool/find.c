/* find.c - a chunk for a request that its shelf could not serve: where it is looked for, in which
 * order, and what is tried before memory has run out. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena.h"

/* In the lane's own bins and in those that any stream may use. */
static chunk *find_here(const arena *a, const lane *l, uint32_t units) {
    chunk *own = mp__bins_best(&l->bins, units, UINT64_MAX);
    if (l->index == 0) {
        return own;
    }
    chunk *idle = mp__bins_best(&lane_at(a, 0)->bins, units, UINT64_MAX);
    if (own == NULL || (idle != NULL && idle->units < own->units)) {
        return idle;
    }
    return own;
}

static bool has_free(const arena *a, uint32_t units) {
    size_t bytes = 0;
    for (size_t i = 0; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        spin_lock(&l->lock);
        bytes += l->bins.bytes + l->shelf_bytes;
        spin_unlock(&l->lock);
    }
    return bytes >= (size_t)units * UNIT;
}

size_t mp__arena_plenty(const arena *a, size_t bytes) {
    enum { LANE_BYTES = 4 << 20 }; /* what the shelf of a further stream may hold */
    size_t most = bytes;
    for (size_t i = 0; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        spin_lock(&l->lock);
        most += l->in_use;
        spin_unlock(&l->lock);
    }
    most = most > a->peak ? most : (size_t)a->peak;
    const size_t others = lane_count_of(a) > 2 ? lane_count_of(a) - 2 : 0;
    const size_t pieces = a->expandable ? most / 8 + most / 16 : most;
    return most + pieces + others * LANE_BYTES;
}

/* Takes chunks off shelves: those of other streams only where much has been had for little, since
 * each of them must then go the long way for a while. */
static void gather_for(arena *a, lane *l, size_t bytes) {
    if (arena_total(a) > mp__arena_plenty(a, bytes)) {
        mp__arena_gather(a);
        return;
    }
    mp__shelf_clear(a, l, true);
    mp__order_poll(a);
    mp__arena_gather_idle(a);
}

/* Whether the arena is still so small that it had better grow than have a shelf taken apart, after
 * which many requests must go the long way. */
static bool is_small(const arena *a, uint32_t units) {
    enum { LANE_BYTES = 8 << 20, LANES = 32 };
    const size_t bytes = (size_t)units * UNIT;
    const size_t growth = a->next_extension > bytes ? a->next_extension : bytes;
    const size_t streams = lane_count_of(a) > 2 ? lane_count_of(a) - 1 : 1;
    return units <= SHELF_UNITS_MAX &&
           arena_total(a) + growth <= (streams < LANES ? streams : LANES) * LANE_BYTES;
}

/* Also of other streams, where nothing has to be waited for. */
static chunk *find_safe(arena *a, lane *l, uint32_t units) {
    chunk *c = find_here(a, l, units);
    return c != NULL ? c : mp__order_find(a, l, units, false);
}

/* What is there already, from the cheapest place to the dearest. */
static chunk *find_anywhere(arena *a, lane *l, uint32_t units) {
    chunk *c = find_safe(a, l, units);
    if (c == NULL && a->waiting != NULL) {
        mp__order_collect(a, false);
        c = find_here(a, l, units);
    }
    if (c == NULL && !is_small(a, units) && has_free(a, units)) {
        gather_for(a, l, (size_t)units * UNIT);
        c = find_safe(a, l, units);
        if (c == NULL) {
            mp__order_settle_idle(a);
            mp__arena_gather_idle(a);
            c = find_safe(a, l, units);
        }
    }
    return c;
}

/* When the device has no more: what `l` can have by waiting, on the device or else here. */
static mp_status find_by_waiting(arena *a, lane *l, uint32_t units, chunk **out) {
    mp__arena_gather(a);
    mp__order_collect(a, true);
    *out = find_here(a, l, units);
    if (*out == NULL) {
        *out = mp__order_find(a, l, units, true);
    }
    if (*out == NULL && a->captures_open == 0) {
        MP_TRY(mp__arena_quiesce(a));
        *out = find_here(a, l, units);
    }
    return MP_OK;
}

static mp_status grow(arena *a, lane *l, uint32_t units) {
    MP_TRY(mp__chunk_prepare(&a->chunks, &a->chunks.shared, CHUNK_RECORDS));
    return mp__region_grow(a, l, units);
}

/* Fails: OUT_OF_MEMORY, with the sentence of the device or of the limit. */
static mp_status find_or_grow(arena *a, lane *l, uint32_t units, chunk **out) {
    *out = find_anywhere(a, l, units);
    if (*out != NULL) {
        return MP_OK;
    }
    mp_status status = grow(a, l, units);
    if (status == MP_OUT_OF_MEMORY) {
        MP_TRY(find_by_waiting(a, l, units, out));
        if (*out != NULL) {
            return MP_OK;
        }
        if (mp__region_trim_helps(a, units) && mp__region_trim(a) > 0) {
            status = grow(a, l, units); /* what lay in pieces may do in one */
        }
    }
    MP_TRY(status);
    *out = find_here(a, l, units);
    return *out != NULL ? MP_OK : MP_FAIL(INTERNAL, "a region that was just added has no room");
}

/* Takes out of `c`, which is in a bin, what is to be lent; the rest stays there, unless it is
 * better lent too than left dead. */
static chunk *take(arena *a, lane *l, chunk *c, uint32_t units) {
    bins *from = &lane_of(a, c)->bins;
    const uint32_t rest = c->units - units;
    mp__bins_remove(from, c);
    if (rest < units && (size_t)rest * UNIT < a->options.max_dead_bytes_per_chunk) {
        return mp__chunk_cut(a, l, c, c->units);
    }
    chunk *front = mp__chunk_cut(a, l, c, units);
    if (rest > 0) {
        mp__bins_add(from, c);
    }
    return front;
}

mp_status mp__chunk_obtain(arena *a, lane *l, uint32_t units, chunk **out) {
    chunk *c = NULL;
    MP_TRY(mp__chunk_prepare(&a->chunks, &a->chunks.shared, CHUNK_RECORDS));
    MP_TRY(mp__chunk_prepare(&a->chunks, &l->records, 1));
    MP_TRY(mp__address_prepare(&a->addresses, 1));
    MP_TRY(find_or_grow(a, l, units, &c));
    *out = take(a, l, c, units);
    return MP_OK;
}
