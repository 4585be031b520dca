/* usage.c - what is in use, and the most that ever was: exact, though counted on many lanes.
 *
 * A request must not touch a count that all threads share. So each lane counts what it has
 * allocated and has an allowance up to which it may allocate without asking. The allowances
 * together (`assigned`) never exceed the peak, so a lane within its allowance cannot make a new
 * peak. A lane that needs more asks under the arena's lock: it gets what is left of the peak, then
 * what others do not use, and only when the true sum of all lanes exceeds the peak is there a new
 * one.
 *
 * Once two threads have asked at the same time, every lane gets a margin, so that they need not ask
 * each other all the time: from then on the peak may be too high by the margins.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/usage.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 256 << 10 }; /* bytes a lane */

static void count(lane *l, chunk *c, chunk_state state) {
    chunk_set_state(c, state);
    l->in_use += chunk_bytes(c);
    l->alloc_size_max = c->requested > l->alloc_size_max ? c->requested : l->alloc_size_max;
    tally *t = &l->clients[c->client];
    t->in_use += (int64_t)chunk_bytes(c);
    t->requested += (int64_t)c->requested;
    t->blocks++;
    t->allocs++;
}

bool mp__usage_add_fast(lane *l, chunk *c, chunk_state state) {
    if (l->in_use + chunk_bytes(c) > l->allowance) {
        return false;
    }
    count(l, c, state);
    return true;
}

/* Under all locks: gives `l` room for `need` bytes, and every lane its part of what is left of the
 * peak. */
static void assign_anew(arena *a, lane *l, uint64_t need) {
    const size_t lanes = lane_count_of(a);
    assert(lanes > 0);
    const uint64_t margin = atomic_load_explicit(&a->crowded, memory_order_relaxed) ? MARGIN : 0;
    uint64_t sum = need + lanes * margin;
    for (size_t i = 0; i < lanes; i++) {
        sum += lane_at(a, (unsigned)i)->in_use;
    }
    a->peak = sum > a->peak ? sum : a->peak;
    const uint64_t part = margin + (a->peak - sum) / lanes;
    a->assigned = 0;
    for (size_t i = 0; i < lanes; i++) {
        lane *other = lane_at(a, (unsigned)i);
        other->allowance = other->in_use + part + (other == l ? need : 0);
        a->assigned += other->allowance;
    }
}

/* Two threads that come here at the same time would come here again and again. */
static void lock_for_usage(arena *a) {
    if (pthread_mutex_trylock(&a->lock) != 0) {
        atomic_store_explicit(&a->crowded, true, memory_order_relaxed);
        arena_lock(a);
    }
}

void mp__usage_add(arena *a, lane *l, chunk *c, chunk_state state) {
    lock_for_usage(a);
    spin_lock(&l->lock);
    const uint64_t wanted = l->in_use + chunk_bytes(c);
    const uint64_t more = wanted > l->allowance ? wanted - l->allowance : 0;
    if (more <= a->peak - a->assigned) {
        l->allowance += more;
        a->assigned += more;
        count(l, c, state);
        spin_unlock(&l->lock);
    } else {
        spin_unlock(&l->lock);
        mp__lanes_lock(a);
        assign_anew(a, l, chunk_bytes(c));
        count(l, c, state);
        mp__lanes_unlock(a);
    }
    arena_unlock(a);
}

void mp__usage_count(arena *a, lane *l, chunk *c, chunk_state state) {
    spin_lock(&l->lock);
    const bool counted = mp__usage_add_fast(l, c, state);
    spin_unlock(&l->lock);
    if (!counted) {
        mp__usage_add(a, l, c, state);
    }
}

void mp__usage_remove(lane *l, const chunk *c) {
    l->in_use -= chunk_bytes(c);
    l->frees++;
    tally *t = &l->clients[c->client];
    t->in_use -= (int64_t)chunk_bytes(c);
    t->requested -= (int64_t)c->requested;
    t->blocks--;
}

void mp__usage_stats_locked(const arena *a, mp_pool_stats *out) {
    *out = a->counts;
    out->limit = a->options.max_mem == SIZE_MAX ? UINT64_MAX : a->options.max_mem;
    out->total = arena_total(a);
    out->in_use_max = a->peak < out->total_max ? a->peak : out->total_max; /* margins aside */
    for (size_t i = 0; i < lane_count_of(a); i++) {
        const lane *l = lane_at(a, (unsigned)i);
        out->in_use += l->in_use;
        out->frees += l->frees;
        out->alloc_size_max =
            l->alloc_size_max > out->alloc_size_max ? l->alloc_size_max : out->alloc_size_max;
        for (size_t k = 0; k < a->client_count; k++) {
            out->requested += (uint64_t)l->clients[k].requested;
            out->allocs += l->clients[k].allocs;
        }
    }
}

void mp__usage_stats(arena *a, mp_pool_stats *out) {
    arena_lock(a);
    mp__lanes_lock(a);
    mp__usage_stats_locked(a, out);
    mp__lanes_unlock(a);
    arena_unlock(a);
}

void mp__usage_reset_peaks(arena *a) {
    arena_lock(a);
    mp__lanes_lock(a);
    a->peak = 0;
    atomic_store_explicit(&a->crowded, false, memory_order_relaxed);
    for (size_t i = 0; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        l->allowance = l->in_use;
        l->alloc_size_max = 0;
        a->peak += l->in_use;
    }
    a->assigned = a->peak;
    a->counts.total_max = arena_total(a);
    mp__lanes_unlock(a);
    arena_unlock(a);
}

/* ---- shares ---- */

void mp__usage_clients(arena *a, mp_share *out, size_t capacity, size_t *count_out) {
    arena_lock(a);
    mp__lanes_lock(a);
    for (size_t k = 0; k < a->client_count && k < capacity; k++) {
        mp_share share = {.stream = MP_NO_STREAM};
        memcpy(share.name, a->clients[k], sizeof share.name);
        for (size_t i = 0; i < lane_count_of(a); i++) {
            const tally *t = &lane_at(a, (unsigned)i)->clients[k];
            share.in_use += (uint64_t)t->in_use;
            share.requested += (uint64_t)t->requested;
            share.blocks += (uint64_t)t->blocks;
            share.allocs += t->allocs;
        }
        out[k] = share;
    }
    *count_out = a->client_count;
    mp__lanes_unlock(a);
    arena_unlock(a);
}

static void add_lane(const arena *a, const lane *l, mp_share *share) {
    share->in_use += l->in_use;
    share->free += l->bins.bytes + l->shelf_bytes;
    for (size_t k = 0; k < a->client_count; k++) {
        share->requested += (uint64_t)l->clients[k].requested;
        share->blocks += (uint64_t)l->clients[k].blocks;
        share->allocs += l->clients[k].allocs;
    }
}

/* The share that a lane is part of: that of its stream, or the first, which is of memory without a
 * stream. Only a capture's lane can have that of another lane. */
static mp_share *share_of(const lane *l, mp_share *shares, size_t *count) {
    if (l->index == 0 || l->gone) {
        return &shares[0];
    }
    for (size_t i = 1; l->is_capture && i < *count; i++) {
        if (shares[i].stream == l->native) {
            return &shares[i];
        }
    }
    shares[*count] = (mp_share){.stream = l->native};
    return &shares[(*count)++];
}

mp_status mp__usage_streams(arena *a, mp_share *out, size_t capacity, size_t *count_out) {
    arena_lock(a);
    mp_share *shares = calloc(lane_count_of(a), sizeof *shares);
    size_t count = 1;
    if (shares != NULL) {
        mp__lanes_lock(a);
        shares[0].stream = MP_NO_STREAM;
        for (int captures = 0; captures < 2; captures++) { /* they come after their streams */
            for (size_t i = 0; i < lane_count_of(a); i++) {
                const lane *l = lane_at(a, (unsigned)i);
                if (l->is_capture == captures) {
                    add_lane(a, l, share_of(l, shares, &count));
                }
            }
        }
        mp__lanes_unlock(a);
        for (size_t i = 0; i < count && i < capacity; i++) {
            out[i] = shares[i];
        }
        *count_out = count;
    }
    arena_unlock(a);
    free(shares);
    return shares != NULL
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a list of streams");
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
