/* obtain.c - a chunk for a request that its shelf could not serve: where it is looked for, in which
 * order, and what is tried before memory has run out. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/arena.h"

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

/* ---- gathering ----
 * A shelf serves its stream fast, but what lies on it is in pieces, and not merged with what is
 * free beside it. So a lane that has made the arena grow is thrifty for a while, which growth has
 * paid for: its shelf serves exact sizes only and is emptied at each request that it did not serve,
 * so that memory lies as if it were merged at each free, and the next growth, which may double
 * everything, comes as late as it can. Afterwards the shelf is gathered only where a request would
 * make the arena grow; and where the arena is small, not even there: it had better grow than have
 * the same blocks gathered over and over. `gathered` counts that for each lane.
 *
 * Each chunk gathered was freed since the last time, so gathering adds a bounded time to a free. */

enum {
    THRIFT = 4096,           /* chunks gathered before it ends */
    ASKING = 16,             /* chunks that might be gathered while streams are asked */
    THRIFT_BYTES = 64 << 20, /* an arena that is larger is spared it, unless growth is to be as */
    THRIFT_BLOCKS_MAX = 128, /* requested, or so few blocks are lent that the shelf is short */
};

/* The most units that a chunk of the shelf may have beyond an eighth of a request. */
static uint32_t slack_of(const arena *a) {
    const size_t dead = a->options.max_dead_bytes_per_chunk;
    if (a->expandable && !a->options.dead_bytes_given) {
        return UINT32_MAX; /* the default is for what is cut off in the bins */
    }
    const size_t units = dead > 0 ? (dead - 1) / UNIT : 0;
    return units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
}

static bool lends_few(const arena *a, const lane *l) {
    int64_t blocks = 0;
    for (size_t i = 0; i < a->client_count; i++) {
        blocks += l->clients[i].blocks;
    }
    return blocks <= THRIFT_BLOCKS_MAX;
}

void mp__find_begin(const arena *a, lane *l) {
    const bool is_thrifty = a->options.extend_strategy == EXTEND_AS_REQUESTED ||
                            arena_total(a) <= THRIFT_BYTES || lends_few(a, l);
    l->gathered = is_thrifty ? 0 : THRIFT;
    l->slack = is_thrifty ? 0 : slack_of(a);
}

static void count_gathered(const arena *a, lane *l, size_t count) {
    const size_t before = l->gathered;
    l->gathered += count;
    if (before < THRIFT && l->gathered >= THRIFT) {
        spin_lock(&l->lock);
        l->slack = slack_of(a);
        spin_unlock(&l->lock);
    }
}

static void gather_own(arena *a, lane *l) {
    count_gathered(a, l, 1 + mp__shelf_clear(a, l, true));
}

/* Whether the arena is so small that it had better grow, at last. */
static bool is_worn(const arena *a, const lane *l, uint32_t units) {
    enum { LANE_BYTES = 8 << 20, LANES = 32 };
    const size_t bytes = (size_t)units * UNIT;
    const size_t growth = a->next_extension > bytes ? a->next_extension : bytes;
    const size_t streams = lane_count_of(a) > 2 ? lane_count_of(a) - 1 : 1;
    return l->gathered >= THRIFT && a->options.extend_strategy == EXTEND_POWER_OF_TWO &&
           units <= SHELF_UNITS_MAX &&
           arena_total(a) + growth <= (streams < LANES ? streams : LANES) * LANE_BYTES;
}

/* Whether the free memory of `other` may be lent to others at all. */
static bool lends(const lane *l, const lane *other) {
    return other != l && (!other->is_capture || other->gone);
}

/* Also of other streams, where nothing has to be waited for. */
static chunk *find_safe(arena *a, lane *l, uint32_t units) {
    chunk *c = find_here(a, l, units);
    return c != NULL ? c : mp__order_find(a, l, units, false);
}

/* One chunk of the shelf of another stream that is at rest. */
static chunk *find_kept(arena *a, lane *l, uint32_t units) {
    for (size_t i = 0; i < lane_count_of(a) && units <= SHELF_UNITS_MAX; i++) {
        lane *other = lane_at(a, (unsigned)i);
        if (lends(l, other) && mp__shelf_offer(a, other, units, mp__order_seen(l, other))) {
            chunk *c = find_safe(a, l, units);
            if (c != NULL) { /* it may have joined one that has to be waited for */
                return c;
            }
        }
    }
    return NULL;
}

/* All that lies on shelves of other streams at rest. */
static void gather_others(arena *a, lane *l) {
    size_t gathered = 0;
    for (size_t i = 0; i < lane_count_of(a); i++) {
        lane *other = lane_at(a, (unsigned)i);
        if (lends(l, other)) {
            gathered += mp__shelf_offer_all(a, other, mp__order_seen(l, other));
        }
    }
    count_gathered(a, l, gathered);
    mp__arena_gather_idle(a);
}

/* What is there in pieces, or kept: of this stream, then of those at rest. What others use is taken
 * only where much has been had for little, since they must then go the long way for a while. */
static chunk *find_by_gathering(arena *a, lane *l, uint32_t units) {
    mp__order_poll(a);
    if (is_worn(a, l, units)) {
        return find_kept(a, l, units);
    }
    if (mp__shelf_offer(a, l, units, UINT64_MAX)) { /* the rest of the shelf can stay */
        count_gathered(a, l, 1);
        return find_here(a, l, units);
    }
    gather_own(a, l);
    mp__arena_gather_idle(a);
    chunk *c = find_safe(a, l, units);
    if (c == NULL) {
        c = find_kept(a, l, units);
    }
    if (c == NULL) {
        gather_others(a, l);
        c = find_safe(a, l, units);
    }
    if (c == NULL) {
        if (arena_total(a) > mp__arena_plenty(a, (size_t)units * UNIT)) {
            mp__arena_gather(a);
        }
        mp__order_settle_idle(a);
        mp__arena_gather_idle(a);
        count_gathered(a, l, ASKING);
        c = find_safe(a, l, units);
    }
    if (c == NULL && mp__order_settle_kept(a, l)) {
        gather_others(a, l);
        c = find_safe(a, l, units);
    }
    return c;
}

/* What is there already, from the cheapest place to the dearest. */
static chunk *find_anywhere(arena *a, lane *l, uint32_t units) {
    if (l->gathered < THRIFT) {
        gather_own(a, l);
    }
    chunk *c = find_safe(a, l, units);
    if (c == NULL && a->waiting != NULL) {
        mp__order_collect(a, false);
        c = find_here(a, l, units);
    }
    if (c == NULL && has_free(a, units)) {
        c = find_by_gathering(a, l, units);
    }
    return c;
}

/* ---- growing ---- */

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
    const bool is_relief = is_worn(a, l, units);
    MP_TRY(mp__chunk_prepare(&a->chunks, &a->chunks.shared, CHUNK_RECORDS));
    MP_TRY(mp__region_grow(a, l, units));
    if (!is_relief) {
        spin_lock(&l->lock);
        mp__find_begin(a, l);
        spin_unlock(&l->lock);
    }
    return MP_OK;
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
